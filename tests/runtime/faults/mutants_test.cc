// What every mutation does to a job, read from the recording of it beside that of the same job without.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/sweep/recorded_run.h"

namespace ringscope {
namespace {

using testing::record_and_analyze;
using testing::RecordedRun;

JobConfig job(int tp, int cp, int dp, std::initializer_list<std::string_view> mutations = {}) {
  JobConfig c;
  c.tp = tp, c.cp = cp, c.dp = dp;
  c.sequence_parallel = tp > 1;
  c.model.num_layers = 2;
  c.model.hidden_size = 16;
  c.model.num_attention_heads = 2;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 16;
  c.seq_length = 32;
  c.global_batch_size = dp;
  c.train_iters = 3;
  c.dtype = DType::kF64;
  c.turns = true;
  for (std::string_view text : mutations) c.mutations.push_back(*parse_mutation(text));
  return c;
}

RecordedRun run(const JobConfig& config) {
  RecordedRun out = record_and_analyze(config);
  EXPECT_EQ(out.error, "");
  return out;
}
const RecordedRun& clean_ring() {
  static const RecordedRun kRun = run(job(1, 4, 1));
  return kRun;
}
RecordedRun ring(std::initializer_list<std::string_view> mutations) { return run(job(1, 4, 1, mutations)); }

// Rows of one rank and step, of a name, in program order.
std::vector<const OpRow*> ops(const TraceView& view, int rank, std::string_view name, int step = 1) {
  std::vector<const OpRow*> out;
  for (const OpRow& op : view.ops)
    if (op.rank == rank && view.text(op.name) == name && op.where.step == step) out.push_back(&op);
  return out;
}
const CollRow& coll(const TraceView& view, const OpRow& op) { return view.colls.at(op.coll); }
std::vector<const SyncRow*> syncs(const TraceView& view, int rank, std::string_view name, SyncKind kind) {
  std::vector<const SyncRow*> out;
  for (const SyncRow& sync : view.syncs)
    if (sync.rank == rank && view.text(sync.name) == name && sync.kind == kind && sync.where.step == 1)
      out.push_back(&sync);
  return out;
}
std::vector<double> losses(const RecordedRun& run) {
  std::vector<double> out;
  for (const StepReport& step : run.result.steps) out.insert(out.end(), {step.loss, step.grad_norm});
  return out;
}

TEST(Sites, AreWhatARunRecordsStatisticsApart) {
  for (CpComm method : {CpComm::kP2p, CpComm::kAllGather, CpComm::kGlobalSoftmax}) {
    JobConfig config = job(2, 2, 2);
    config.cp_comm = method;
    const RecordedRun recorded = run(config);
    std::map<std::pair<int, std::string>, int> listed, seen;
    const SiteTable sites = *list_sites(config);
    ASSERT_EQ(sites.size(), 8u);
    for (const auto& of_rank : sites)
      for (size_t i = 0; i < of_rank.size(); ++i) {
        EXPECT_EQ(of_rank[i].index, i);
        if (of_rank[i].kind == SiteKind::kCall || of_rank[i].kind == SiteKind::kKernel)
          ++listed[{of_rank[i].rank, of_rank[i].name}];
      }
    for (const OpRow& op : recorded.view.ops) {
      const std::string name(recorded.view.text(op.name));
      const bool site = op.kind == OpKind::kKernel || op.kind == OpKind::kCollective || op.kind == OpKind::kP2p;
      if (site && !name.starts_with("statistics.")) ++seen[{op.rank, name}];
    }
    EXPECT_EQ(listed, seen);
  }
}

TEST(Mutants, NothingChangesWhatIsNotNamed) {
  const RecordedRun still = ring({"pause=0.000001@flash_forward:rank=2,step=1,n=0"});
  EXPECT_EQ(losses(still), losses(clean_ring()));
  EXPECT_EQ(still.view.ops.size(), clean_ring().view.ops.size());
  EXPECT_EQ(still.view.syncs.size(), clean_ring().view.syncs.size());
  EXPECT_TRUE(still.report.findings.empty());
}

TEST(Mutants, CallsAreDroppedDoubledAndSwapped) {
  EXPECT_EQ(ops(clean_ring().view, 1, "grad.weight_cp").size(), 4u);
  EXPECT_EQ(ops(ring({"drop@grad.weight_cp:rank=1,step=1,n=0"}).view, 1, "grad.weight_cp").size(), 3u);
  EXPECT_EQ(ops(ring({"twice@grad.weight_cp:rank=1,step=1,n=0"}).view, 1, "grad.weight_cp").size(), 5u);
  // Layers in the order of their calls: the first two change places.
  const auto layers = [](const RecordedRun& r) {
    std::vector<int> out;
    for (const OpRow* op : ops(r.view, 1, "grad.weight_cp")) out.push_back(int(coll(r.view, *op).count));
    return out;
  };
  std::vector<int> swapped = layers(clean_ring());
  size_t first = 0;
  while (swapped[first] == swapped[first + 1]) ++first;
  std::swap(swapped[first], swapped[first + 1]);
  EXPECT_EQ(layers(ring({"swap@grad.weight_cp:rank=1,step=1,n=" + std::to_string(first)})), swapped);
}

TEST(Mutants, CallsAskForSomethingElse) {
  const auto changed = [&](const char* text) {
    RecordedRun r = ring({text});
    const auto found = ops(r.view, 2, "grad.weight_cp");
    return std::pair{coll(r.view, *found.at(0)),
                     coll(clean_ring().view, *ops(clean_ring().view, 2, "grad.weight_cp")[0])};
  };
  auto [func, as_before] = changed("func=broadcast@grad.weight_cp:rank=2,step=1,n=0");
  EXPECT_EQ(func.func, CollFunc::kBroadcast);
  EXPECT_EQ(func.root, 0);
  EXPECT_EQ(changed("count=half@grad.weight_cp:rank=2,step=1,n=0").first.count, as_before.count / 2);
  EXPECT_EQ(changed("count=3@grad.weight_cp:rank=2,step=1,n=0").first.count, 3u);
  const auto [dtype, before] = changed("dtype=fp32@grad.weight_cp:rank=2,step=1,n=0");
  EXPECT_EQ(dtype.dtype, DType::kF32);
  EXPECT_EQ(dtype.count, 2 * before.count);
  EXPECT_EQ(changed("redop=max@grad.weight_cp:rank=2,step=1,n=0").first.redop, RedOp::kMax);
}

TEST(Mutants, TransfersGoElsewhere) {
  const RecordedRun peer = ring({"peer=0@ring.kv_send:rank=2,step=1,n=0"});
  EXPECT_EQ(peer.view.p2ps.at(ops(peer.view, 2, "ring.kv_send")[0]->p2p).peer, 0);
  const RecordedRun other = ring({"func=recv@ring.kv_send:rank=2,step=1,n=0"});
  EXPECT_EQ(other.view.p2ps.at(ops(other.view, 2, "ring.kv_send")[0]->p2p).direction, Direction::kRecv);
  const RecordedRun apart = ring({"split@ring.kv_send:rank=2,step=1,n=0"});
  EXPECT_EQ(ops(apart.view, 2, "ring.kv_send")[0]->group, 0u);
  EXPECT_NE(ops(clean_ring().view, 2, "ring.kv_send")[0]->group, 0u);
  EXPECT_EQ(losses(apart), losses(clean_ring()));
  const RecordedRun comm = run(job(2, 2, 1, {"comm=tp@grad.weight_cp:rank=1,step=1,n=0"}));
  const TraceView& view = comm.view;
  const uint32_t on = coll(view, *ops(view, 1, "grad.weight_cp")[0]).comm;
  for (const CommRow& row : view.comms) {
    EXPECT_TRUE(row.comm != on || row.axis == Axis::kTp);
  }
}

TEST(Mutants, RecordsAndWaits) {
  const auto keys = [](const RecordedRun& r, SyncKind kind) {
    std::vector<uint64_t> out;
    for (const SyncRow* s : syncs(r.view, 1, "ring.recv_done", kind)) out.push_back(s->key);
    return out;
  };
  const size_t waits = keys(clean_ring(), SyncKind::kWait).size();
  ASSERT_GE(waits, 4u);
  EXPECT_EQ(keys(ring({"drop@ring.recv_done:rank=1,step=1,n=1,kind=wait"}), SyncKind::kWait).size(), waits - 1);
  const RecordedRun never = ring({"never@ring.recv_done:rank=1,step=1,n=1"});
  EXPECT_EQ(keys(never, SyncKind::kRecord).size(), waits - 1);
  EXPECT_EQ(keys(never, SyncKind::kWait)[1], 0u);
  const RecordedRun stale = ring({"stale@ring.recv_done:rank=1,step=1,n=1,kind=record"});
  EXPECT_EQ(keys(stale, SyncKind::kRecord).size(), waits - 1);
  EXPECT_EQ(keys(stale, SyncKind::kWait)[1], keys(stale, SyncKind::kWait)[0]);
  const RecordedRun previous = ring({"stale@ring.recv_done:rank=1,step=1,n=1,kind=wait"});
  EXPECT_EQ(keys(previous, SyncKind::kRecord).size(), waits);
  EXPECT_EQ(keys(previous, SyncKind::kWait)[1], keys(previous, SyncKind::kRecord)[0]);
  const RecordedRun stream = ring({"stream=dp@ring.recv_done:rank=1,step=1,n=1,kind=wait"});
  const auto moved = syncs(stream.view, 1, "ring.recv_done", SyncKind::kWait);
  EXPECT_NE(moved[1]->stream, moved[0]->stream);
  // Early: the record stands in front of the hop that it should follow.
  const auto behind_hop = [](const RecordedRun& r) {
    return syncs(r.view, 1, "ring.recv_done", SyncKind::kRecord)[1]->issue > ops(r.view, 1, "ring.kv_recv")[1]->issue;
  };
  EXPECT_TRUE(behind_hop(clean_ring()));
  EXPECT_FALSE(behind_hop(ring({"early@ring.recv_done:rank=1,step=1,n=1"})));
}

TEST(Mutants, KernelsAndTheirOutput) {
  EXPECT_EQ(ops(ring({"drop@swiglu:rank=1,step=1,n=0"}).view, 1, "swiglu").size(), 1u);
  EXPECT_EQ(ops(ring({"twice@swiglu:rank=1,step=1,n=0"}).view, 1, "swiglu").size(), 3u);
  EXPECT_EQ(losses(ring({"twice@swiglu:rank=1,step=1,n=0"})), losses(clean_ring()));  // writes all it writes again
  EXPECT_EQ(losses(ring({"scale=1@flash_forward"})), losses(clean_ring()));
  for (const char* text : {"scale=0.5@lse_merge:rank=1,step=1,n=0", "shift=0.1@swiglu:rank=1,step=1,n=0",
                           "zero@linear.dw:rank=1,step=1,n=0", "nan@linear.dw:rank=1,step=1,n=0",
                           "previous@swiglu:rank=1,step=1,n=0", "input@lse_merge:rank=1,step=1,n=0"}) {
    const RecordedRun mutant = ring({text});
    EXPECT_EQ(mutant.result.end, RunEnd::kCompleted) << text;
    EXPECT_EQ(losses(mutant)[0], losses(clean_ring())[0]) << text;  // the step before it
    EXPECT_NE(losses(mutant), losses(clean_ring())) << text;
  }
}

// A sample of what a dropped kernel would have written is no observation: it goes with the kernel.
TEST(Mutants, StatisticsOfADroppedKernelGoWithIt) {
  const RecordedRun mutant = ring({"drop@flash_forward:rank=1,step=1,layer=0,ring_step=1"});
  const auto taken = [](const RecordedRun& r) { return ops(r.view, 1, "statistics.softmax").size(); };
  EXPECT_LT(taken(mutant), taken(clean_ring()));
}

TEST(Mutants, UploadsTakeOtherRows) {
  const auto applied = [](const RecordedRun& r, int rank) {
    std::vector<std::pair<int, int>> runs;  // (row, position)
    for (const PositionRunRow& row : r.view.position_runs)
      if (row.rank == rank && row.role == PositionRole::kRope && row.where.step == 1)
        for (uint32_t i = 0; i < row.count; ++i) runs.emplace_back(row.token_start + i, row.pos_start + i);
    std::sort(runs.begin(), runs.end());
    std::vector<int> positions;
    for (const auto& run : runs) positions.push_back(run.second);
    return positions;
  };
  using Positions = std::vector<int>;  // rank 1 of 4, zigzag: rows 4-7 and 24-27
  EXPECT_EQ(applied(clean_ring(), 1), Positions({4, 5, 6, 7, 24, 25, 26, 27}));
  EXPECT_EQ(applied(ring({"offset=2@batch.position:rank=1"}), 1), Positions({6, 7, 8, 9, 26, 27, 28, 29}));
  EXPECT_EQ(applied(ring({"offset=-5@batch.position:rank=1"}), 1), Positions({0, 0, 1, 2, 19, 20, 21, 22}));
  EXPECT_EQ(applied(ring({"next_rank@batch.position:rank=1"}), 1), Positions({8, 9, 10, 11, 20, 21, 22, 23}));
  EXPECT_EQ(applied(ring({"restart@batch.position:rank=1"}), 1), Positions({0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(applied(ring({"halves@batch.position:rank=1"}), 1), Positions({24, 25, 26, 27, 4, 5, 6, 7}));
  EXPECT_EQ(applied(ring({"layout=contiguous@batch.position:rank=1"}), 1), Positions({8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(applied(ring({"duplicate@batch.position:rank=1"}), 1), Positions({4, 5, 6, 7, 7, 25, 26, 27}));
  EXPECT_NE(losses(ring({"next_rank@batch.labels:rank=1"})), losses(clean_ring()));
  EXPECT_NE(losses(ring({"offset=1@batch.row:rank=1,n=0"})), losses(clean_ring()));
}

TEST(Mutants, ProgramsEndAndStop) {
  const auto last_issue = [](const RecordedRun& r, int rank) {
    std::string name;
    for (const OpRow& op : r.view.ops)
      if (op.rank == rank) name = r.view.text(op.name);
    return name;
  };
  const auto exits = [](const RecordedRun& r, int rank) {
    std::vector<int64_t> out;
    for (const RankExitRow& row : r.view.rank_exits)
      if (row.rank == rank) out.push_back(row.status);
    return out;
  };
  using Statuses = std::vector<int64_t>;
  const RecordedRun exited = ring({"exit@swiglu:rank=1,step=1,n=1"});
  EXPECT_EQ(exited.result.end, RunEnd::kStalled);
  EXPECT_EQ(exits(exited, 1), Statuses({1}));
  EXPECT_EQ(ops(exited.view, 1, "swiglu").size(), 1u);
  EXPECT_EQ(ops(exited.view, 1, "swiglu", 2).size(), 0u);
  EXPECT_EQ(ops(exited.view, 1, "grad.weight_cp").size(), 0u);
  const RecordedRun killed = ring({"kill@swiglu:rank=1,step=1,n=1"});
  EXPECT_EQ(exits(killed, 1), Statuses());
  EXPECT_EQ(last_issue(killed, 1), last_issue(exited, 1));
  const RecordedRun silent = ring({"hang@swiglu:rank=1,step=1,n=1"});
  EXPECT_EQ(silent.result.end, RunEnd::kStalled);
  EXPECT_FALSE(silent.stall_by_time);
  EXPECT_EQ(exits(silent, 1), Statuses({-2}));
  EXPECT_EQ(ops(silent.view, 1, "swiglu").size(), 1u);
}

// A rank that ends or stops before its communicators are there leaves the others waiting for it.
TEST(Mutants, CreationsOfCommunicators) {
  EXPECT_EQ(run(job(2, 2, 1, {"swap@comm_init:rank=1+2,n=0"})).result.end, RunEnd::kStalled);
  EXPECT_EQ(run(job(2, 2, 1, {"swap@comm_init"})).result.end, RunEnd::kCompleted);
  for (const char* text : {"exit@comm_init:rank=1,n=1", "kill@comm_init:rank=1", "hang@comm_init:rank=1,n=1"})
    EXPECT_EQ(run(job(2, 2, 1, {text})).result.end, RunEnd::kStalled) << text;
}

TEST(Mutants, AreTheSameEveryTime) {
  const auto mutant = [] { return ring({"scale=0.9@flash_forward:rank=1", "twice@linear.dw:rank=2"}); };
  const RecordedRun once = mutant(), again = mutant();
  EXPECT_EQ(losses(once), losses(again));
  EXPECT_EQ(once.view.ops.size(), again.view.ops.size());
}

TEST(Refusals, NameWhatWouldMatch) {
  const auto refused = [](std::string_view text, int tp = 1, int cp = 4) {
    const auto result = train(job(tp, cp, 1, {text}), {});
    return result ? "accepted" : result.error().message;
  };
  const auto says = [&](std::string_view text, std::string_view part) {
    EXPECT_NE(refused(text).find(part), std::string::npos) << text << ": " << refused(text);
  };
  says("drop@flash_froward", "did you mean 'flash_forward'");
  says("drop@batch.position:rank=9",
       "there are 12 sites of that name at other places, the first is kernel batch.position");
  says("scale=2@ring.kv_send", "ring.kv_send is a call, and scale does not act on one");
  says("scale=2@batch.position", "writes no floating numbers");
  says("peer=7@ring.kv_send:rank=1", "peer 7 does not exist: the group has 4 ranks");
  says("peer=1@ring.kv_send:rank=1", "is the rank itself");
  says("peer=2@grad.weight_cp", "the call has no peer");
  says("comm=tp@grad.weight_cp", "the job has no tp communicator");
  says("count=1000000@grad.weight_cp", "do not fit");
  says("redop=sum@grad.weight_cp", "reduces by sum already");
  says("redop=max@ring.kv_send", "reduces nothing");
  says("dtype=int32@grad.weight_cp", "reductions are of fp32 or fp64");
  says("split@grad.weight_cp", "in no group");
  says("swap@loss.count_cp:step=1", "stands between it and the next call");
  says("swap@comm_init", "no communicator is created behind it");
  says("stale@ring.recv_done:kind=record,step=0,n=0", "was not recorded before");
  says("previous@flash_forward:step=0,n=0", "did not run before");
  says("input@grad.zero", "no input like its output");
  says("layout=zigzag@batch.position", "zigzag already");
  says("early@loss.count_cp:step=0,n=1", "accepted");
  EXPECT_EQ(refused("offset=0@batch.labels"),
            "mutation 'offset=0@batch.labels' cannot be applied: an offset of 0 changes nothing at "
            "upload batch.labels (rank 0, step 2, microbatch 0)");
}

}  // namespace
}  // namespace ringscope
