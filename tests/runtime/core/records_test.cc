// What a run writes into the trace: every call, its place, its accesses, in host order; ends only of what ended.
#include <filesystem>
#include <map>
#include <set>

#include "job.h"
#include "probes/recorder/emit.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

using testing::HostRank;
using testing::Job;

struct Seen {
  std::string thread;
  Group group;
};

// Records a run and returns the groups of each thread, in order.
std::vector<Seen> recorded(const std::function<void()>& run) {
  std::string dir = (std::filesystem::temp_directory_path() / "core-test-XXXXXX").string();
  EXPECT_NE(mkdtemp(dir.data()), nullptr);
  rs_options options{};
  options.spool_dir = dir.c_str();
  options.mode = RS_MODE_FLIGHT;
  options.ring_bytes = 256 * 1024;
  EXPECT_EQ(rs_open(&options), 0) << rs_last_error();
  run();
  rs_close();
  std::vector<Seen> seen;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".ring") continue;
    auto ring = RingReader::open(entry.path().string());
    EXPECT_TRUE(ring);
    ring->for_each(1, [&](const Group& g) { seen.push_back({ring->thread_name(), g}); });
  }
  std::filesystem::remove_all(dir);
  return seen;
}

template <class Record>
std::vector<Record> of_kind(const std::vector<Seen>& seen, RecordKind kind, const std::string& thread = "") {
  std::vector<Record> records;
  for (const Seen& s : seen)
    if (s.group.kind == kind && (thread.empty() || s.thread == thread)) records.push_back(s.group.as<Record>());
  return records;
}

void attach(const HostRank& r) { rs_thread_attach(r.rank, ("rank" + std::to_string(r.rank) + ".host").c_str()); }

