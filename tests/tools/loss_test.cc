// Pairs for the loss family.
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace ringscope
