#include "runtime/fault/fault.h"

#include <gtest/gtest.h>

#include <set>

#include "runtime/config/fault_mutations.h"
#include "runtime/config/job_config.h"
#include "tracedb/base/nearest.h"
#include "tracedb/model/finding.h"

namespace ringscope {
namespace {

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

// A program of two ranks, three steps and two layers: what the tests of matching look at.
SiteTable small_table() {
  SiteTable sites(2);
  for (int rank = 0; rank < 2; ++rank)
    for (int step = 0; step < 3; ++step)
      for (int layer = 0; layer < 2; ++layer)
        for (const auto& [kind, name] : {std::pair{SiteKind::kKernel, "flash_forward"},
                                         {SiteKind::kCall, "ring.kv_send"},
                                         {SiteKind::kWait, "ring.recv_done"},
                                         {SiteKind::kRecord, "ring.recv_done"}}) {
          Site site;
          site.rank = rank;
          site.index = uint32_t(sites[size_t(rank)].size());
          site.kind = kind;
          site.name = name;
          site.where = {step, int16_t(layer), 0, -1, Pass::kForward};
          sites[size_t(rank)].push_back(site);
        }
  return sites;
}

std::vector<size_t> matches(std::string_view text) {
  std::vector<size_t> counts;
  for (const auto& of_rank : sites_of(*parse_mutation(text), small_table())) counts.push_back(of_rank.size());
  return counts;
}
using Counts = std::vector<size_t>;

TEST(Mutation, ActsOnTheSitesThatItsKeysLeave) {
  EXPECT_EQ(matches("drop@ring.kv_send"), Counts({6, 6}));
  EXPECT_EQ(matches("drop@ring.kv_send:rank=1"), Counts({0, 6}));
  EXPECT_EQ(matches("drop@ring.kv_send:rank=0-1,step=1-"), Counts({4, 4}));
  EXPECT_EQ(matches("drop@ring.kv_send:rank=0+1,step=1-1,layer=0"), Counts({1, 1}));
  EXPECT_EQ(matches("drop@ring.kv_send:n=5"), Counts({1, 1}));
  EXPECT_EQ(matches("drop@ring.kv_send:n=6"), Counts({0, 0}));
  EXPECT_EQ(matches("drop@ring.kv_send:pass=backward"), Counts({0, 0}));
  EXPECT_EQ(matches("drop@ring.kv_send:microbatch=0,ring_step=0"), Counts({0, 0}));
}

TEST(Mutation, PatternsAndKindsOfSites) {
  EXPECT_EQ(matches("drop@*:step=0"), Counts({8, 8}));
  EXPECT_EQ(matches("drop@*:step=0,kind=wait"), Counts({2, 2}));
  EXPECT_EQ(matches("drop@ring.*:step=0,layer=1"), Counts({3, 3}));
  EXPECT_EQ(matches("drop@*_send*"), Counts({6, 6}));
  EXPECT_EQ(matches("drop@ring"), Counts({0, 0}));
  EXPECT_EQ(matches("scale=2@*"), Counts({6, 6}));               // kernels alone
  EXPECT_EQ(matches("stale@ring.recv_done"), Counts({12, 12}));  // records and waits
  EXPECT_EQ(matches("early@ring.recv_done"), Counts({6, 6}));
  EXPECT_EQ(matches("exit@flash_forward"), Counts({6, 6}));
}

TEST(Mutation, TextReadsBackTheSame) {
  for (const char* text : {"drop@ring.kv_send:rank=1,step=2,layer=0", "func=all_gather@grad.*:rank=0-2+5,step=3-,n=1",
                           "count=half@x", "scale=-0.5@lse_merge:microbatch=1,layer=0,pass=backward,ring_step=2",
                           "pause=0.25@*:step=1-3", "layout=zigzag@batch.position", "drop@*:pass=none,kind=kernel"})
    EXPECT_EQ(to_text(*parse_mutation(text)), text);
}

TEST(Mutation, RefusalsSayWhatAndWhatInstead) {
  const auto message = [](std::string_view text) {
    const auto mutation = parse_mutation(text);
    return mutation ? "accepted" : mutation.error().message;
  };
  const auto says = [&](std::string_view text, std::string_view part) {
    EXPECT_NE(message(text).find(part), std::string::npos) << message(text);
  };
  says("drop", "there is no '@'");
  says("dorp@x", "did you mean 'drop'");
  says("drop=1@x", "drop takes no value");
  says("scale@x", "scale needs a value: scale=X");
  says("scale=two@x", "'two' is not a number");
  says("scale=nan@x", "'nan' is not a number");
  says("pause=-1@x", "positive");
  says("func=allreduce@x", "use all_reduce, all_gather");
  says("peer=-1@x", "0 or more");
  says("drop@", "needs a site");
  says("drop@x:rnak=1", "did you mean 'rank'");
  says("drop@x:rank=3-1", "ends before it begins");
  says("drop@x:rank=1,rank=2", "written twice");
  says("drop@x:pass=sideways", "use forward, backward");
  says("drop@x:kind=upload", "drop does not act on a upload");
  says("drop@x:", "a site has no key ''");
  EXPECT_EQ(parse_mutation("dorp@x").error().kind, ErrorKind::kUsage);
}

TEST(FaultMutations, NarrowWhatTheKeysNarrow) {
  JobConfig config;
  const auto planted = [&](std::string_view fault) {
    config.fault = *parse_fault(fault);
    std::string text;
    for (const Mutation& m : fault_mutations(config, {})) text += (text.empty() ? "" : " ") + to_text(m);
    return text;
  };
  config.cp = 4;
  EXPECT_EQ(planted("op-mismatch:rank=2,layer=1,step=3"), "func=broadcast@grad.weight_cp:rank=2,step=3,layer=1");
  EXPECT_EQ(planted("ring-buffer-reuse:step=2"), "drop@ring.compute_done:rank=1,step=2-,layer=0,kind=wait");
  EXPECT_EQ(planted("ring-use-before-arrival:ring_step=1"),
            "drop@ring.recv_done:rank=1,step=1-,layer=0,ring_step=1,kind=wait");
  // Bugs of the code are on every rank and layer unless narrowed.
  EXPECT_EQ(planted("last-part-wins"), "input@lse_merge:step=1-");
  EXPECT_EQ(planted("last-part-wins:rank=3,layer=2"), "input@lse_merge:rank=3,step=1-,layer=2");
  EXPECT_EQ(planted("per-rank-mean"),
            "drop@loss.count_cp:step=1- scale=0.25@loss.share:step=1- scale=0.25@loss.backward:step=1-");
  config.cp = 1, config.dp = 2;
  EXPECT_EQ(planted("skip-all-reduce"), "drop@grad.weight_dp:rank=1,step=1,layer=0");
  config.fault = {};
  EXPECT_TRUE(fault_mutations(config, {}).empty());
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
