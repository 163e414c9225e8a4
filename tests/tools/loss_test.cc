// Pairs for the loss family.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/tools/data_rows.h"

namespace ringscope {
namespace {

using namespace testing;

TraceView loss_rows(const std::vector<uint64_t>& counts, bool own_divisor, int tp = 1) {
  TraceBuilder trace = small_job(2, int(counts.size()) / 2, tp);
  uint64_t total = 0;
  for (uint64_t n : counts) total += n;
  for (int rank = 0; rank < trace.world(); ++rank)
    for (int step = 0; step < 2; ++step) {
      const uint64_t n = counts[size_t(trace.dp_of(rank) * 2 + trace.cp_of(rank))];
      TrainStepRow row;
      row.rank = rank;
      row.where.step = step;
      row.loss_sum = 3.0 * double(n);
      row.valid_tokens = n;
      row.divisor = own_divisor ? double(n) : double(total);
      row.loss = own_divisor && counts[0] != counts[1] ? 3.2 : 3.0;
      trace.raw().train_steps.push_back(row);
    }
  return trace.finish();
}

TEST(Loss, PerRankMean) {
  const Report report = analyze(loss_rows({64, 40}, true, 2));
  ASSERT_EQ(ids(report), "loss.per_rank_mean");
  EXPECT_EQ(report.findings[0].ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_NE(report.findings[0].sentence.find("off by"), std::string::npos) << report.findings[0].sentence;
}

TEST(Loss, CleanCases) {
  EXPECT_EQ(ids(analyze(loss_rows({64, 40}, false))), "");
  EXPECT_EQ(ids(analyze(loss_rows({64, 64}, true))), "") << "equal counts: the mean of means is the mean";
  EXPECT_EQ(ids(analyze(loss_rows({64, 40, 0, 0}, false))), "") << "idle data-parallel ranks";
  TraceView cut = loss_rows({64, 40}, true);
  std::erase_if(cut.train_steps, [](const TrainStepRow& r) { return r.rank == 1; });
  EXPECT_EQ(ids(analyze(cut)), "") << "a rank's step was not recorded";
}

// All that is counted lies with one shard: its own count is the global one, and its rank did what the others did.
TEST(Loss, PerRankMeanWithAllLabelsInOneShard) {
  for (const std::vector<uint64_t>& counts : {std::vector<uint64_t>{10, 0}, {0, 10, 0, 0}}) {
    const Report report = analyze(loss_rows(counts, true));
    ASSERT_EQ(ids(report), "loss.per_rank_mean");
    EXPECT_EQ(report.findings[0].ranks.size(), counts.size());
    EXPECT_EQ(ids(analyze(loss_rows(counts, false))), "");
  }
}

TEST(Loss, DivisorDoubledIsUnexplained) {
  for (int only : {-1, 1}) {
    TraceView view = loss_rows({64, 40, 30, 20}, false);
    for (TrainStepRow& row : view.train_steps) {
      if (row.where.step == 0) continue;
      if (only < 0 || row.rank == only) row.divisor *= 2;
      row.loss *= only < 0 ? 0.5 : 1 - 20.0 / 154;  // rank 1 counts 40 of 154
    }
    const Report report = analyze(view);
    ASSERT_EQ(ids(report), "loss.unexplained");
    EXPECT_EQ(report.findings[0].ranks, only < 0 ? (std::vector<int>{0, 1, 2, 3}) : std::vector<int>{only});
    EXPECT_EQ(report.findings[0].where.step, 1);
    EXPECT_NE(report.findings[0].sentence.find("the loss 3 would be consistent"), std::string::npos)
        << report.findings[0].sentence;
  }
}

// A divisor that is not the global count contradicts nothing where the loss comes out as the token mean.
TEST(Loss, OtherConventionsAreClean) {
  TraceView view = loss_rows({64, 40}, false);
  for (TrainStepRow& row : view.train_steps) row.divisor = 1;
  EXPECT_EQ(ids(analyze(view)), "");
}

TEST(Loss, AShareThatEntersTwice) {
  TraceView view = loss_rows({64, 40}, false);
  for (TrainStepRow& row : view.train_steps) row.loss += 3.0 * 40 / 104;
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "loss.unexplained");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
}

TEST(Loss, CopiesOfAShardMustAgree) {
  for (int tp : {2, 4}) {
    TraceView view = loss_rows({64, 64}, false, tp);
    for (TrainStepRow& row : view.train_steps)
      if (row.rank == 1) row.loss_sum *= 1.01;
    const Report report = analyze(view);
    ASSERT_EQ(ids(report), "loss.unexplained");
    EXPECT_EQ(report.findings[0].ranks, tp == 2 ? std::vector<int>() : std::vector<int>{1}) << "two have no majority";
  }
}

// Without all ranks of the job, or without knowing which ranks are copies, sums prove nothing.
TEST(Loss, NeedsEveryShard) {
  TraceView view = loss_rows({64, 40, 30, 20}, false);
  for (TrainStepRow& row : view.train_steps) row.divisor *= 2, row.loss /= 2;
  ASSERT_EQ(ids(analyze(view)), "loss.unexplained");
  EXPECT_EQ(ids(analyze(without_labels(view))), "");
  std::erase_if(view.ranks, [](const RankRow& r) { return r.rank == 3; });
  std::erase_if(view.train_steps, [](const TrainStepRow& r) { return r.rank == 3; });
  EXPECT_EQ(ids(analyze(view)), "");
}

TEST(Loss, StepsThatCountMoreThanThereIsProveNothing) {
  TraceView view = loss_rows({64, 40}, false);
  for (TrainStepRow& row : view.train_steps) {
    row.tokens = 128;
    if (row.rank == 1) row.valid_tokens = 1u << 30;
  }
  const Report report = analyze(view);
  EXPECT_EQ(ids(report), "");
  EXPECT_EQ(contradictions(report), 2);
}

// A step as a job computes it, number by number, with one stage of it changed. Sums over a group go in rank order.
struct Wrong {
  enum Stage { kNothing, kHostCount, kKernelCount, kSum, kCount, kBackward, kShare, kReported } stage = kNothing;
  std::vector<int> ranks = {};
  Axis axis = Axis::kUnknown;  // of the reduction that is changed
  double times = 1;            // what the stage makes is multiplied by
  bool left_out = false;       // the reduction is
  double add = 0;
};

class Chain {
 public:
  Chain(int tp, int cp, int dp, std::vector<uint64_t> counts) : trace_(small_job(cp, dp, tp)), counts_(counts) {}

