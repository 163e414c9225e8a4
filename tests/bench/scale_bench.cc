// What a large trace costs: finishing, loading and analysing it, in rows per second of CPU time, and the peak of memory per row after
// loading and after the analysis. Two shapes: 80 layers of ring attention on 64 ranks over 128K tokens, and 1,024 ranks with 2,000 collective calls each. Each
// is also run at a quarter of its size: where cost is linear, the rates agree (ratio near 1).
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/bench/must.h"
#include "tools/analyze/analyze.h"
#include "tracedb/store/rows.h"
#include "tracedb/store/store.h"

using namespace ringscope;
using bench::die;
using bench::must;

namespace {

// Of this process's CPU time (all of it runs on one thread): other programs on the machine do not count.
double seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}

// VmRSS or VmHWM (its peak) of this process, in bytes.
int64_t memory(const char* field) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(field)) return std::atoll(line.c_str() + std::string(field).size() + 1) * 1024;
  return 0;
}
int64_t start_peak() {
  malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak starts anew
  return memory("VmRSS");
}

enum Names : uint32_t { kNone, kCompute, kTransfer, kAttention, kSend, kRecv, kReduce, kNames };

// Rows of one rank after the other, as a recorded run leaves them.
class Writer {
 public:
  explicit Writer(Store& store) : store_(store) {
    const char* names[kNames] = {"", "compute", "cp", "attn.block", "ring.send", "ring.recv", "grad.reduce"};
    for (uint32_t id = 1; id < kNames; ++id) must(store.string_id(names[id]));
    for (const char* meta : {"('outcome','completed')", "('tool_version','bench')", "('cp_layout','zigzag')"})
      must(store.exec(std::string("INSERT INTO meta VALUES") + meta));
  }
  ~Writer() { flush(); }

