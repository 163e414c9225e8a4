// The data rules on runs that were really recorded: what was observed is changed in one place, as a bug of that kind
// would have changed it, and nothing else. Each has its twin, the run as it was recorded; and what is missing from a
// recording may make a verdict careful, never an accusation.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/sweep/sweep.h"
#include "tools/analyze/analyze.h"

namespace ringscope::testing {
namespace {

JobConfig job(int tp, int cp, int dp, CpComm comm = CpComm::kP2p) {
  JobConfig c = clean_config(0);
  c.tp = tp, c.cp = cp, c.dp = dp;
  c.sequence_parallel = tp > 1;
  c.cp_comm = comm;
  c.global_batch_size = 2 * dp;
  c.seq_length = 61;  // padded
  c.train_iters = 3;
  c.turns = false;
  return c;
}

const TraceView& recorded(const JobConfig& config) {
  static std::map<std::string, RecordedRun> runs;
  const std::string key = describe(config) + std::to_string(int(config.cp_comm));
  auto found = runs.find(key);
  if (found == runs.end()) found = runs.emplace(key, record_and_analyze(config)).first;
  EXPECT_EQ(judge_clean(found->second), "") << key;
  return found->second.view;
}

std::vector<const Finding*> roots(const Report& report) {
  std::vector<const Finding*> found;
  for (const Finding& f : report.findings)
    if (f.root) found.push_back(&f);
  return found;
}

struct Change {
  const char* what;
  JobConfig config;
  std::function<void(TraceView&)> edit;
  std::string finding;
  std::vector<int> ranks;
};

TEST(RecordedData, AChangeOfOneKindIsOneRoot) {
  const auto softmax = job(1, 4, 1, CpComm::kGlobalSoftmax);
  const std::vector<int> all = {0, 1, 2, 3};
  const auto from_step_1 = [](const Where& w) { return w.step >= 1; };
  const std::vector<Change> changes = {
      {"positions + 1", job(1, 4, 1),
       [&](TraceView& v) {
         for (PositionRunRow& r : v.position_runs)
           if (r.role != PositionRole::kData && r.document != 0xFFFFFFFF && from_step_1(r.where)) ++r.pos_start;
       },
       "position.offset", all},
      {"every second position on rank 3",
       job(2, 2, 1),
       [&](TraceView& v) {
         for (PositionRunRow& r : v.position_runs)
           if (r.role != PositionRole::kData && r.rank == 3 && from_step_1(r.where)) r.stride = 2;
       },
       "position.unexplained",
       {3}},
      {"denominators doubled", softmax,
       [&](TraceView& v) {
         for (SoftmaxRow& r : v.softmax_rows)
           if (from_step_1(r.where)) r.sum_used *= 2;
       },
       "softmax.unexplained", all},
      {"results doubled on rank 2",
       softmax,
       [&](TraceView& v) {
         for (SoftmaxRow& r : v.softmax_rows)
           if (r.rank == 2 && from_step_1(r.where)) r.lse_result += std::log(2.0);
       },
       "softmax.unexplained",
       {2}},
      {"divisor doubled", job(1, 2, 2),
       [&](TraceView& v) {
         for (TrainStepRow& r : v.train_steps)
           if (from_step_1(r.where)) r.divisor *= 2, r.loss /= 2;
       },
       "loss.unexplained", all},
      {"a bit of a parameter of rank 3",
       job(1, 4, 1),
       [&](TraceView& v) {
         for (TensorStatRow& r : v.tensor_stats)
           if (r.rank == 3 && r.where.layer == 1 && r.role == TensorRole::kParameter && from_step_1(r.where))
             r.checksum ^= 1;
       },
       "numeric.replica",
       {3}},
      {"NaN in the keys of rank 2",
       job(1, 4, 1),
       [&](TraceView& v) {
         for (TensorStatRow& r : v.tensor_stats) {
           const bool own = r.rank == 2 && r.where.layer == 1 && r.where.pass == Pass::kForward;
           if (r.where.step > 1 || (r.where.step == 1 && (own || r.where.pass != Pass::kForward))) r.bad = 4;
         }
         for (TrainStepRow& r : v.train_steps)
           if (from_step_1(r.where)) r.grad_norm = std::numeric_limits<double>::quiet_NaN();
       },
       "numeric.nonfinite",
       {2}},
      {"NaN out of attention on rank 1",
       job(1, 2, 2),
       [&](TraceView& v) {
         for (SoftmaxStatRow& r : v.softmax_stats)
           if (r.rank == 1 && r.where.layer == 1 && r.where.step == 1) r.bad = 3;
         for (TensorStatRow& r : v.tensor_stats)
           if (r.where.step > 1 || (r.where.step == 1 && r.where.pass != Pass::kForward)) r.bad = 4;
       },
       "softmax.nan_rows",
       {1}},
  };
  for (const Change& change : changes) {
    TraceView view = recorded(change.config);
    change.edit(view);
    const Report report = analyze(view);
    const auto found = roots(report);
    ASSERT_EQ(found.size(), 1u) << change.what;
    EXPECT_EQ(found[0]->id, change.finding) << change.what;
    EXPECT_EQ(found[0]->ranks, change.ranks) << change.what << ": " << found[0]->sentence;
    EXPECT_EQ(found[0]->where.step, 1) << change.what << ": " << found[0]->sentence;
  }
}

// Every table of values loses the rows of one rank, the end of one rank, or every third row.
TEST(RecordedData, WhatIsMissingAccusesNobody) {
  for (const JobConfig& config :
       {job(1, 4, 1), job(2, 2, 1), job(1, 2, 2, CpComm::kGlobalSoftmax), job(1, 4, 1, CpComm::kAllGather)})
    for (int rank = -1; rank < 4; ++rank)
      for (bool tail : {false, true}) {
        TraceView view = recorded(config);
        size_t n = 0;
        const auto thin = [&](auto& rows) {
          std::erase_if(rows, [&](const auto& r) {
            if (rank < 0) return ++n % 3 == (tail ? 0u : 1u);
            return r.rank == rank && (!tail || r.where.step >= 1);
          });
        };
        thin(view.position_runs), thin(view.softmax_rows), thin(view.softmax_stats), thin(view.tensor_stats);
        thin(view.attention_rows), thin(view.label_runs), thin(view.train_steps), thin(view.step_values);
        thin(view.update_samples);
        if (rank >= 0 && !tail) std::erase_if(view.ranks, [&](const RankRow& r) { return r.rank == rank; });
        for (const Finding& f : analyze(view).findings)
          ADD_FAILURE() << describe(config) << " without rank " << rank << (tail ? " from step 1 on: " : ": ") << f.id
                        << ": " << f.sentence;
      }
}

// What the rules rest on besides values: with axes and coordinates gone a clean run is clean.
TEST(RecordedData, WithoutLabelsCleanRunsAreClean) {
  for (const JobConfig& config : {job(1, 4, 1), job(2, 2, 1), job(1, 2, 2, CpComm::kGlobalSoftmax)}) {
    TraceView view = recorded(config);
    for (CommRow& comm : view.comms) comm.axis = Axis::kUnknown, comm.name = "group";
    for (RankRow& rank : view.ranks) rank.tp = rank.cp = rank.dp = rank.pp = 0;
    view.meta.erase(meta_key::kCpLayout);
    for (const Finding& f : analyze(view).findings)
      ADD_FAILURE() << describe(config) << ": " << f.id << ": " << f.sentence;
  }
}

// A learning rate beyond reason: finite and huge is nothing, and the first value that overflows is one finding.
TEST(RecordedData, ADivergedRunIsNoParallelismBug) {
  for (CpComm comm : {CpComm::kGlobalSoftmax, CpComm::kP2p, CpComm::kAllGather})
    for (double lr : {300.0, 1e20}) {
      JobConfig config = job(1, 2, 1, comm);
      config.lr = config.min_lr = lr;
      config.lr_warmup_iters = 0;
      config.clip_grad = 0;
      const RecordedRun run = record_and_analyze(config);
      ASSERT_EQ(run.error, "");
      const auto found = roots(run.report);
      for (const Finding* f : found)
        EXPECT_EQ(f->id, "numeric.nonfinite") << "comm " << int(comm) << " " << lr << ": " << f->sentence;
      EXPECT_EQ(found.size(), lr > 1e10 ? 1u : 0u) << "comm " << int(comm) << " " << lr;
    }
}

}  // namespace
}  // namespace ringscope::testing