  TraceView run(const Wrong& wrong) {
    wrong_ = wrong;
    const int world = trace_.world();
    std::vector<double> n, s, d, share;
    for (int rank = 0; rank < world; ++rank) {
      const double count = double(counts_[size_t(trace_.dp_of(rank) * trace_.cp_size() + trace_.cp_of(rank))]);
      n.push_back(changed(Wrong::kHostCount, rank, count));
      s.push_back(changed(Wrong::kSum, rank, count * (3 + 0.01 * double(trace_.cp_of(rank) + trace_.dp_of(rank)))));
      put(rank, StepQuantity::kDivisor, n.back());
      put(rank, StepQuantity::kRowsCounted, count, 0);
      put(rank, StepQuantity::kCounted, changed(Wrong::kKernelCount, rank, count), 0);
      put(rank, StepQuantity::kRowsLoss, count * (3 + 0.01 * double(trace_.cp_of(rank) + trace_.dp_of(rank))), 0);
      put(rank, StepQuantity::kLossSum, s.back(), 0);
    }
    d = reduced(n, StepQuantity::kDivisor, Wrong::kCount);
    for (int rank = 0; rank < world; ++rank) {
      const double miss = 0.99 * s[size_t(rank)] / 3;
      put(rank, StepQuantity::kRowsMiss, miss, 0);
      put(rank, StepQuantity::kRowsLabels, n[size_t(rank)], 0);
      put(rank, StepQuantity::kLossGradient, changed(Wrong::kBackward, rank, miss / d[size_t(rank)]), 0);
      share.push_back(changed(Wrong::kShare, rank, s[size_t(rank)] / d[size_t(rank)]));
      put(rank, StepQuantity::kLoss, share.back());
    }
    const std::vector<double> loss = reduced(share, StepQuantity::kLoss, Wrong::kReported);
    for (int rank = 0; rank < world; ++rank) {
      TrainStepRow row;
      row.rank = rank;
      row.where.step = 1;
      row.loss_sum = s[size_t(rank)], row.valid_tokens = uint64_t(n[size_t(rank)]);
      row.divisor = d[size_t(rank)], row.loss = loss[size_t(rank)];
      trace_.raw().train_steps.push_back(row);
    }
    return trace_.finish();
  }

