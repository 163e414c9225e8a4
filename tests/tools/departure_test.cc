// Who departed, when nothing but the calls themselves can tell: no plan, no place, no axis, no name; and who did not,
// although labels, declared orders or the time of an exit seem to say so.
#include <gtest/gtest.h>

#include "tests/support/train_program.h"
#include "tests/support/verdict.h"
#include "tools/analyze/analyze.h"
#include "tools/analyze/hang/components.h"
#include "tools/analyze/hang/history.h"
#include "tools/analyze/index.h"

namespace ringscope {
namespace {

using testing::build;
using testing::Job;
using testing::kCompute;
using testing::kCp;
using testing::kDp;
using testing::keep_ops;
using testing::roots;
using testing::TraceBuilder;

std::string said(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings)
    text += (f.root ? "" : "(") + f.id + (f.root ? " " : ") ") + f.sentence + "\n";
  return text;
}

void expect_root(const TraceView& view, const std::string& id, const std::vector<int>& ranks) {
  const Report report = analyze(view);
  const std::vector<Finding> found = roots(report);
  ASSERT_EQ(found.size(), 1u) << said(report);
  EXPECT_EQ(found[0].id, id) << said(report);
  EXPECT_EQ(found[0].ranks, ranks) << said(report);
}

auto at(int rank, int step, int layer = -1) {
  return [=](int r, const Where& w) { return r == rank && w.step == step && (layer < 0 || w.layer == layer); };
}

// What a stranger's recording of the same job would hold: calls, states, times.
TraceView calls_only(TraceView view) {
  keep_ops(view, [](const OpRow& op) { return is_comm(op); });
  for (OpRow& op : view.ops) op.name = 0, op.where = {};
  for (CommRow& comm : view.comms) comm.axis = Axis::kUnknown, comm.name.clear();
  for (RankExitRow& exit : view.rank_exits) exit.where = {};
  view.syncs.clear(), view.accesses.clear(), view.buffers.clear(), view.ranks.clear(), view.streams.clear();
  return view;
}

// ---- the calls decide

TEST(Departure, CallsAloneNameTheRank) {
  for (Job job : {Job{1, 2, 1}, Job{1, 4, 1}, Job{2, 2, 2}}) {
    job.steps = 3;
    Job skip = job, other = job, twice = job, extra = job;
    skip.wrong.skip_weight_cp = at(1, 2, 0);
    other.wrong.other_op_cp = at(1, 2, 1);
    twice.wrong.twice_cp = at(1, 2, 1);
    extra.wrong.extra_cp = at(1, 2, 0);
    expect_root(calls_only(build(skip).finish()), "hang.missing_rank", {1});
    expect_root(calls_only(build(other).finish()), "hang.op_mismatch", {1});
    expect_root(calls_only(build(twice).finish()), "hang.op_mismatch", {1});
    expect_root(calls_only(build(extra).finish()), "hang.op_mismatch", {1});
  }
}

TEST(Departure, TransfersAloneNameTheHop) {
  for (Job job : {Job{1, 4, 1}, Job{1, 3, 2}, Job{1, 2, 1}}) {
    job.steps = 3;
    job.wrong.leave_ring_early = at(1, 2, 0);
    const TraceView view = calls_only(build(job).finish());
    expect_root(view, "hang.ring_break", {1});
    EXPECT_NE(analyze(view).findings[0].sentence.find("hop 1->"), std::string::npos);
  }
}

TEST(Departure, ARingThatARankTurnsRoundHasAWrongNeighbour) {
  Job job{1, 4, 1, 3};
  job.wrong.turn_ring = at(2, 1, 1);
  const TraceView view = build(job).finish();
  expect_root(view, "ring.wrong_neighbour", {2});
  expect_root(calls_only(view), "ring.wrong_neighbour", {2});
  const Finding f = analyze(view).findings[0];
  EXPECT_EQ(f.where.layer, 1);
  EXPECT_EQ(f.where.ring_step, 0);
  EXPECT_NE(f.sentence.find("rank 2 sends to rank 1"), std::string::npos) << f.sentence;
}

// One mistake of a whole axis: every group of it shows the same, and none of them is a witness for another.
TEST(Departure, CopiesOfAMistakeAreNoWitnesses) {
  Job job{2, 2, 1, 3};
  job.wrong.twice_cp = [](int r, const Where& w) { return (r == 2 || r == 3) && w.step == 1 && w.layer == 1; };
  expect_root(build(job).finish(), "hang.op_mismatch", {2, 3});
  expect_root(calls_only(build(job).finish()), "hang.op_mismatch", {2, 3});
}

// In its groups of two nobody has a majority, and the calls of the layers are equal; the rank is one and the same.
TEST(Departure, ALayerLeftOutIsOneMistake) {
  Job job{2, 2, 1, 3};
  job.wrong.skip_layer = [](int r, const Where& w) { return r == 1 && w.step == 1 && w.layer == 0; };
  const Report report = analyze(build(job).finish());
  ASSERT_EQ(roots(report).size(), 1u) << said(report);
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1}) << said(report);
}

