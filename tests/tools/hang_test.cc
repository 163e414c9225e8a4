// Pairs for the hang and ring families: with the mistake exactly this root, without it nothing; and the traps.
#include <gtest/gtest.h>

#include "tests/support/train_program.h"
#include "tests/support/verdict.h"
#include "tools/analyze/analyze.h"

namespace ringscope {
namespace {

using testing::build;
using testing::Job;
using testing::roots;
using testing::TraceBuilder;

std::string ids(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings) text += (text.empty() ? "" : " ") + (f.root ? f.id : "(" + f.id + ")");
  return text;
}

void expect_clean(const TraceView& view) {
  const Report report = analyze(view);
  EXPECT_EQ(ids(report), "") << (report.findings.empty() ? "" : report.findings[0].sentence);
  EXPECT_EQ(report.verdict, Verdict::kClean);
}

auto at(int rank, int step, int layer = -1) {
  return [=](int r, const Where& w) { return r == rank && w.step == step && (layer < 0 || w.layer == layer); };
}

std::vector<Job> layouts() { return {{1, 2, 1}, {1, 4, 1}, {2, 2, 1}, {2, 2, 2}, {1, 3, 2}, {2, 1, 2}, {1, 1, 4}}; }

TEST(Hang, CleanRunsGiveNothing) {
  for (Job job : layouts()) {
    expect_clean(build(job).finish());
    job.warm_up = true;
    job.steps = 3;
    expect_clean(build(job).finish());
  }
}

// Every rank's tail at another place: killed, or stopped by Ctrl-C.
TEST(Hang, CutTailsGiveNothing) {
  for (const char* outcome : {"", "interrupted"})
    for (const Job& job : layouts())
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        TraceBuilder trace = build(job);
        for (int rank = 0; rank < trace.world(); ++rank)
          trace.cut(rank, trace.issues(rank) * (1 + (seed * 7919 + uint64_t(rank) * 104729) % 97) / 100);
        EXPECT_EQ(ids(analyze(trace.finish(outcome))), "");
      }
}

TEST(Hang, SkippedAllReduceIsAMissingRank) {
  for (Job job : {Job{1, 2, 1}, Job{1, 4, 1}, Job{2, 2, 1}, Job{2, 2, 2}})
    for (int rank : {0, 1})
      for (int step : {0, 1})
        for (int layer : {0, 1}) {
          job.steps = 3;
          job.wrong.skip_weight_cp = at(rank, step, layer);
          const Report report = analyze(build(job).finish());
          ASSERT_EQ(roots(report).size(), 1u) << ids(report);
          const Finding& f = report.findings[0];
          EXPECT_EQ(f.id, "hang.missing_rank") << f.sentence;
          EXPECT_EQ(f.ranks, std::vector<int>{rank}) << f.sentence;
          EXPECT_EQ(f.group->name, "cp");
          EXPECT_EQ(*f.op, "all_reduce");
          EXPECT_EQ(f.where.step, step) << f.sentence;
          EXPECT_EQ(f.where.layer, layer) << f.sentence;
          EXPECT_EQ(f.where.pass, Pass::kOptimizer);
          EXPECT_FALSE(f.evidence.empty());
        }
}

// Two members, no other group, no earlier step: the call's other layers decide.
TEST(Hang, TwoRanksAloneInTheFirstStep) {
  Job job{1, 2, 1, 1};
  job.wrong.skip_weight_cp = at(1, 0, 0);
  const Report report = analyze(build(job).finish());
  ASSERT_EQ(roots(report).size(), 1u) << ids(report);
  EXPECT_EQ(report.findings[0].id, "hang.missing_rank");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
}

// The last call of the job is left out: no position differs, but the rank's host went on.
TEST(Hang, SkippedLastCallIsFoundAtTheFrontier) {
  Job job{1, 4, 1, 1};
  job.wrong.skip_weight_cp = at(2, 0, 1);
  const Report report = analyze(build(job).finish());
  ASSERT_EQ(roots(report).size(), 1u) << ids(report);
  EXPECT_EQ(report.findings[0].id, "hang.missing_rank");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2});
  EXPECT_EQ(report.findings[0].waiting, (std::vector<int>{0, 1, 3}));
}

