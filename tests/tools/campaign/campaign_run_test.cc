// A campaign of fixed seed: nobody is accused wrongly, nothing is a false alarm, and what can be told is told at the
// rates below. They are what holds today; they rise as the rules learn, and never fall.
#include <gtest/gtest.h>

#include <cstdio>

#include "tools/analyze/analyze.h"
#include "tools/campaign/campaign.h"

using namespace ringscope;
using namespace ringscope::campaign;

namespace {

constexpr uint64_t kSeed = 21;
constexpr int kMutants = 150;

double rate(int n, int all) { return all ? double(n) / all : 0; }

void print_row(const Row& row) {
  std::string told;
  for (const Told& t : row.findings) {
    told += " " + t.id + "[";
    for (const int rank : t.ranks) told += std::to_string(rank) + " ";
    told += "]";
  }
  std::printf("%s, %s:%s\n  %s\n", name(row.verdict), name(row.expected.effect), told.c_str(),
              command_of(row.layout, &row.mutation).c_str());
}

TEST(Campaign, OfAFixedSeed) {
  Options options;
  options.seed = kSeed;
  options.count = kMutants;
  Hooks hooks;
  hooks.diagnose = [](const TraceView& view) { return analyze(view); };
  const auto outcome = run_campaign(options, hooks);
  ASSERT_TRUE(outcome) << outcome.error().message;
  for (const Row& row : outcome->rows)
    if (row.verdict != VerdictKind::kRight && row.verdict != VerdictKind::kSilent) print_row(row);
  for (const std::string& error : outcome->errors) ADD_FAILURE() << error;
  const Summary s = summarise(*outcome);
  EXPECT_GE(s.mutants, kMutants * 9 / 10);
  EXPECT_EQ(s.wrong, 0);
  EXPECT_EQ(s.false_alarms, 0);
  EXPECT_EQ(s.redundant_told, 0);
  EXPECT_GE(rate(s.decidable_hangs.right, s.decidable_hangs.all), 0.9);
  EXPECT_GE(rate(s.needed_edges.right, s.needed_edges.all), 0.95);
  EXPECT_GE(rate(s.visible_corrupt.right, s.visible_corrupt.all), 0.85);
  EXPECT_LE(rate(s.visible_corrupt.missed, s.visible_corrupt.all), 0.03);
  std::printf("%d mutants: hangs %d of %d right, edges %d of %d, numbers %d of %d (%d missed), silent %d\n", s.mutants,
              s.decidable_hangs.right, s.decidable_hangs.all, s.needed_edges.right, s.needed_edges.all,
              s.visible_corrupt.right, s.visible_corrupt.all, s.visible_corrupt.missed, s.silent);
}

}  // namespace