// A call that continues what the group did before is right, majority or not.
TEST(Departure, ThePeriodOverrulesAMajority) {
  Job job{1, 4, 1, 3};
  job.wrong.skip_weight_cp = [](int r, const Where& w) { return r != 2 && w.step == 2 && w.layer == 0; };
  expect_root(build(job).finish(), "hang.missing_rank", {0, 1, 3});
}

TEST(Departure, TwoCampsWithoutAPastAreShownAndNobodyIsAccused) {
  Job job{1, 2, 1, 1};
  job.wrong.skip_weight_cp = at(1, 0, 0);
  job.layers = 3;
  TraceView view = calls_only(build(job).finish());
  const Report report = analyze(view);
  for (const Finding& f : roots(report)) EXPECT_TRUE(f.ranks.empty()) << said(report);
  EXPECT_NE(report.verdict, Verdict::kClean);
}

// One more call as the last of the run: its arguments are those of the call that a next step would begin with, its
// name is new.
TEST(Departure, AnExtraLastCallIsNotTheBeginningOfAStep) {
  Job job{1, 4, 1, 4};
  job.wrong.extra_last = [](int r, const Where&) { return r == 2; };
  TraceBuilder trace = build(job);
  for (int rank : {0, 1, 3}) trace.raw().rank_exits.push_back({rank, 0, 0, "completed", {}});
  expect_root(trace.finish(), "hang.op_mismatch", {2});
}

// One batch more than the others, with the same calls: those who left are accused, although they are more.
TEST(Departure, UnevenBatchesAccuseThoseWhoLeft) {
  TraceBuilder trace(1, 3, 1);
  for (int rank = 0; rank < 3; ++rank)
    for (int batch = 0; batch < (rank == 0 ? 5 : 4); ++batch)
      for (uint64_t count : {64, 96}) trace.coll(rank, kCompute, Axis::kCp, CollFunc::kAllReduce, "grad", {}, count);
  for (int rank : {1, 2}) trace.raw().rank_exits.push_back({rank, 0, 0, "completed", {}});
  expect_root(trace.finish(), "hang.missing_rank", {1, 2});
}

// ---- labels accuse nobody

TEST(Departure, AnotherNameOrPlaceOnTheSameCallIsNothing) {
  Job job{1, 4, 1, 3};
  job.wrong.other_name_cp = at(1, 1, 0);
  TraceView view = build(job).finish();
  EXPECT_EQ(said(analyze(view)), "");
  for (OpRow& op : view.ops)
    if (op.rank == 2 && op.where.step == 1 && op.where.layer == 1) op.where.layer = 7;
  EXPECT_EQ(said(analyze(view)), "");
}

TEST(Departure, AReductionOrCountThatDiffersIsOne) {
  TraceView view = build({1, 4, 1, 3}).finish();
  for (CollRow& coll : view.colls)
    if (view.ops[coll.op].rank == 3 && coll.seq == 5) coll.redop = RedOp::kMax;
  expect_root(view, "hang.arg_mismatch", {3});
}