TEST(Hang, LossesBarAbsence) {
  Job job{1, 2, 1, 2};
  job.wrong.skip_weight_cp = at(1, 1, 0);
  TraceView view = build(job).finish();
  view.lost.push_back({1, "ring 3", 5, 0});
  const Report report = analyze(view);
  for (const Finding& f : report.findings) EXPECT_NE(f.id, "hang.missing_rank");
  EXPECT_EQ(report.verdict, Verdict::kUndecided) << ids(report);
  EXPECT_FALSE(report.missing_evidence.empty());
}

TEST(Hang, AnotherOperationIsAMismatch) {
  for (Job job : {Job{1, 2, 1}, Job{1, 4, 1}, Job{2, 2, 2}})
    for (int rank : {0, 1}) {
      job.wrong.other_op_cp = at(rank, 1, 0);
      const Report report = analyze(build(job).finish());
      ASSERT_EQ(roots(report).size(), 1u) << ids(report);
      const Finding& f = report.findings[0];
      EXPECT_EQ(f.id, "hang.op_mismatch");
      EXPECT_EQ(f.ranks, std::vector<int>{rank}) << f.sentence;
      EXPECT_EQ(*f.op, "all_reduce");
      EXPECT_EQ(f.where.step, 1);
      EXPECT_EQ(f.where.layer, 0);
    }
}

TEST(Hang, OneCallMoreIsAMismatch) {
  for (Job job : {Job{1, 2, 1}, Job{1, 4, 1}, Job{2, 2, 2}}) {
    job.wrong.extra_cp = at(1, 1, 1);
    const Report report = analyze(build(job).finish());
    ASSERT_EQ(roots(report).size(), 1u) << ids(report);
    EXPECT_EQ(report.findings[0].id, "hang.op_mismatch");
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1}) << report.findings[0].sentence;
    EXPECT_EQ(*report.findings[0].op, "all_gather");
  }
}

TEST(Hang, DeadRank) {
  for (Job job : {Job{1, 2, 1}, Job{2, 2, 2}, Job{1, 1, 4}}) {
    job.wrong.exit = [](int r, const Where& w) { return r == 1 && w.step == 1 && w.pass == Pass::kForward; };
    const Report report = analyze(build(job).finish());
    ASSERT_EQ(roots(report).size(), 1u) << ids(report);
    const Finding& f = report.findings[0];
    EXPECT_EQ(f.id, "hang.dead_rank");
    EXPECT_EQ(f.ranks, std::vector<int>{1});
    EXPECT_EQ(f.where.step, 1) << "its last operation, in front of the layer that it did not begin";
    EXPECT_EQ(f.where.layer, -1);
    EXPECT_TRUE(f.group.has_value());
    EXPECT_FALSE(f.waiting.empty());
  }
}

TEST(Hang, CrossGroupCycle) {
  Job job{2, 2, 1};
  // Diagonal ranks 0 = (0, 0) and 3 = (1, 1).
  job.wrong.cp_before_tp = [](int r, const Where& w) { return (r == 0 || r == 3) && w.step == 1; };
  const Report report = analyze(build(job).finish());
  ASSERT_EQ(roots(report).size(), 1u) << ids(report);
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.id, "hang.cross_group_cycle");
  EXPECT_EQ(f.ranks, (std::vector<int>{0, 3}));
  EXPECT_EQ(f.waiting, (std::vector<int>{1, 2}));
  EXPECT_EQ(f.group->name, "cp");
  EXPECT_EQ(f.where.step, 1);
  EXPECT_EQ(f.where.layer, 0);
  EXPECT_NE(f.sentence.find("tp["), std::string::npos);
}

