// Draws: the same seed, the same campaign; flags that make a drawn job again.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "runtime/train/train.h"
#include "tools/campaign/campaign.h"
#include "tools/campaign/mutants.h"

using namespace ringscope;
using namespace ringscope::campaign;

namespace {

JobConfig by_flags(const std::string& text) {
  JobConfig config = default_job();
  std::istringstream words(text);
  std::vector<std::string> all;
  for (std::string word; words >> word;) all.push_back(word);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool has_value = i + 1 < all.size() && !all[i + 1].starts_with("--");
    const std::string name = all[i].substr(2), value = has_value ? all[++i] : "";
    EXPECT_TRUE(apply_flag(config, name, value)) << name << " " << value;
  }
  return config;
}

TEST(Layouts, FlagsMakeTheDrawnJobAgain) {
  Random random(11);
  std::set<std::string> seen;
  for (int i = 0; i < 200; ++i) {
    auto layout = draw_layout(random, {});
    ASSERT_TRUE(layout);
    const std::string flags = flags_of(layout->config);
    EXPECT_EQ(to_json(by_flags(flags)), to_json(layout->config)) << flags;
    seen.insert(flags);
  }
  EXPECT_GT(seen.size(), 190u);
}

TEST(Layouts, EveryAxisMethodAndOptionComesUp) {
  Random random(3);
  std::set<int> methods, slots, steps;
  int padded = 0, accumulated = 0, flight = 0, turns = 0, sp = 0, gpt = 0, dropout = 0, kept = 0, three_axes = 0;
  for (int i = 0; i < 300; ++i) {
    const Layout layout = *draw_layout(random, {});
    const JobConfig& c = layout.config;
    if (c.cp > 1) methods.insert(int(c.cp_comm)), slots.insert(c.comm.p2p_slots);
    steps.insert(c.train_iters);
    padded += c.seq_length == 61, accumulated += c.global_batch_size > c.micro_batch_size * c.dp;
    flight += layout.keep == Keep::kFlight, turns += c.turns, sp += c.sequence_parallel;
    gpt += c.model.arch == Arch::kGpt, dropout += c.model.hidden_dropout > 0, kept += !c.labels_kept.empty();
    three_axes += c.tp > 1 && c.cp > 1 && c.dp > 1;
  }
  EXPECT_EQ(methods.size(), 3u);
  EXPECT_EQ(slots, (std::set<int>{0, 1, 8}));
  EXPECT_EQ(steps, (std::set<int>{1, 2, 3, 4}));
  for (const int n : {padded, accumulated, flight, turns, sp, gpt, dropout, kept, three_axes}) EXPECT_GT(n, 5);
}

TEST(Layouts, FixedFlagsHoldOrAreRefused) {
  Random random(5);
  const Layout layout = *draw_layout(random, {{"context-parallel-size", "4"}, {"arch", "gpt"}});
  EXPECT_EQ(layout.config.cp, 4);
  EXPECT_EQ(layout.config.tp, 1) << "what is not named is 1";
  EXPECT_EQ(layout.config.model.arch, Arch::kGpt);
  const auto refused = draw_layout(random, {{"tensor-model-parallel-size", "3"}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::kUsage);
}

// What a mutant is compared with must not depend on timing.
TEST(Values, AreTheSameBitsWithFreeThreadsAndInTurns) {
  Random random(17);
  Layout layout = *draw_layout(random, {{"context-parallel-size", "3"}, {"data-parallel-size", "2"}, {"turns", "3"}});
  const TrainOptions keep{.keep_values = true};
  const auto turns = train(layout.config, {}, keep);
  layout.config.turns = false;
  const auto free = train(layout.config, {}, keep), again = train(layout.config, {}, keep);
  ASSERT_TRUE(turns && free && again);
  ASSERT_EQ(free->values.size(), 6u);
  EXPECT_EQ(free->values, turns->values);
  EXPECT_EQ(free->values, again->values);
  EXPECT_EQ(free->values[0], free->values[5]) << "copies";
  layout.config.mutations = {*parse_mutation("scale=1.01@adamw:rank=5")};
  const auto mutant = train(layout.config, {}, keep);
  ASSERT_TRUE(mutant);
  EXPECT_FALSE(mutant->values[5] == free->values[5]);
}

TEST(Mutants, TheSameSeedDrawsTheSame) {
  Random layouts(9);
  const Layout layout = *draw_layout(layouts, {{"context-parallel-size", "2"}, {"data-parallel-size", "2"}});
  const SiteTable sites = *list_sites(layout.config);
  std::set<std::string> texts;
  for (uint64_t seed = 0; seed < 40; ++seed)
    for (const MutationOpRow& row : mutation_ops()) {
      Random one(seed), two(seed);
      const auto a = draw_mutation(one, row.op, layout.config, sites),
                 b = draw_mutation(two, row.op, layout.config, sites);
      ASSERT_EQ(a.has_value(), b.has_value());
      if (!a) continue;
      EXPECT_EQ(to_text(*a), to_text(*b));
      texts.insert(to_text(*a));
      const auto again = parse_mutation(to_text(*a));
      ASSERT_TRUE(again) << to_text(*a) << ": " << again.error().message;
      EXPECT_EQ(to_text(*again), to_text(*a));
    }
  EXPECT_GT(texts.size(), 600u);
}

TEST(Mutants, OneCallOnOneRankIsOneSite) {
  Random layouts(9), random(4);
  const Layout layout = *draw_layout(layouts, {{"context-parallel-size", "4"}});
  const SiteTable sites = *list_sites(layout.config);
  int single = 0;
  for (int i = 0; i < 200; ++i) {
    const auto mutation = draw_mutation(random, MutationOp::kTwice, layout.config, sites);
    ASSERT_TRUE(mutation);
    size_t matched = 0;
    for (const auto& of_rank : sites_of(*mutation, sites)) matched += of_rank.size();
    EXPECT_GT(matched, 0u) << to_text(*mutation);
    single += matched == 1;
  }
  EXPECT_GT(single, 25);
}

}  // namespace
