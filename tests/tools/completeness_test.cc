// What is missing from a trace, by row: each thing taken away is named, and what is behind nobody's verdict is not.
#include <gtest/gtest.h>

#include "tests/support/train_program.h"
#include "tools/analyze/analyze.h"
#include "tools/analyze/completeness.h"

namespace ringscope {
namespace {

using testing::build;
using testing::Job;

// A run of ours that completed.
TraceView recorded() {
  TraceView view = build(Job{1, 2, 2}).finish();
  view.meta[meta_key::kToolVersion] = "1";
  return view;
}

// The one thing that is missing; the verdict follows from it.
std::string only_missing(const TraceView& view) {
  const auto missing = missing_evidence(view);
  EXPECT_EQ(missing.size(), 1u);
  const Report report = analyze(view);
  EXPECT_EQ(report.verdict, Verdict::kIncomplete);
  EXPECT_EQ(report.missing_evidence, missing);
  return missing.empty() ? "" : missing[0];
}

void expect_clean(const TraceView& view) {
  for (const std::string& missing : missing_evidence(view)) ADD_FAILURE() << missing;
  EXPECT_EQ(analyze(view).verdict, Verdict::kClean);
}

TEST(Completeness, AWholeRunLacksNothing) { expect_clean(recorded()); }

TEST(Completeness, NamesTheEndOfARun) {
  TraceView view = recorded();
  view.meta[meta_key::kOutcome] = "interrupted";
  EXPECT_NE(only_missing(view).find("interrupted"), std::string::npos);
  view.meta.erase(meta_key::kOutcome);
  EXPECT_NE(only_missing(view).find("killed or still runs"), std::string::npos);
}

// The launcher's ring held the run's facts and the ends of its ranks: the format of the source still says that the
// recording was ours.
TEST(Completeness, NamesWhatTheLauncherWrote) {
  TraceView view = recorded();
  view.meta.clear();
  view.rank_exits.clear();
  view.sources[0].format = "ringscope.spool";
  EXPECT_NE(only_missing(view).find("the end of the run"), std::string::npos);
  view = recorded();
  std::erase_if(view.rank_exits, [](const RankExitRow& row) { return row.rank == 2; });
  EXPECT_EQ(only_missing(view), "how rank 2 ended");
}

TEST(Completeness, NamesRanksWithoutRows) {
  TraceView view = recorded();
  view.meta[meta_key::kWorldSize] = "6";
  EXPECT_EQ(only_missing(view), "the trace of ranks 4-5");
  view = recorded();
  view.ranks.push_back({4});
  view.rank_exits.push_back({4});
  EXPECT_EQ(only_missing(view), "the operations of rank 4: none was recorded");
  // Without a world size the members of communicators are known.
  view = recorded();
  view.meta.erase(meta_key::kWorldSize);
  view.comms[0].ranks.push_back(7);
  EXPECT_NE(only_missing(view).find("the trace of rank 7"), std::string::npos);
}

TEST(Completeness, NamesWorkThatRanUnseen) {
  TraceView view = recorded();
  for (OpRow& op : view.ops)
    if (op.rank == 1 && op.stream == testing::TraceBuilder::stream(1, testing::kDp)) {
      op.state = OpState::kScheduled;
      op.start_ns = op.end_ns = 0;
    }
  EXPECT_NE(only_missing(view).find("of rank 1 on stream dp"), std::string::npos);
  // In a run without a known end the group tells: a member's all-reduce ended, so everybody's had begun.
  view.meta.erase(meta_key::kOutcome);
  view.rank_exits.clear();
  const auto missing = missing_evidence(view);
  ASSERT_EQ(missing.size(), 2u);
  EXPECT_NE(missing[1].find("of rank 1 on stream dp"), std::string::npos) << missing[1];
}

TEST(Completeness, NamesLossesAndFiles) {
  TraceView view = recorded();
  view.lost = {{0, "rank0.cp", 5, 1}, {1, "rank1.cp", 7, 0}, {2, "rank2.cp", 0, 0}};
  EXPECT_EQ(only_missing(view), "12 lost records and 1 torn in 2 rings of ranks 0-1");
  view.lost = {{-1, "run.spool/ring-000007.ring", 0, 1}};
  EXPECT_NE(only_missing(view).find("run.spool/ring-000007.ring"), std::string::npos);
  view = recorded();
  view.import_stats = {{"input.unrecognised", "error", 2, "not recognised: a.txt, b.txt"}};
  EXPECT_NE(only_missing(view).find("a.txt, b.txt"), std::string::npos);
  view.import_stats = {{"spool.names_lost", "data_loss", 2, "names that could not be written"}};
  EXPECT_NE(only_missing(view).find("names that could not be written"), std::string::npos);
  view.import_stats = {{"spool.records", "info", 200, "records read back"}};
  expect_clean(view);
}

TEST(Completeness, ZeroOperationsAreNoCleanRun) {
  TraceView empty;
  EXPECT_EQ(analyze(empty).verdict, Verdict::kIncomplete);
  EXPECT_FALSE(nothing_read(empty));
  empty.lost.push_back({-1, "threads without a ring", 10, 0});
  EXPECT_TRUE(nothing_read(empty));
  EXPECT_EQ(analyze(empty).verdict, Verdict::kUnreadable);
}

TEST(Completeness, FindingsStayFindings) {
  Job job{1, 4, 1};
  job.wrong.leave_ring_early = [](int r, const Where& w) { return r == 1 && w.step == 1 && w.layer == 0; };
  TraceView view = build(job).finish();
  view.import_stats.push_back({"input.unrecognised", "error", 1, "not recognised: a.txt"});
  const Report report = analyze(view);
  EXPECT_EQ(report.verdict, Verdict::kFindings);
  EXPECT_EQ(report.missing_evidence.size(), 1u);
}

// A snapshot of somebody else's job: rings of records that wrapped long ago.
TraceView snapshot() {
  TraceView view = build(Job{1, 2, 2}).finish("");
  view.rank_exits.clear();
  view.sources[0].format = "flight_recorder";
  return view;
}

TEST(Completeness, ASnapshotIsAWindow) {
  expect_clean(snapshot());
  TraceView view = snapshot();
  int64_t end = 0;
  for (const OpRow& op : view.ops) end = std::max({end, op.enqueue_ns, op.start_ns, op.end_ns});
  for (int rank = 0; rank < 4; ++rank) view.lost.push_back({rank, "buffer", 1000, 0, 0, 100 + rank});
  expect_clean(view);
  TraceView hole = view;
  hole.lost.push_back({1, "buffer", 3, 0, end / 2, end / 2 + 1});
  EXPECT_NE(only_missing(hole).find("3 lost records"), std::string::npos);
  TraceView open = view;  // nobody knows when: it may have been at any time
  open.lost.push_back({1, "buffer", 3, 0});
  EXPECT_NE(only_missing(open).find("3 lost records"), std::string::npos);
}

TEST(Completeness, WindowsThatDoNotMeetAreNamed) {
  TraceView view = snapshot();
  int64_t end = 0;
  for (const OpRow& op : view.ops) end = std::max({end, op.enqueue_ns, op.start_ns, op.end_ns});
  view.lost.push_back({1, "buffer", 1000, 0, 0, end + 1});
  const auto missing = missing_evidence(view);
  ASSERT_FALSE(missing.empty());
  EXPECT_NE(missing[0].find("a time that all of"), std::string::npos) << missing[0];
  EXPECT_EQ(analyze(view).verdict, Verdict::kIncomplete);
}

}  // namespace
}  // namespace ringscope