// The code of most ranks may be wrong: what the group did before, at this place, outweighs how many do it now.
TEST(Departure, ThePastOutweighsAMajority) {
  TraceView view = build({1, 4, 1, 3}).finish();
  uint64_t last = 0;
  for (const CollRow& coll : view.colls) last = std::max(last, coll.seq);
  for (CollRow& coll : view.colls)
    if (view.ops[coll.op].rank != 3 && coll.seq == last) coll.count /= 2;
  expect_root(view, "hang.arg_mismatch", {0, 1, 2});
}

TEST(Departure, TheSameCallsInAnotherOrder) {
  TraceView view = build({1, 4, 1, 3}).finish();
  for (CollRow& coll : view.colls) {  // two calls that tell each other apart, at two numbers
    if (coll.seq == 5) coll.count = view.ops[coll.op].rank == 2 ? 77 : 33;
    if (coll.seq == 6) coll.count = view.ops[coll.op].rank == 2 ? 33 : 77;
  }
  expect_root(view, "hang.order_swap", {2});
}

// ---- the order that the job showed

Job crossed(int tp, int cp, int dp, std::function<bool(int, const Where&)> at) {
  Job job{tp, cp, dp, 3};
  job.wrong.cp_before_tp = std::move(at);
  return job;
}
bool diagonal(int rank) { return rank % 4 == 0 || rank % 4 == 3; }

TEST(Departure, AnOrderIsNotDeclaredByLabels) {
  for (int dp : {1, 2}) {
    const Job job = crossed(2, 2, dp, [](int r, const Where& w) { return diagonal(r) && w.step == 1; });
    TraceView view = build(job).finish();
    const std::vector<int> departed = dp == 1 ? std::vector<int>{0, 3} : std::vector<int>{0, 3, 4, 7};
    expect_root(view, "hang.cross_group_cycle", departed);
    expect_root(calls_only(view), "hang.cross_group_cycle", departed);
    for (CommRow& comm : view.comms)
      comm.axis = comm.axis == Axis::kTp ? Axis::kCp : comm.axis == Axis::kCp ? Axis::kTp : comm.axis;
    expect_root(view, "hang.cross_group_cycle", departed);
  }
}

TEST(Departure, TheMajorityOfTheJobOverrulesTheCircle) {
  // All but the diagonal of the first replica reduce over CP first.
  const Job job = crossed(2, 2, 2, [](int r, const Where& w) { return w.step == 0 && r != 0 && r != 3; });
  expect_root(build(job).finish(), "hang.cross_group_cycle", {0, 3});
}

TEST(Departure, EqualCampsWithoutAPastAreAllInTheCircle) {
  const Job job = crossed(2, 2, 1, [](int r, const Where& w) { return diagonal(r) && w.step == 0; });
  expect_root(calls_only(build(job).finish()), "hang.cross_group_cycle", {0, 1, 2, 3});
}

// Operations that no schedule can run are a hang, whoever declares one.
TEST(Departure, ACircleNeedsNoDeclaredStall) {
  const Job job = crossed(2, 2, 1, [](int r, const Where& w) { return diagonal(r) && w.step == 1; });
  TraceView view = build(job).finish("");
  view.rank_exits.clear();
  expect_root(view, "hang.cross_group_cycle", {0, 3});
}

// ---- what a dead rank was doing