TEST(Records, AGroupOfTransfers) {
  const auto seen = recorded([] {
    Job job(Sched::turns(2), 2);
    EXPECT_EQ(job.run([](HostRank& r) {
      attach(r);
      ScopedWhere place(*r.device, [](Where& w) { w.step = 3, w.ring_step = 1; });
      Tensor mine = r.make(8), got = r.make(8);
      r.device->launch(*r.stream, "kernel", {got.rows(0, 2)}, {mine}, [] {});
      for (int hop = 0; hop < 2; ++hop) {
        CommGroup group(*r.comm);
        r.comm->send(*r.stream, mine, 1 - r.rank, "ring.send");
        r.comm->recv(*r.stream, got.rows(4, 8).rows(0, 0), 1 - r.rank, "ring.nothing");
        r.comm->recv(*r.stream, got, 1 - r.rank, "ring.recv");
      }
      EXPECT_TRUE(r.device->synchronize(*r.stream));
      rs_thread_detach();
    }),
              RunEnd::kCompleted);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const std::string host = "rank" + std::to_string(rank) + ".host",
                      worker = "rank" + std::to_string(rank) + ".compute";
    const auto enqueues = of_kind<OpEnqueueRecord>(seen, RecordKind::kOpEnqueue, host);
    ASSERT_EQ(enqueues.size(), 7u);
    std::set<uint64_t> ops;
    for (const auto& e : enqueues) {
      EXPECT_EQ(Where::unpack(e.where).step, 3);
      EXPECT_EQ(Where::unpack(e.where).ring_step, 1);
      EXPECT_NE(e.name, 0u);
      ops.insert(e.op);
    }
    EXPECT_EQ(ops.size(), 7u);
    EXPECT_EQ(enqueues[0].kind, uint16_t(OpKind::kKernel));
    EXPECT_EQ(enqueues[0].group, 0u);
    for (int i : {1, 2, 3}) EXPECT_EQ(enqueues[i].group, enqueues[1].op);
    for (int i : {4, 5, 6}) EXPECT_EQ(enqueues[i].group, enqueues[4].op);

    const auto p2ps = of_kind<P2pRecord>(seen, RecordKind::kP2p, host);
    ASSERT_EQ(p2ps.size(), 6u);
    EXPECT_EQ(p2ps[0].direction, uint8_t(Direction::kSend));
    EXPECT_EQ(p2ps[0].bytes, 32u);
    EXPECT_EQ(p2ps[0].count, 8u);
    EXPECT_EQ(p2ps[0].peer, 1 - rank);
    EXPECT_EQ(p2ps[3].seq, 1u);  // the second send
    EXPECT_EQ(p2ps[5].seq, 3u);  // the fourth receive

    const auto accesses = of_kind<AccessRecord>(seen, RecordKind::kAccess, host);
    ASSERT_EQ(accesses.size(), 2u + 2 * 2);  // an empty transfer touches nothing
    EXPECT_EQ(accesses[0].end - accesses[0].begin, 8u);
    EXPECT_EQ(accesses[0].mode, uint64_t(AccessMode::kRead));
    EXPECT_EQ(accesses[1].mode, uint64_t(AccessMode::kWrite));
    EXPECT_EQ(accesses[2].buffer, accesses[1].buffer);

    std::map<uint64_t, uint64_t> sent;
    for (const auto& e : of_kind<OpEndRecord>(seen, RecordKind::kOpEnd, worker)) sent[e.op] = e.bytes_sent;
    EXPECT_EQ(of_kind<OpStartRecord>(seen, RecordKind::kOpStart, worker).size(), 7u);
    ASSERT_EQ(sent.size(), 7u);
    EXPECT_EQ(sent[p2ps[0].op], 32u);
    EXPECT_EQ(sent[p2ps[2].op], 0u);
  }
  std::set<uint64_t> streams, buffers;
  for (const Seen& s : seen)
    if (s.group.kind == RecordKind::kStream) streams.insert(s.group.lane);
  EXPECT_EQ(streams.size(), 2u);
  for (const auto& b : of_kind<BufferAllocRecord>(seen, RecordKind::kBufferAlloc)) buffers.insert(b.buffer);
  EXPECT_EQ(buffers.size(), 4u);
  EXPECT_EQ(of_kind<BufferFreeRecord>(seen, RecordKind::kBufferFree).size(), 4u);
}

TEST(Records, AHungCollectiveHasAStartAndNoEnd) {
  const auto seen = recorded([] {
    Job job(Sched::free_threads(), 2);
    EXPECT_EQ(job.run([](HostRank& r) {
      attach(r);
      Tensor t = r.filled(6, [](int64_t) { return 1.0; });
      for (int i = 0; i < 2 + (r.rank == 0); ++i)  // rank 1 skips the third
        r.comm->all_reduce(*r.stream, t, t, RedOp::kMax, "max");
      r.device->launch(*r.stream, "after", {}, {t}, [] {});
      EXPECT_EQ(r.device->synchronize(*r.stream), r.rank == 1);
      rs_thread_detach();
    }),
              RunEnd::kStalled);
  });
  const auto colls = of_kind<CollRecord>(seen, RecordKind::kColl, "rank0.host");
  ASSERT_EQ(colls.size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(colls[i].seq, i);
    EXPECT_EQ(colls[i].func, uint8_t(CollFunc::kAllReduce));
    EXPECT_EQ(colls[i].redop, uint8_t(RedOp::kMax));
    EXPECT_EQ(colls[i].dtype, uint8_t(DType::kF32));
    EXPECT_EQ(colls[i].count, 6u);
    EXPECT_EQ(colls[i].root, -1);
  }
  // fill, three all_reduces: started; the kernel behind the hung one: enqueued only.
  EXPECT_EQ(of_kind<OpStartRecord>(seen, RecordKind::kOpStart, "rank0.compute").size(), 4u);
  const auto ends = of_kind<OpEndRecord>(seen, RecordKind::kOpEnd, "rank0.compute");
  ASSERT_EQ(ends.size(), 3u);
  EXPECT_EQ(ends[1].bytes_sent, 24u);
  EXPECT_EQ(of_kind<OpEndRecord>(seen, RecordKind::kOpEnd, "rank1.compute").size(), 4u);
}

TEST(Records, EventsCarryTheRecordTheyBound) {
  const auto seen = recorded([] {
    Job job(Sched::turns(1), 1);
    EXPECT_EQ(job.run([](HostRank& r) {
      attach(r);
      Device& d = *r.device;
      Stream& side = d.create_stream("side");
      Event e = d.create_event("e"), never = d.create_event("never");
      d.wait(side, never);
      d.record(e, *r.stream);
      d.wait(side, e);
      d.record(e, *r.stream);
      d.wait(side, e);
      EXPECT_TRUE(d.synchronize(side));
      rs_thread_detach();
    }),
              RunEnd::kCompleted);
  });
  const auto syncs = of_kind<SyncRecord>(seen, RecordKind::kSync, "rank0.host");
  ASSERT_EQ(syncs.size(), 6u);
  EXPECT_EQ(syncs[0].kind, uint32_t(SyncKind::kWait));
  EXPECT_EQ(syncs[0].key, 0u);
  EXPECT_EQ(syncs[1].kind, uint32_t(SyncKind::kRecord));
  EXPECT_EQ(syncs[2].key, syncs[1].key);
  EXPECT_NE(syncs[3].key, syncs[1].key);
  EXPECT_EQ(syncs[3].event, syncs[1].event);
  EXPECT_EQ(syncs[4].key, syncs[3].key);
  EXPECT_EQ(syncs[5].kind, uint32_t(SyncKind::kHostSync));
  EXPECT_EQ(syncs[5].event, 0u);
}

TEST(Records, CommunicatorsNameTheirMembers) {
  const auto seen = recorded([] {
    Job job(Sched::turns(1), 3);
    EXPECT_EQ(job.run([](HostRank& r) {
      attach(r);
      r.others.push_back(r.comm->split(r.rank == 1 ? -1 : 0, -r.rank, Axis::kCp, "cp[2,0]"));
      rs_thread_detach();
    }),
              RunEnd::kCompleted);
  });
  const auto comms = of_kind<CommRecord>(seen, RecordKind::kComm, "rank0.host");
  ASSERT_EQ(comms.size(), 1u);  // the first was made before the thread had its name
  EXPECT_EQ(comms[0].size, 2u);
  EXPECT_EQ(comms[0].group_rank, 1u);
  EXPECT_EQ(comms[0].axis, uint16_t(Axis::kCp));
  EXPECT_EQ(comms[0].creation, 1u);
  std::map<uint32_t, uint64_t> members;
  for (const auto& m : of_kind<CommRankRecord>(seen, RecordKind::kCommRank, "rank0.host"))
    members[m.group_rank] = m.rank;
  EXPECT_EQ(members, (std::map<uint32_t, uint64_t>{{0, 2}, {1, 0}}));
}

}  // namespace
}  // namespace ringscope