 private:
  bool hit(Wrong::Stage stage, int rank) const {
    return stage == wrong_.stage &&
           (wrong_.ranks.empty() || std::find(wrong_.ranks.begin(), wrong_.ranks.end(), rank) != wrong_.ranks.end());
  }
  double changed(Wrong::Stage stage, int rank, double value) const {
    return hit(stage, rank) ? value * wrong_.times + wrong_.add : value;
  }
  void put(int rank, StepQuantity quantity, double value, int microbatch = -1, Axis axis = Axis::kUnknown) {
    StepValueRow row;
    row.rank = rank;
    row.where.step = 1;
    row.where.microbatch = int16_t(microbatch);
    row.quantity = quantity, row.axis = axis, row.value = value;
    trace_.raw().step_values.push_back(row);
  }
  std::vector<double> reduced(std::vector<double> values, StepQuantity quantity, Wrong::Stage stage) {
    for (const Axis axis : {Axis::kCp, Axis::kDp}) {
      const std::vector<double> in = values;
      for (int rank = 0; rank < trace_.world(); ++rank) {
        const std::vector<int32_t> group = trace_.group(axis, rank);
        if (group.size() < 2) continue;
        double sum = 0;
        for (const int member : group) sum += in[size_t(member)];
        const bool here = hit(stage, rank) && wrong_.axis == axis;
        values[size_t(rank)] = here && wrong_.left_out ? in[size_t(rank)] : sum * (here ? wrong_.times : 1);
        put(rank, quantity, values[size_t(rank)], -1, axis);
      }
    }
    return values;
  }

