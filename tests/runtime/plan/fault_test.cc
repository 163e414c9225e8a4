#include "runtime/fault/fault.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/config/job_config.h"
#include "tracedb/base/nearest.h"
#include "tracedb/model/finding.h"

namespace ringscope {
namespace {

Where at(int step, int layer, int ring_step = -1) {
  Where w;
  w.step = step;
  w.layer = int16_t(layer);
  w.ring_step = int16_t(ring_step);
  return w;
}

TEST(FaultTable, HasTheFourteenAndTheCleanTwin) {
  std::set<std::string_view> names;
  std::set<FaultId> ids;
  int clean = 0;
  for (const FaultRow& row : fault_rows()) {
    names.insert(row.name);
    ids.insert(row.id);
    clean += row.finding.empty();
    EXPECT_EQ(row.imitates.substr(0, 19), "https://github.com/") << row.name;
    EXPECT_EQ(find_fault(row.name), &row);
    if (row.finding.empty()) EXPECT_EQ(row.outcome, "none");
    else EXPECT_NE(find_in_catalogue(row.finding), nullptr) << row.finding;
    if (!row.implied.empty()) {
      EXPECT_NE(find_in_catalogue(row.implied), nullptr) << row.implied;
    }
  }
  EXPECT_EQ(names.size(), 15u);
  EXPECT_EQ(ids.size(), 15u);
  EXPECT_FALSE(ids.contains(FaultId::kNone));
  EXPECT_EQ(clean, 1);
}

TEST(FaultPlan, OneTimeBugsHitOneRankLayerAndStep) {
  const FaultPlan plan = *parse_fault("ring-early-exit:rank=2,layer=1,step=3");
  EXPECT_TRUE(plan.hits(FaultId::kRingEarlyExit, 2, at(3, 1)));
  EXPECT_FALSE(plan.hits(FaultId::kRingEarlyExit, 1, at(3, 1)));
  EXPECT_FALSE(plan.hits(FaultId::kRingEarlyExit, 2, at(3, 0)));
  EXPECT_FALSE(plan.hits(FaultId::kRingEarlyExit, 2, at(4, 1)));
  EXPECT_FALSE(plan.hits(FaultId::kRankExit, 2, at(3, 1)));
}

TEST(FaultPlan, LastingBugsHitFromTheirStepOn) {
  const FaultPlan race = *parse_fault("ring-buffer-reuse:rank=0,step=2");
  EXPECT_FALSE(race.hits(FaultId::kRingBufferReuse, 0, at(1, 0, 2)));
  EXPECT_TRUE(race.hits(FaultId::kRingBufferReuse, 0, at(2, 0, 2)));
  EXPECT_TRUE(race.hits(FaultId::kRingBufferReuse, 0, at(9, 0, 3)));
  const FaultPlan narrow = *parse_fault("ring-use-before-arrival:ring_step=1");
  EXPECT_TRUE(narrow.hits(FaultId::kRingUseBeforeArrival, 1, at(1, 0, 1)));
  EXPECT_FALSE(narrow.hits(FaultId::kRingUseBeforeArrival, 1, at(1, 0, 2)));
}

TEST(FaultPlan, BugsOfTheCodeAreOnEveryRankAndLayerUnlessNarrowed) {
  const FaultPlan all = *parse_fault("last-part-wins");
  EXPECT_TRUE(all.hits(FaultId::kLastPartWins, 0, at(1, 0)));
  EXPECT_TRUE(all.hits(FaultId::kLastPartWins, 3, at(7, 2)));
  EXPECT_FALSE(all.hits(FaultId::kLastPartWins, 3, at(0, 2)));
  const FaultPlan one = *parse_fault("last-part-wins:rank=3,layer=2");
  EXPECT_TRUE(one.hits(FaultId::kLastPartWins, 3, at(1, 2)));
  EXPECT_FALSE(one.hits(FaultId::kLastPartWins, 2, at(1, 2)));
  EXPECT_FALSE(one.hits(FaultId::kLastPartWins, 3, at(1, 1)));
  // Places outside any layer: the optimizer's reductions, the loader.
  EXPECT_TRUE(parse_fault("cross-group-order")->hits(FaultId::kCrossGroupOrder, 3, at(1, -1)));
  EXPECT_FALSE(parse_fault("cross-group-order")->hits(FaultId::kCrossGroupOrder, 3, at(2, -1)));
  EXPECT_TRUE(parse_fault("position-restart")->hits(FaultId::kPositionRestart, 0, at(5, -1)));
}

TEST(FaultPlan, NoFaultNeverHits) {
  EXPECT_FALSE(FaultPlan().hits(FaultId::kNone, 1, at(1, 0)));
  for (const FaultRow& row : fault_rows()) EXPECT_FALSE(FaultPlan().hits(row.id, 1, at(1, 0)));
}

TEST(FaultPlan, RefusalsNameTheNearestWord) {
  const auto message = [](std::string_view text) { return parse_fault(text).error().message; };
  EXPECT_NE(message("ring-early-exti").find("did you mean 'ring-early-exit'"), std::string::npos);
  EXPECT_NE(message("ring-early-exit:rnak=1").find("did you mean 'rank'"), std::string::npos);
  EXPECT_NE(message("no-global-max:rank=1").find("has no key 'rank': use layer, step"), std::string::npos);
  EXPECT_NE(message("rank-exit:step=x").find("step=x is not a number"), std::string::npos);
  EXPECT_NE(message("rank-exit:step=-1").find("is not a number"), std::string::npos);
  EXPECT_NE(message("rank-exit:step").find("is not a number"), std::string::npos);
  EXPECT_NE(message("rank-exit:rank=1,step=2,rank=2").find("'rank' is written twice"), std::string::npos);
  EXPECT_EQ(parse_fault("").error().kind, ErrorKind::kUsage);
  EXPECT_EQ(parse_fault("rank-exit:").error().kind, ErrorKind::kUsage);
  EXPECT_NE(message("completely-different").find("unknown fault"), std::string::npos);
  EXPECT_EQ(message("completely-different").find("did you mean"), std::string::npos);
}

TEST(FaultPlan, TextReadsBackTheSame) {
  for (const char* text :
       {"ring-early-exit:rank=2,layer=1,step=3", "no-global-max:layer=1,step=4", "cross-group-order:step=1",
        "ring-buffer-reuse:rank=1,layer=0,step=1,ring_step=2", "last-part-wins:step=2"}) {
    const FaultPlan plan = *parse_fault(text);
    EXPECT_EQ(to_text(plan), text);
    const FaultPlan again = *parse_fault(to_text(plan));
    EXPECT_EQ(to_text(again), text);
    EXPECT_EQ(again.rank_given, text == std::string_view("last-part-wins:step=2") ? false : again.rank_given);
  }
  EXPECT_EQ(to_text(FaultPlan()), "");
  EXPECT_EQ(to_text(*parse_fault("rank-exit")), "rank-exit:rank=1,layer=0,step=1");
}

// The layout that a row names is one its own check accepts, and without it the check refuses.
TEST(FaultTable, LayoutsAreEnough) {
  for (const FaultRow& row : fault_rows()) {
    JobConfig config;
    config.fault = *parse_fault(row.name);
    EXPECT_FALSE(validate(config)) << row.name << " needs no layout?";
    std::string words(row.layout);
    for (size_t begin = 0; begin < words.size();) {
      size_t end = std::min(words.find(" --", begin), words.size());
      const std::string pair = words.substr(begin + 2, end - begin - 2);
      const size_t space = std::min(pair.find(' '), pair.size());
      const auto applied = apply_flag(config, pair.substr(0, space), space < pair.size() ? pair.substr(space + 1) : "");
      ASSERT_TRUE(applied) << applied.error().message;
      begin = end + 1;
    }
    const auto status = validate(config);
    EXPECT_TRUE(status) << row.name << ": " << (status ? "" : status.error().message);
  }
}

TEST(Nearest, CountsEditsAndStaysSilentWhenFar) {
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance("ab", "ba"), 1);
  EXPECT_EQ(edit_distance("same", "same"), 0);
  const std::string_view known[] = {"train", "eval", "diagnose"};
  EXPECT_EQ(nearest_word("trian", known), "train");
  EXPECT_EQ(nearest_word("diag", known), "diagnose");
  EXPECT_EQ(nearest_word("xyzzy", known), "");
  EXPECT_EQ(did_you_mean("evla", known), "; did you mean 'eval'?");
}

}  // namespace
}  // namespace ringscope
