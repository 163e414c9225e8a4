// Every planted fault as a pair, on real recorded runs: with it its finding is the one root, without it nothing.
// The benchmark fault_sweep_bench prints the full table; this is a reduced one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/sweep/sweep.h"

namespace ringscope {
namespace {

using namespace testing;

class FaultPair : public ::testing::TestWithParam<int> {};

TEST_P(FaultPair, IsNamedWithItAndSilentWithoutIt) {
  Case c = fault_cases(2)[GetParam()];
  const RecordedRun run = record_and_analyze(c.config);
  EXPECT_EQ(judge(c, run), "") << c.name << " " << describe(c.config);
  c.config.fault = {};
  EXPECT_EQ(judge_clean(record_and_analyze(c.config)), "") << c.name << " twin " << describe(c.config);
}
INSTANTIATE_TEST_SUITE_P(Sweep, FaultPair, ::testing::Range(0, int(fault_rows().size()) * 2), [](const auto& info) {
  std::string text = fault_cases(2)[info.param].name;
  std::erase(text, ' ');
  for (char& ch : text)
    if (!std::isalnum(static_cast<unsigned char>(ch))) ch = '_';
  return text;
});

void expect_silent(int from, int to) {
  for (int i = from; i < to; ++i) {
    const JobConfig config = clean_config(i);
    EXPECT_EQ(judge_clean(record_and_analyze(config)), "") << "#" << i << " " << describe(config);
  }
}
TEST(CleanRuns, FirstOfEveryShape) { expect_silent(0, 10); }
TEST(CleanRuns, AreSilent) { expect_silent(10, 20); }

std::vector<double> losses(const RecordedRun& run) {
  std::vector<double> out;
  for (const StepReport& step : run.result.steps) out.push_back(step.loss);
  return out;
}

// What a user would look at: loss and gradient norm of every step.
std::vector<double> numbers(const RecordedRun& run) {
  std::vector<double> out = losses(run);
  for (const StepReport& step : run.result.steps) out.push_back(step.grad_norm);
  return out;
}

constexpr uint64_t kFewestSeeds = 24, kMostSeeds = 240;

// A race is in the recorded order, whatever the numbers. Turns by different seeds let the stale block be read, or not:
// both kinds of run have to occur, and the finding has to be in both. One hop of the last step, so that both do.
TEST(Races, AreFoundWhetherTheNumbersCameOutRightOrWrong) {
  for (Case c : fault_cases(1)) {
    if (!c.finding.starts_with("race.")) continue;
    SCOPED_TRACE(c.name);
    c.config.turns = true;
    c.config.train_iters = 2;
    c.config.fault.ring_step = c.config.fault.id == FaultId::kRingUseBeforeArrival ? 0 : -1;
    JobConfig twin = c.config;
    twin.fault = {};
    const std::vector<double> clean = numbers(record_and_analyze(twin));
    ASSERT_EQ(clean.size(), 2 * size_t(c.config.train_iters));
    int right = 0, wrong = 0;
    for (uint64_t seed = 1; seed <= kFewestSeeds || (seed <= kMostSeeds && (right == 0 || wrong == 0)); ++seed) {
      c.config.turns_seed = seed;
      const RecordedRun run = record_and_analyze(c.config);
      EXPECT_EQ(judge(c, run), "") << describe(c.config);
      ++(numbers(run) == clean ? right : wrong);
    }
    std::printf("%s: found in %d runs with the clean twin's numbers, in %d with others\n", c.name.c_str(), right,
                wrong);
    EXPECT_GT(right, 0);
    EXPECT_GT(wrong, 0);
  }
}

// At the start of a training the attention hardly moves the loss: a merge that drops parts stays within what
// another seed changes. The samples of the softmax show it all the same.
TEST(WrongMerge, IsFoundWhereTheLossStayedWithinTheNoise) {
  for (Case c : fault_cases(2)) {
    if (c.finding != "softmax.lse_merge") continue;
    SCOPED_TRACE(c.name);
    const RecordedRun with = record_and_analyze(c.config);
    EXPECT_EQ(judge(c, with), "");
    JobConfig twin = c.config;
    twin.fault = {};
    const std::vector<double> faulty = losses(with), clean = losses(record_and_analyze(twin));
    std::vector<double> noise(clean.size());  // by step: the largest change that another seed makes
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      twin.seed = c.config.seed + 1000 * seed;
      const std::vector<double> other = losses(record_and_analyze(twin));
      for (size_t i = 0; i < clean.size(); ++i) noise[i] = std::max(noise[i], std::abs(other[i] - clean[i]));
    }
    ASSERT_EQ(faulty.size(), clean.size());
    EXPECT_NE(faulty, clean);
    for (size_t i = 0; i < clean.size(); ++i) EXPECT_LT(std::abs(faulty[i] - clean[i]), noise[i]) << "step " << i;
  }
}

TEST(Hangs, AreReportedAtOnceWhenNoTaskCanRun) {
  for (const Case& c : fault_cases(1)) {
    if (!c.finding.starts_with("hang.")) continue;
    JobConfig config = c.config;
    config.hang_timeout_s = 60;
    const RecordedRun run = record_and_analyze(config);
    EXPECT_EQ(run.result.end, RunEnd::kStalled) << c.name;
    EXPECT_FALSE(run.stall_by_time) << c.name;
    EXPECT_LT(run.stall_seconds, 30) << c.name;
  }
}

// A link that takes a minute for a message: every task waits or sleeps, so only the clock can tell.
TEST(Hangs, AreReportedWithinTheTimeoutPlusTwoSeconds) {
  JobConfig config = clean_config(2);  // CP 2
  ASSERT_EQ(config.cp, 2);
  config.turns = false;
  config.comm.link = {60e6, 1, 0, 1};
  config.hang_timeout_s = 1;
  const RecordedRun run = record_and_analyze(config);
  EXPECT_EQ(run.result.end, RunEnd::kStalled);
  EXPECT_TRUE(run.stall_by_time);
  EXPECT_GE(run.stall_seconds, 1);
  EXPECT_LE(run.stall_seconds, 3);
}

}  // namespace
}  // namespace ringscope