// Every data-parallel replica closes the same circle: one mistake, one verdict.
TEST(Hang, CyclesOfReplicasAreOneRoot) {
  Job job{2, 2, 2};
  job.wrong.cp_before_tp = [](int r, const Where& w) { return (r % 4 == 0 || r % 4 == 3) && w.step == 1; };
  const Report report = analyze(build(job).finish());
  ASSERT_EQ(ids(report), "hang.cross_group_cycle");
  EXPECT_EQ(report.findings[0].ranks, (std::vector<int>{0, 3, 4, 7}));
  EXPECT_EQ(report.findings[0].waiting, (std::vector<int>{1, 2, 5, 6}));
  EXPECT_EQ(report.findings[0].group->ranks, (std::vector<int>{0, 2}));
}

TEST(Hang, OneRankAloneCannotCloseACycle) {
  Job job{2, 2, 1};
  job.wrong.cp_before_tp = [](int r, const Where&) { return r == 0; };
  TraceBuilder trace = build(job);
  expect_clean(trace.finish());
}

TEST(Ring, EarlyExitBreaksTheRing) {
  for (Job job : {Job{1, 4, 1}, Job{1, 3, 2}, Job{2, 4, 1}})
    for (int layer : {0, 1}) {
      job.wrong.leave_ring_early = at(1, 1, layer);
      const Report report = analyze(build(job).finish());
      ASSERT_EQ(roots(report).size(), 1u) << ids(report);
      const Finding& f = report.findings[0];
      EXPECT_EQ(f.id, "hang.ring_break") << f.sentence;
      EXPECT_EQ(f.ranks, std::vector<int>{1});
      EXPECT_EQ(f.group->name, "cp");
      EXPECT_EQ(f.where.step, 1);
      EXPECT_EQ(f.where.layer, layer);
      EXPECT_EQ(f.where.ring_step, job.cp - 2);
      ASSERT_EQ(report.findings.size(), 2u) << ids(report);
      EXPECT_EQ(report.findings[1].id, "ring.step_count");
      EXPECT_EQ(report.findings[1].caused_by, 0);
    }
}

// Of several that left early, the missing hop is that of the one that left first.
TEST(Ring, TheHopIsThatOfTheShortestRun) {
  Job job{1, 4, 1};
  job.wrong.leave_ring_early = at(1, 1, 0);
  job.wrong.leave_ring_first = at(2, 1, 0);
  const Report report = analyze(build(job).finish());
  ASSERT_EQ(roots(report).size(), 1u) << ids(report);
  EXPECT_EQ(report.findings[0].ranks, (std::vector<int>{1, 2}));
  EXPECT_EQ(report.findings[0].where.ring_step, 1);
  EXPECT_NE(report.findings[0].sentence.find("hop 2->3"), std::string::npos) << report.findings[0].sentence;
  EXPECT_NE(report.findings[0].sentence.find("rank 1 sent 2, rank 2 sent 1"), std::string::npos)
      << report.findings[0].sentence;
}

TEST(Ring, WithoutAStallTheStepCountIsTheRoot) {
  Job job{1, 4, 1};
  job.wrong.leave_ring_early = at(1, 1, 0);
  const Report report = analyze(build(job).finish("interrupted"));
  ASSERT_EQ(report.findings.size(), 1u) << ids(report);
  EXPECT_EQ(report.findings[0].id, "ring.step_count");
  EXPECT_TRUE(report.findings[0].root);
}

TEST(Hang, UndecidedOnlyWhenNothingExplainsTheStall) {
  TraceBuilder trace = build({1, 2, 1});
  for (OpRow& op : trace.raw().ops) op.state = OpState::kScheduled;
  TraceView view = trace.finish();
  view.meta[meta_key::kOutcome] = "stalled";
  const Report report = analyze(view);
  ASSERT_EQ(report.findings.size(), 1u) << ids(report);
  EXPECT_EQ(report.findings[0].id, "hang.undecided");
  EXPECT_EQ(report.verdict, Verdict::kUndecided);
  EXPECT_FALSE(report.findings[0].would_raise_confidence.empty());
}

