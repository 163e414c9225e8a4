// What the judge expects, from hand-made sites and mutations, and how it reads a report.
#include <gtest/gtest.h>

#include "tests/tools/campaign/sites.h"
#include "tools/campaign/judge.h"

using namespace ringscope;
using namespace ringscope::campaign;
using namespace ringscope::testing;

namespace {

using Ids = std::vector<std::string>;
using Ranks = std::vector<int>;

SiteTable program(const JobConfig& config) {
  SiteMaker make(config);
  for (Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp})
    if (Mesh::make(config.tp, config.cp, config.dp, 1, config.order)->size(axis) > 1) make.create(axis);
  for (int step = 0; step < config.train_iters; ++step) {
    make.upload("batch.position", step);
    make.upload("batch.labels", step);
    make.kernel("linear.forward", step);
    if (config.cp > 1) make.hop(step, 0);
    make.kernel("flash_forward", step);
    make.kernel("lse_merge", step);
    make.call("softmax.max_ar", Axis::kCp, step, 0, CollFunc::kAllReduce, RedOp::kMax);
    make.call("grad.weight_cp", Axis::kCp, step, 0);
    make.call("grad.weight_cp", Axis::kCp, step, 1);
    make.call("grad.weight_dp", Axis::kDp, step, 0);
  }
  return make.sites;
}

struct Asked {
  JobConfig config;
  SiteTable sites;
  Mutation mutation;
  Expected expected;
};
Expected expect(const JobConfig& config, const std::string& text, Measured measured) {
  const SiteTable sites = program(config);
  const Mutation mutation = *parse_mutation(text);
  auto change = change_of(mutation, config, sites);
  if (!change) {
    ADD_FAILURE() << change.error().message;
    return {};
  }
  const TraceView twin;
  auto expected = Judge(mutation, config, sites, *change, twin).expect(measured);
  if (!expected) ADD_FAILURE() << expected.error().message;
  return expected ? *expected : Expected{};
}
Measured hang() { return {Effect::kHang, false, {}, false}; }
Measured corrupt() { return {Effect::kCorrupt, false, {}, false}; }
Measured harmless() { return {}; }

TEST(Judge, ACallLeftOutByOneRank) {
  const Expected e = expect(job(1, 4, 1), "drop@grad.weight_cp:rank=2,step=1,layer=0", hang());
  EXPECT_EQ(e.ids, Ids{"hang.missing_rank"});
  EXPECT_EQ(e.ranks, Ranks{2});
  EXPECT_TRUE(e.visible);
}

TEST(Judge, HalfOfAGroupInTheFirstStepCannotBeDecided) {
  EXPECT_FALSE(expect(job(1, 4, 1), "drop@grad.weight_cp:rank=0-1,step=0,layer=0", hang()).visible);
  EXPECT_TRUE(expect(job(1, 4, 1), "drop@grad.weight_cp:rank=0-1,step=1,layer=0", hang()).visible)
      << "the step before shows the call";
  EXPECT_TRUE(expect(job(1, 2, 2), "drop@grad.weight_cp:rank=0,step=0,layer=0", hang()).visible)
      << "the other replica makes it";
  EXPECT_FALSE(expect(job(1, 2, 1), "drop@grad.weight_cp:rank=0,step=0,layer=0", hang()).visible);
}

TEST(Judge, AHopOfTheRing) {
  const Expected e = expect(job(1, 4, 1), "drop@ring.kv_send:rank=1,step=1", hang());
  EXPECT_EQ(e.ids, (Ids{"hang.ring_break", "hang.unmatched_p2p"}));
}

TEST(Judge, RanksThatLeave) {
  EXPECT_EQ(expect(job(1, 4, 1), "exit@linear.forward:rank=1,step=0", hang()).ids, Ids{"hang.dead_rank"});
  EXPECT_TRUE(expect(job(1, 2, 1), "exit@linear.forward:rank=1,step=0", hang()).visible) << "its exit is written down";
  EXPECT_FALSE(expect(job(1, 2, 1), "kill@linear.forward:rank=1,step=0", hang()).visible);
  const Expected killed = expect(job(1, 4, 1), "kill@linear.forward:rank=1,step=1", hang());
  EXPECT_EQ(killed.ids, (Ids{"hang.dead_rank", "hang.missing_rank", "hang.ring_break"}));
}

TEST(Judge, AnExchangeOfTwoCalls) {
  EXPECT_EQ(expect(job(1, 4, 1), "swap@grad.weight_cp:rank=1,step=1,layer=0", hang()).ids, Ids{"hang.order_swap"});
  const Expected harmless_swap = expect(job(1, 4, 1), "swap@grad.weight_cp:rank=1,step=1,layer=0", harmless());
  EXPECT_NE(std::find(harmless_swap.ids.begin(), harmless_swap.ids.end(), "hang.potential_cycle"),
            harmless_swap.ids.end());
}

TEST(Judge, ACallUnlikeTheOthers) {
  const Expected e = expect(job(1, 4, 1), "redop=max@grad.weight_cp:rank=1,step=1,layer=0", corrupt());
  EXPECT_EQ(e.ids, Ids{"hang.arg_mismatch"});
  EXPECT_TRUE(e.visible);
  EXPECT_FALSE(expect(job(1, 4, 1, 1), "redop=max@grad.weight_cp:layer=0", corrupt()).visible)
      << "everybody calls it, in the only step";
}

TEST(Judge, AReductionOfTheSoftmax) {
  EXPECT_EQ(expect(job(1, 4, 1, 1), "redop=sum@softmax.max_ar", corrupt()).ids, Ids{"softmax.sum_for_max"});
  EXPECT_EQ(expect(job(1, 4, 1, 1), "redop=min@softmax.max_ar", corrupt()).ids, Ids{"softmax.wrong_reduction"});
}

