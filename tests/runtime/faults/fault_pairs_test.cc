// Every planted fault as a pair, on real recorded runs: with it its finding is the one root, without it nothing.
// The benchmark fault_sweep_bench prints the full table; this is a reduced one.
#include <gtest/gtest.h>

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

TEST(CleanRuns, AreSilent) {
  for (int i = 0; i < 20; ++i) {
    const JobConfig config = clean_config(i);
    EXPECT_EQ(judge_clean(record_and_analyze(config)), "") << "#" << i << " " << describe(config);
  }
}

// A race is in the recorded order, whatever the numbers: under turns the two sides never run at the same instant,
// so the losses equal the clean twin's, and the finding is there all the same.
TEST(Races, AreFoundWhenTheNumbersCameOutRight) {
  for (Case c : fault_cases(2)) {
    if (!c.finding.starts_with("race.overwrite")) continue;
    c.config.turns = true;
    const RecordedRun with = record_and_analyze(c.config);
    EXPECT_EQ(judge(c, with), "") << c.name;
  }
}

TEST(Hangs, AreReportedAtOnce) {
  for (const Case& c : fault_cases(1)) {
    if (!c.finding.starts_with("hang.")) continue;
    JobConfig config = c.config;
    config.hang_timeout_s = 60;
    const RecordedRun run = record_and_analyze(config);
    EXPECT_EQ(run.result.end, RunEnd::kStalled) << c.name;
    EXPECT_LT(run.seconds, 30) << c.name;
  }
}

}  // namespace
}  // namespace ringscope