TEST(Race, MissingWaitForTheReaderIsAnOverwrite) {
  for (Job job : {Job{1, 4, 1}, Job{2, 4, 1}}) {
    job.wrong.no_wait_for_reader = [](int r, const Where& w) { return r == 1 && w.layer == 1; };
    const TraceView view = build(job).finish();
    EXPECT_EQ(view.meta.at(meta_key::kOutcome), "completed");
    const Report report = analyze(view);
    ASSERT_EQ(report.findings.size(), 1u) << ids(report);
    const Finding& f = report.findings[0];
    EXPECT_EQ(f.id, "race.overwrite_before_read");
    EXPECT_EQ(f.ranks, std::vector<int>{1});
    EXPECT_EQ(f.where.step, 0);
    EXPECT_EQ(f.where.layer, 1);
    EXPECT_EQ(f.where.ring_step, 2);
    EXPECT_EQ(*f.op, "recv");
    EXPECT_NE(f.sentence.find("ring.kv"), std::string::npos);
    EXPECT_NE(f.fix.find("on compute after flash_"), std::string::npos) << f.fix;
  }
}

TEST(Race, MissingWaitForTheArrivalIsAnEarlyRead) {
  Job job{1, 4, 1};
  job.wrong.no_wait_for_arrival = [](int r, const Where& w) { return r != 2 && w.layer == 0 && w.ring_step == 1; };
  const Report report = analyze(build(job).finish());
  ASSERT_EQ(report.findings.size(), 1u) << ids(report);
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.id, "race.read_before_arrival");
  EXPECT_EQ(f.ranks, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(f.where.layer, 0);
  EXPECT_EQ(f.where.ring_step, 1);
  EXPECT_NE(f.fix.find("on cp after ring.kv_recv"), std::string::npos) << f.fix;
}

// A wait on an event that was never recorded orders nothing; losses make the order unknown.
TEST(Race, NoOpWaitAndLosses) {
  for (bool recorded : {true, false}) {
    TraceBuilder trace(1, 2, 1);
    for (int rank = 0; rank < 2; ++rank) {
      const uint64_t buffer = trace.buffer(rank, "ring.kv", 4096);
      Where where;
      where.step = 0;
      trace.access(trace.hop(rank, testing::kCp, "ring.kv", where).first, buffer, AccessMode::kWrite, 0, 2048);
      const uint64_t key = trace.record(rank, testing::kCp);
      trace.wait(rank, testing::kCompute, recorded ? key : 0);
      trace.access(trace.kernel(rank, testing::kCompute, "flash_forward", where), buffer, AccessMode::kRead, 1024,
                   4096);
    }
    TraceView view = trace.finish();
    if (recorded) {
      expect_clean(view);
      continue;
    }
    const Report report = analyze(view);
    ASSERT_EQ(report.findings.size(), 1u) << ids(report);
    EXPECT_EQ(report.findings[0].id, "race.read_before_arrival");
    EXPECT_NE(report.findings[0].sentence.find("bytes 1024-2047"), std::string::npos) << report.findings[0].sentence;
    view.lost.push_back({-1, "ring 1", 1, 0});
    EXPECT_EQ(ids(analyze(view)), "");
  }
}

// An access whose operation was lost on one rank must not hide the races of the ranks behind it.
TEST(Race, AnOrphanAccessOfAnotherRankHidesNothing) {
  Job job{1, 4, 1};
  job.wrong.no_wait_for_arrival = [](int r, const Where& w) { return r == 3 && w.ring_step == 1; };
  TraceView view = build(job).finish();
  view.accesses.insert(view.accesses.begin(), {kNoRow, 1, 0, 64, AccessMode::kWrite});
  view.lost.push_back({0, "rank0.host", 1, 0});
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "race.read_before_arrival");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{3});
}