  void communicator(uint32_t id, Axis axis, const std::vector<int>& ranks) {
    must(store_.exec("INSERT INTO comm VALUES(" + std::to_string(id) + ",0," + std::to_string(int(axis)) + ",''," +
                     std::to_string(ranks.size()) + ")"));
    for (size_t at = 0; at < ranks.size(); ++at)
      must(store_.exec("INSERT INTO comm_rank VALUES(" + std::to_string(id) + "," + std::to_string(at) + "," +
                       std::to_string(ranks[at]) + ",NULL)"));
  }
  void rank(int rank, int tp, int cp, int cp_size) {
    rank_ = rank;
    issue_ = 0;
    ranks_.push_back({rank, tp, cp, 0, 0, 1, "host", 0, 1, cp_size, 1, 1});
    streams_.push_back({stream(0), rank, "compute"});
    streams_.push_back({stream(1), rank, "cp"});
    exits_.push_back({rank, 0, 1, "", {}});
  }
  uint64_t op(OpKind kind, uint32_t name, int lane, const Where& where) {
    OpRow row;
    row.rank = rank_;
    row.issue = ++issue_;
    row.op = uint64_t(rank_ + 1) << 40 | issue_;
    row.stream = stream(lane);
    row.name = name;
    row.kind = kind;
    row.state = OpState::kCompleted;
    row.where = where;
    row.enqueue_ns = row.start_ns = int64_t(issue_ * 1000);
    row.end_ns = row.start_ns + 900;
    ops_.push_back(row);
    return row.op;
  }
  void coll(uint32_t comm, uint64_t seq, const Where& where) {
    CollRow row;
    row.op_id = op(OpKind::kCollective, kReduce, 0, where);
    row.rank = rank_;
    row.issue = ++issue_;
    row.comm = comm;
    row.func = CollFunc::kAllReduce;
    row.dtype = DType::kF32;
    row.redop = RedOp::kSum;
    row.seq = seq;
    row.count = 1024;
    colls_.push_back(row);
    full();
  }
  uint64_t p2p(uint32_t comm, int peer, Direction direction, uint64_t seq, const Where& where) {
    P2pRow row;
    row.op_id = op(OpKind::kP2p, direction == Direction::kSend ? kSend : kRecv, 1, where);
    row.rank = rank_;
    row.issue = ++issue_;
    row.comm = comm;
    row.peer = peer;
    row.direction = direction;
    row.dtype = DType::kF32;
    row.seq = seq;
    row.bytes = 4096;
    row.count = 1024;
    p2ps_.push_back(row);
    return row.op_id;
  }
  void access(uint64_t op, uint64_t buffer, AccessMode mode) {
    accesses_.push_back({kNoRow, uint64_t(rank_) << 20 | buffer, 0, 4096, mode, rank_, ++issue_, op});
  }
  void sync(SyncKind kind, int lane, uint64_t key, const Where& where) {
    SyncRow row;
    row.rank = rank_;
    row.stream = stream(lane);
    row.kind = kind;
    row.issue = ++issue_;
    row.event = row.key = uint64_t(rank_) << 32 | key;
    row.where = where;
    syncs_.push_back(row);
  }
  void position(PositionRole role, uint32_t sample, uint32_t start, uint32_t count, const Where& where) {
    positions_.push_back(
        {rank_, where, role, start, count, start, 1, 0, sample, role == PositionRole::kData ? 0 : 1e4f});
    positions_.back().issue = ++issue_;
  }
  void full() {
    if (ops_.size() + accesses_.size() > 200'000) flush();
  }
  int64_t rows() const { return rows_; }

  void flush() {
    must(store_.begin());
    put(ranks_);
    put(streams_);
    put(exits_);
    put(ops_);
    put(colls_);
    put(p2ps_);
    put(accesses_);
    put(syncs_);
    put(positions_);
    must(store_.commit());
  }

 private:
  uint32_t stream(int lane) const { return uint32_t(rank_ * 2 + lane + 1); }
  template <class Row>
  void put(std::vector<Row>& rows) {
    must(append(store_, rows));
    rows_ += int64_t(rows.size());
    rows.clear();
  }

  Store& store_;
  int rank_ = 0;
  uint64_t issue_ = 0;
  int64_t rows_ = 0;
  std::vector<RankRow> ranks_;
  std::vector<StreamRow> streams_;
  std::vector<RankExitRow> exits_;
  std::vector<OpRow> ops_;
  std::vector<CollRow> colls_;
  std::vector<P2pRow> p2ps_;
  std::vector<AccessRow> accesses_;
  std::vector<SyncRow> syncs_;
  std::vector<PositionRunRow> positions_;
};

// 8 rings of 8 ranks. Sample s of the step covers 128K tokens, contiguous shards.
constexpr int kRings = 8, kRingSize = 8;
constexpr uint32_t kTokens = 128 * 1024;

void ring_pass(Writer& w, int self, uint32_t comm, uint64_t& key, uint64_t& seq, Where where) {
  for (int hop = 0; hop < kRingSize; ++hop) {
    where.ring_step = int16_t(hop);
    const uint64_t mine = uint64_t(hop % 2) + 1, next = 3 - mine;
    if (hop + 1 < kRingSize) {
      if (hop > 0) w.sync(SyncKind::kWait, 1, key, where);  // attention has read the buffer
      const uint64_t recv = w.p2p(comm, (self + kRingSize - 1) % kRingSize, Direction::kRecv, seq, where);
      w.access(recv, next, AccessMode::kWrite);
      const uint64_t send = w.p2p(comm, (self + 1) % kRingSize, Direction::kSend, seq++, where);
      w.access(send, mine, AccessMode::kRead);
      w.sync(SyncKind::kRecord, 1, ++key, where);
    }
    const uint64_t attention = w.op(OpKind::kKernel, kAttention, 0, where);
    w.access(attention, mine, AccessMode::kRead);
    if (hop + 1 < kRingSize) w.sync(SyncKind::kWait, 0, key, where);
    w.sync(SyncKind::kRecord, 0, ++key, where);
    w.full();
  }
  w.sync(SyncKind::kWait, 1, key, where);
}

int64_t rings(Store& store, int layers, int samples) {
  Writer w(store);
  for (int ring = 0; ring < kRings; ++ring) {
    std::vector<int> members;
    for (int cp = 0; cp < kRingSize; ++cp) members.push_back(cp * kRings + ring);
    w.communicator(uint32_t(ring + 1), Axis::kCp, members);
  }
  for (int rank = 0; rank < kRings * kRingSize; ++rank) {
    const int ring = rank % kRings, self = rank / kRings;
    w.rank(rank, ring, self, kRingSize);
    uint64_t key = 0, seq = 0;
    for (int sample = 0; sample < samples; ++sample) {
      Where where{0, -1, int16_t(sample), -1, Pass::kForward};
      const uint32_t shard = kTokens / kRingSize, start = uint32_t(self) * shard;
      w.position(PositionRole::kData, uint32_t(sample), start, shard, where);
      w.position(PositionRole::kRope, uint32_t(sample), start, shard, where);
      for (const Pass pass : {Pass::kForward, Pass::kBackward})
        for (int layer = 0; layer < layers; ++layer) {
          where.pass = pass;
          where.layer = int16_t(pass == Pass::kForward ? layer : layers - 1 - layer);
          ring_pass(w, self, uint32_t(ring + 1), key, seq, where);
        }
    }
  }
  w.flush();
  return w.rows();
}

int64_t calls(Store& store, int ranks, int per_rank) {
  Writer w(store);
  std::vector<int> world;
  for (int rank = 0; rank < ranks; ++rank) world.push_back(rank);
  w.communicator(1, Axis::kWorld, world);
  for (int rank = 0; rank < ranks; ++rank) {
    w.rank(rank, 0, 0, 1);
    for (int i = 0; i < per_rank; ++i) w.coll(1, uint64_t(i), {i / 100, int16_t(i % 100), 0, -1, Pass::kBackward});
  }
  w.flush();
  return w.rows();
}

struct Cost {
  double finish = 0, load = 0, analyze = 0;  // M rows/s
};

template <class Fill>
Cost measure(const char* what, const std::string& path, Fill fill) {
  Cost cost;
  int64_t rows = 0;
  const auto rate = [&](double from) { return 1e-6 * double(rows) / (seconds() - from); };
  {
    Store store = must(Store::create(path));
    rows = fill(store);
    const double from = seconds();
    must(store.finish());
    cost.finish = rate(from);
  }
  const Store store = must(Store::open(path));
  const int64_t before = start_peak();
  double from = seconds();
  const TraceView view = must(load_view(store));
  cost.load = rate(from);
  const double loaded = double(memory("VmHWM") - before) / double(rows);
  from = seconds();
  const Report report = analyze(view);
  cost.analyze = rate(from);
  if (!report.findings.empty()) die(std::string(what) + ": a clean trace got " + report.findings[0].id);
  std::printf("%-34s %6.2f M rows   finish %5.2f   load %5.2f   analyze %5.2f M rows/s   peak bytes/row: %.0f, %.0f\n",
              what, 1e-6 * double(rows), cost.finish, cost.load, cost.analyze, loaded,
              double(memory("VmHWM") - before) / double(rows));
  std::filesystem::remove(path);
  return cost;
}

void compare(const Cost& small, const Cost& large) {
  std::printf("   rate of the large one / a quarter of it: finish %.2f, load %.2f, analyze %.2f\n",
              large.finish / small.finish, large.load / small.load, large.analyze / small.analyze);
}

}  // namespace

int main() {
  std::string folder = (std::filesystem::temp_directory_path() / "scale-bench-XXXXXX").string();
  if (!mkdtemp(folder.data())) return 1;
  const std::string path = folder + "/t.db";
  const Cost few = measure("rings, 20 layers x 64 ranks", path, [](Store& s) { return rings(s, 20, 4); });
  compare(few, measure("rings, 80 layers x 128K x 64 ranks", path, [](Store& s) { return rings(s, 80, 4); }));
  measure("the same, 16 microbatches", path, [](Store& s) { return rings(s, 20, 16); });
  const Cost half = measure("calls, 1,024 ranks x 500", path, [](Store& s) { return calls(s, 1024, 500); });
  compare(half, measure("calls, 1,024 ranks x 2,000", path, [](Store& s) { return calls(s, 1024, 2000); }));
  measure("calls, 256 ranks x 2,000", path, [](Store& s) { return calls(s, 256, 2000); });
  std::filesystem::remove_all(folder);
}