TEST(Departure, AWatchdogsAbortFollowsFromTheHang) {
  const Job job = crossed(2, 2, 1, [](int r, const Where& w) { return diagonal(r) && w.step == 1; });
  for (const std::vector<int>& aborted : {std::vector<int>{1}, std::vector<int>{0, 1, 2, 3}}) {
    TraceBuilder trace = build(job);
    for (int rank : aborted) trace.raw().rank_exits.push_back({rank, 134, 1'000'000'000, "watchdog", {}});
    const Report report = analyze(trace.finish());
    ASSERT_EQ(roots(report).size(), 1u) << said(report);
    EXPECT_EQ(report.findings[0].id, "hang.cross_group_cycle") << said(report);
    EXPECT_EQ(report.findings.size(), 1 + aborted.size());
    for (size_t i = 1; i < report.findings.size(); ++i) {
      EXPECT_EQ(report.findings[i].id, "hang.dead_rank");
      EXPECT_EQ(report.findings[i].caused_by, 0);
    }
  }
}

TEST(Departure, WhoeverWaitedFirstADeadRankThatWasFreeIsTheRoot) {
  for (int64_t status : {int64_t(1), int64_t(137), int64_t(-9)})
    for (int64_t when : {int64_t(1), int64_t(1) << 60}) {
      Job job{1, 4, 1, 3};
      job.wrong.exit = [](int r, const Where& w) { return r == 2 && w.step == 1; };
      TraceView view = build(job).finish();
      for (RankExitRow& exit : view.rank_exits)
        if (exit.rank == 2) exit.status = status, exit.time_ns = when;
      expect_root(view, "hang.dead_rank", {2});
      if (status != 1) {
        EXPECT_NE(analyze(view).findings[0].sentence.find("signal 9"), std::string::npos);
      }
    }
}

// Every other rank was found alive or its end was written: the one without a line is gone. Without the launcher's lines
// nothing tells.
TEST(Departure, NoExitRowIsNoEvidenceOfLife) {
  Job job{1, 4, 1, 3};
  job.wrong.exit = [](int r, const Where& w) { return r == 2 && w.step == 1; };
  TraceView view = build(job).finish();
  std::erase_if(view.rank_exits, [](const RankExitRow& exit) { return exit.rank == 2; });
  expect_root(view, "hang.dead_rank", {2});
  view.lost.push_back({.rank = -1, .records = 1});
  EXPECT_EQ(analyze(view).verdict, Verdict::kUndecided) << said(analyze(view));
  view.lost.clear();
  view.rank_exits.clear();
  EXPECT_EQ(analyze(view).verdict, Verdict::kUndecided) << said(analyze(view));
}

// ---- one snapshot holds no time of its own

TraceView snapshot(int called) {  // of four ranks that many called the last all-reduce
  TraceBuilder trace(1, 4, 1);
  for (int rank = 0; rank < 4; ++rank)
    for (int i = 0; i < (rank < called ? 4 : 3); ++i)
      trace.coll(rank, kCompute, Axis::kCp, CollFunc::kAllReduce, "grad", {}, 64);
  TraceView view = trace.finish("");
  view.meta[meta_key::kSnapshot] = "1";
  return view;
}

TEST(Snapshot, OneIdleRankIsAWarningSeveralAreARunningJob) {
  const Report one = analyze(snapshot(3));
  ASSERT_EQ(roots(one).size(), 1u) << said(one);
  EXPECT_EQ(one.findings[0].id, "hang.missing_rank");
  EXPECT_EQ(one.findings[0].ranks, std::vector<int>{3});
  EXPECT_EQ(one.findings[0].severity, Severity::kWarning);
  EXPECT_NE(one.findings[0].sentence.find("has not called"), std::string::npos);
  EXPECT_EQ(said(analyze(snapshot(2))), "");
  EXPECT_EQ(said(analyze(snapshot(4))), "");
}

// ---- several host threads

// Two threads take turns in issuing on two groups; their rows interleave by time, differently on every rank.
TEST(Threads, OrderBetweenThreadsProvesNothing) {
  TraceBuilder trace(2, 2, 1);
  for (int rank = 0; rank < 4; ++rank)
    for (int step = 0; step < 3; ++step)
      for (int half = 0; half < 2; ++half) {
        const bool forward = (half == 0) == diagonal(rank);
        trace.on_thread(forward ? 0 : 1);
        trace.coll(rank, forward ? kCompute : kDp, forward ? Axis::kTp : Axis::kCp, CollFunc::kAllReduce, "x", {}, 64);
      }
  TraceView view = trace.finish();
  EXPECT_EQ(view.meta.at(meta_key::kOutcome), "completed");
  EXPECT_EQ(said(analyze(view)), "");
  // Enqueued on one stream by two threads and started by neither: no order, so no circle.
  for (OpRow& op : view.ops) op.stream = uint32_t(op.rank), op.state = OpState::kScheduled;
  view.meta[meta_key::kOutcome] = "stalled";
  EXPECT_EQ(roots(analyze(view))[0].id, "hang.undecided") << said(analyze(view));
}

TEST(Threads, ACommunicatorThatTwoThreadsUseHasItsOwnSequence) {
  TraceBuilder trace(1, 2, 1);
  for (int rank = 0; rank < 2; ++rank)
    for (int i = 0; i < 12; ++i) {
      trace.on_thread(uint16_t(i % 2));
      if (rank == 1 && i == 9) continue;
      trace.coll(rank, kCompute, Axis::kCp, CollFunc::kAllReduce, "x", {}, uint64_t(64 + i % 3));
    }
  expect_root(trace.finish(), "hang.missing_rank", {1});
}

TEST(Threads, ARaceIsReportedWhereOneThreadIssuedBoth) {
  for (bool one_thread : {true, false}) {
    TraceBuilder trace(1, 2, 1);
    for (int rank = 0; rank < 2; ++rank) {
      const uint64_t buffer = trace.buffer(rank, "ring.kv", 4096);
      trace.on_thread(0);
      trace.host_sync(rank, kCompute);  // without any event, what they order would not be known
      trace.access(trace.hop(rank, kCp, "ring.kv", {}).first, buffer, AccessMode::kWrite);
      trace.on_thread(one_thread ? 0 : 1);
      trace.access(trace.kernel(rank, kCompute, "flash_forward", {}), buffer, AccessMode::kRead);
    }
    EXPECT_EQ(said(analyze(trace.finish())).starts_with("race.read_before_arrival"), one_thread);
  }
}

// ---- buffers that lost their beginning

TEST(LostBeginning, WindowsThatBeginAnywhereAreCompared) {
  Job job{1, 4, 1, 6};
  job.wrong.skip_weight_cp = at(1, 5, 0);
  TraceView view = calls_only(build(job).finish());
  keep_ops(view, [](const OpRow& op) { return op.issue > 200 + 10 * uint64_t(op.rank); });
  for (int rank = 0; rank < 4; ++rank) view.lost.push_back({rank, "buffer", 100, 0, 0, 20000 + 100 * rank});
  expect_root(view, "hang.missing_rank", {1});
}

// ---- pieces

TEST(History, ARunTellsNothingAboutItsOwnLength) {
  const std::vector<uint64_t> run = {1, 2, 2, 2};
  EXPECT_EQ(continuation(run, true).next, 0u);
  const std::vector<uint64_t> steps = {1, 2, 2, 3, 1, 2, 2};
  EXPECT_EQ(continuation(steps, true).next, 3u);
  EXPECT_EQ(continuation(std::span(steps).first(6), true).next, 2u);
  const std::vector<uint64_t> begins = {1, 2, 3, 1};  // the first step begins the sequence
  EXPECT_EQ(continuation(begins, true).next, 2u);
  EXPECT_EQ(continuation(begins, false).next, 0u);
}

TEST(Components, AChainAsLongAsAJobNeedsNoStack) {
  constexpr int kNodes = 1'000'000;
  std::vector<std::vector<int>> edges(kNodes);
  for (int v = 0; v + 1 < kNodes; ++v) edges[size_t(v)].push_back(v + 1);
  edges[kNodes - 1].push_back(kNodes / 2);
  const std::vector<int> component = strong_components(edges);
  EXPECT_EQ(component[kNodes - 1], component[kNodes / 2]);
  EXPECT_NE(component[0], component[1]);
}

}  // namespace
}  // namespace ringscope