TEST(Judge, AMatrixProductThatIsScaledIsSilent) {
  EXPECT_FALSE(expect(job(1, 4, 1), "scale=2@linear.forward:rank=1,step=1", corrupt()).visible);
  const Expected merge = expect(job(1, 4, 1), "scale=2@lse_merge:rank=1,step=1", corrupt());
  EXPECT_TRUE(merge.visible);
  EXPECT_EQ(merge.ids, Ids{"softmax.lse_merge"});
}

TEST(Judge, CopiesThatDisagree) {
  const Measured measured{Effect::kCorrupt, true, {1, 5}, false};
  const Expected e = expect(job(1, 4, 2), "scale=2@linear.forward:rank=1,step=1", measured);
  EXPECT_TRUE(e.visible);
  Report report;
  report.verdict = Verdict::kFindings;
  Finding f;
  f.id = "numeric.replica";
  f.ranks = {1, 5};
  report.findings = {f};
  EXPECT_EQ(verdict(e, report), VerdictKind::kRight) << "rank 5 got it from rank 1, and holds other bits";
  report.findings[0].ranks = {2};
  EXPECT_EQ(verdict(e, report), VerdictKind::kWrong);
  report.findings[0].id = "softmax.lse_merge";
  report.findings[0].ranks = {1, 5};
  EXPECT_EQ(verdict(e, report), VerdictKind::kWrong) << "of the merge rank 5 is innocent";
}

TEST(Judge, AColumnThatComesOutAsItWasChangesNobody) {
  const JobConfig config = [] {
    JobConfig c = job(1, 4, 1);
    c.cp_layout = CpLayout::kContiguous;
    return c;
  }();
  const Expected e = expect(config, "restart@batch.position:step=1", corrupt());
  EXPECT_EQ(e.ranks, (Ranks{1, 2, 3})) << "the first shard counts from 0 anyhow";
}

TEST(Judge, ABatchThatIsNotTheLoadersMayBeToldThoughNoBitDiffers) {
  const Expected e = expect(job(1, 4, 1), "offset=1@batch.position:rank=2,step=1", harmless());
  EXPECT_EQ(e.ids, (Ids{"position.offset", "position.overlap", "position.gap"}));
  EXPECT_TRUE(e.told_anyhow);
  EXPECT_FALSE(expect(job(1, 4, 1), "scale=2@linear.forward:rank=2,step=1", harmless()).told_anyhow);
}

Report report_of(const std::string& id, Ranks ranks, Severity severity = Severity::kError) {
  Report report;
  report.verdict = Verdict::kFindings;
  Finding f;
  f.id = id;
  f.ranks = std::move(ranks);
  f.severity = severity;
  report.findings.push_back(f);
  return report;
}

TEST(Verdict, OfAHang) {
  const Expected e = expect(job(1, 4, 1), "drop@grad.weight_cp:rank=2,step=1,layer=0", hang());
  EXPECT_EQ(verdict(e, report_of("hang.missing_rank", {2})), VerdictKind::kRight);
  EXPECT_EQ(verdict(e, report_of("hang.op_mismatch", {2})), VerdictKind::kPartly);
  EXPECT_EQ(verdict(e, report_of("hang.missing_rank", {})), VerdictKind::kPartly);
  EXPECT_EQ(verdict(e, report_of("hang.missing_rank", {2, 3})), VerdictKind::kWrong);
  EXPECT_EQ(verdict(e, report_of("hang.undecided", {})), VerdictKind::kCareful);
  Report two = report_of("hang.missing_rank", {2});
  two.findings.push_back(two.findings[0]);
  EXPECT_EQ(verdict(e, two), VerdictKind::kPartly) << "one mistake, one root";
  two.findings[1].root = false;
  EXPECT_EQ(verdict(e, two), VerdictKind::kRight);
  Report clean;
  EXPECT_EQ(verdict(e, clean), VerdictKind::kMissed);
  clean.verdict = Verdict::kIncomplete;
  EXPECT_EQ(verdict(e, clean), VerdictKind::kCareful);
}

TEST(Verdict, OfWhatCannotShow) {
  const Expected e = expect(job(1, 4, 1), "scale=2@linear.forward:rank=1,step=1", corrupt());
  EXPECT_EQ(verdict(e, Report{}), VerdictKind::kSilent);
  EXPECT_EQ(verdict(e, report_of("numeric.replica", {2})), VerdictKind::kWrong);
}

TEST(Verdict, OfNothing) {
  const Expected value = expect(job(1, 4, 1), "scale=2@linear.forward:rank=1,step=1", harmless());
  EXPECT_EQ(verdict(value, Report{}), VerdictKind::kRight);
  EXPECT_EQ(verdict(value, report_of("race.redundant_sync", {1}, Severity::kNote)), VerdictKind::kRight);
  EXPECT_EQ(verdict(value, report_of("softmax.lse_merge", {1})), VerdictKind::kFalseAlarm);
  const Expected call = expect(job(1, 4, 1), "dtype=fp64@grad.weight_cp:rank=1,step=1,layer=0", harmless());
  EXPECT_EQ(verdict(call, report_of("hang.arg_mismatch", {1})), VerdictKind::kRight)
      << "the call is not that of the others";
  EXPECT_EQ(verdict(call, report_of("hang.arg_mismatch", {2})), VerdictKind::kFalseAlarm);
}

TEST(JudgeTable, HoldsKnownIdsAloneAndCanBePrinted) {
  const std::string text = judge_table_text();
  for (const TableRow& row : judge_table())
    for (const std::string_view id : row.ids) {
      EXPECT_NE(text.find(id), std::string::npos);
      EXPECT_NE(id.find('.'), std::string_view::npos) << id;
    }
}

}  // namespace