  TraceBuilder trace_;
  std::vector<uint64_t> counts_;
  Wrong wrong_;
};

const std::vector<int> kAll = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(LossChain, EachStageIsNamedWithItsRanks) {
  const std::vector<uint64_t> equal = {64, 64, 64, 64}, unequal = {64, 40, 30, 20};
  const struct {
    Wrong wrong;
    std::vector<uint64_t> counts;
    const char* id;
    std::vector<int> ranks;
  } cases[] = {
      {{}, equal, "", {}},
      {{}, unequal, "", {}},
      {{.stage = Wrong::kHostCount, .ranks = {3}, .add = 1}, unequal, "loss.unexplained", {3}},
      {{.stage = Wrong::kKernelCount, .ranks = {2}, .times = 2}, unequal, "loss.unexplained", {2}},
      {{.stage = Wrong::kSum, .ranks = {5}, .times = 1.01}, unequal, "loss.unexplained", {5}},
      {{.stage = Wrong::kCount, .axis = Axis::kCp, .left_out = true}, equal, "loss.grad_scale", kAll},
      {{.stage = Wrong::kCount, .axis = Axis::kCp, .left_out = true}, unequal, "loss.per_rank_mean", kAll},
      {{.stage = Wrong::kCount, .ranks = {0, 2}, .axis = Axis::kCp, .left_out = true},
       unequal,
       "loss.per_rank_mean",
       {0, 2}},
      {{.stage = Wrong::kCount, .axis = Axis::kDp, .times = 2}, unequal, "loss.grad_scale", kAll},
      {{.stage = Wrong::kCount, .axis = Axis::kDp, .times = 1.5}, unequal, "loss.unexplained", kAll},
      {{.stage = Wrong::kBackward, .times = 4}, unequal, "loss.grad_scale", kAll},
      {{.stage = Wrong::kBackward, .ranks = {1}, .times = 2}, unequal, "loss.unexplained", {1}},
      {{.stage = Wrong::kShare, .times = 0.5}, unequal, "loss.grad_scale", kAll},
      {{.stage = Wrong::kShare, .ranks = {6}, .times = 3}, unequal, "loss.unexplained", {6}},
      {{.stage = Wrong::kReported, .axis = Axis::kCp, .left_out = true}, unequal, "numeric.replica", kAll},
      {{.stage = Wrong::kReported, .axis = Axis::kDp, .times = 0.5}, unequal, "loss.grad_scale", kAll},
      {{.stage = Wrong::kReported, .axis = Axis::kDp, .times = 0.7}, unequal, "loss.unexplained", kAll},
  };
  int n = 0;
  for (const auto& c : cases) {
    const Report report = analyze(Chain(2, 2, 2, c.counts).run(c.wrong));
    ASSERT_EQ(ids(report), c.id) << "case " << n << (report.findings.empty() ? "" : report.findings[0].sentence);
    if (!report.findings.empty()) {
      EXPECT_EQ(report.findings[0].ranks, c.ranks) << "case " << n << report.findings[0].sentence;
      EXPECT_EQ(report.findings[0].where.step, 1);
      EXPECT_FALSE(report.findings[0].would_raise_confidence.empty());
    }
    ++n;
  }
}

// A convention of its own that comes to the token mean, in the loss and in its gradient, contradicts nothing.
TEST(LossChain, ADetourThatComesOutRightIsClean) {
  TraceView view = Chain(1, 2, 1, {64, 64}).run({.stage = Wrong::kCount, .axis = Axis::kCp, .left_out = true});
  for (StepValueRow& r : view.step_values)
    if (r.quantity == StepQuantity::kLoss || r.quantity == StepQuantity::kLossGradient) r.value /= 2;
  for (TrainStepRow& r : view.train_steps) r.loss /= 2;
  EXPECT_EQ(ids(analyze(view)), "");
}

TEST(LossChain, PaddingThatIsCounted) {
  for (const uint32_t padding : {6u, 7u}) {
    TraceView view = Chain(1, 2, 1, {64, 58}).run({.stage = Wrong::kHostCount, .ranks = {1}, .add = 6});
    const auto run = [&](int rank, uint32_t start, uint32_t count, uint32_t document) {
      PositionRunRow r;
      r.rank = rank;
      r.where.step = 1;
      r.token_start = r.pos_start = start, r.count = count, r.document = document;
      view.position_runs.push_back(r);
    };
    run(0, 0, 64, 0);
    run(1, 64, 58, 0);
    run(1, 122, padding, 0xFFFFFFFF);
    const Report report = analyze(view);
    ASSERT_EQ(ids(report), padding == 6 ? "loss.padding_counted" : "loss.unexplained");
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
  }
}

// What a step did before it stood still is judged all the same; what it did not come to is not.
TEST(LossChain, AStepThatIsCutOff) {
  TraceView view = Chain(2, 2, 2, {64, 40, 30, 20}).run({.stage = Wrong::kCount, .axis = Axis::kCp, .left_out = true});
  view.train_steps.clear();
  std::erase_if(view.step_values, [](const StepValueRow& r) { return r.quantity == StepQuantity::kLoss; });
  EXPECT_EQ(ids(analyze(view)), "loss.per_rank_mean");
  std::erase_if(view.step_values, [](const StepValueRow& r) { return r.quantity == StepQuantity::kLossGradient; });
  EXPECT_EQ(ids(analyze(view)), "");
}

TEST(LossChain, CopiesOfTheSameTokens) {
  TraceView view = Chain(2, 2, 1, {64, 64}).run({});
  for (StepValueRow& r : view.step_values)  // a forward pass that went another way on rank 1: its rows say the same
    if (r.rank == 1 && (r.quantity == StepQuantity::kLossSum || r.quantity == StepQuantity::kRowsLoss)) r.value *= 1.5;
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "loss.unexplained");
  EXPECT_TRUE(report.findings[0].ranks.empty()) << "of two copies nobody is accused";
}

}  // namespace
}  // namespace ringscope