// A collective sends what the kernel before it makes: the wait in front of it is the missing half.
TEST(Race, ASendNeedsAnEventBehindTheKernelThatMakesItsBlock) {
  for (bool waits : {true, false}) {
    TraceBuilder trace(1, 2, 1);
    for (int rank = 0; rank < 2; ++rank) {
      const uint64_t block = trace.buffer(rank, "attention.kv", 4096);
      Where where;
      where.step = 0, where.layer = 1;
      trace.access(trace.kernel(rank, testing::kCompute, "split_qkv", where), block, AccessMode::kWrite);
      const uint64_t ready = trace.record(rank, testing::kCompute);
      if (waits || rank == 1) trace.wait(rank, testing::kCp, ready);
      trace.access(trace.hop(rank, testing::kCp, "kv", where).second, block, AccessMode::kRead);
    }
    const TraceView view = trace.finish();
    if (waits) {
      expect_clean(view);
      continue;
    }
    const Report report = analyze(view);
    ASSERT_EQ(ids(report), "race.send_before_ready");
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{0});
    EXPECT_NE(report.findings[0].fix.find("on compute after split_qkv"), std::string::npos);
  }
}

// All hops in one buffer: the kernel did wait for its block, and the next hop came over it before anybody had read it.
TEST(Race, ABlockThatNobodyReadIsOverwrittenNotReadEarly) {
  TraceBuilder trace(1, 3, 1);
  for (int rank = 0; rank < 3; ++rank) {
    const uint64_t buffer = trace.buffer(rank, "ring.kv", 4096);
    Where where;
    where.step = 0;
    for (int t = 0; t < 2; ++t) {
      where.ring_step = int16_t(t);
      const auto [recv, send] = trace.hop(rank, testing::kCp, "ring.kv", where);
      trace.access(recv, buffer, AccessMode::kWrite);
      if (t > 0) trace.access(send, buffer, AccessMode::kRead);
      if (t == 0) trace.wait(rank, testing::kCompute, trace.record(rank, testing::kCp));
    }
    trace.access(trace.kernel(rank, testing::kCompute, "flash_forward", where), buffer, AccessMode::kRead);
  }
  EXPECT_EQ(ids(analyze(trace.finish())), "race.overwrite_before_read");
}

// Two transfers that read what the other writes, unordered: two hazards that one edge removes.
TEST(Race, BothHazardsOfOnePairLackOneEdge) {
  TraceBuilder trace(1, 2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const uint64_t x = trace.buffer(rank, "x", 4096), y = trace.buffer(rank, "y", 4096);
    Where where;
    where.step = 0;
    trace.host_sync(rank, testing::kCompute);
    const uint32_t first = trace.hop(rank, testing::kCp, "a", where).first;
    trace.access(first, x, AccessMode::kRead);
    trace.access(first, y, AccessMode::kWrite);
    const uint32_t second = trace.hop(rank, testing::kDp, "b", where).first;
    trace.access(second, y, AccessMode::kRead);
    trace.access(second, x, AccessMode::kWrite);
  }
  const Report report = analyze(trace.finish());
  EXPECT_EQ(ids(report), "race.read_before_arrival");
}

// A trace whose events were not recorded shows transfers and kernels in no order at all: that is no race.
TEST(Race, WithoutAnyEventNothingIsKnown) {
  TraceBuilder trace(1, 2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const uint64_t buffer = trace.buffer(rank, "ring.kv", 4096);
    trace.access(trace.hop(rank, testing::kCp, "ring.kv", {}).first, buffer, AccessMode::kWrite);
    trace.access(trace.kernel(rank, testing::kCompute, "flash_forward", {}), buffer, AccessMode::kRead);
  }
  const Report report = analyze(trace.finish());
  EXPECT_EQ(ids(report), "");
  EXPECT_EQ(report.verdict, Verdict::kIncomplete);
}

// The host waited for the stream: what it issues afterwards is ordered.
TEST(Race, HostSyncOrders) {
  TraceBuilder trace(1, 2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const uint64_t buffer = trace.buffer(rank, "ring.kv", 4096);
    Where where;
    where.step = 0;
    trace.access(trace.hop(rank, testing::kCp, "ring.kv", where).first, buffer, AccessMode::kWrite);
    trace.host_sync(rank, testing::kCp);
    trace.access(trace.kernel(rank, testing::kCompute, "flash_forward", where), buffer, AccessMode::kRead);
  }
  expect_clean(trace.finish());
}

}  // namespace
}  // namespace ringscope
