// Recorded hangs, judged again with evidence taken away: see evidence.h.
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "tests/sweep/evidence.h"
#include "tools/analyze/analyze.h"
#include "tools/analyze/index.h"
#include "tracedb/store/op_rows.h"

namespace ringscope::testing {
namespace {

std::string ranks_of(const Finding& f) {
  std::string text;
  for (int rank : f.ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return "[" + text + "]";
}

std::string roots(const Report& report) {
  std::string text = report.findings.empty() ? "nothing" : "";
  for (const Finding& f : report.findings)
    if (f.root) text += f.id + " " + ranks_of(f) + ": " + f.sentence + "; ";
  return text;
}

class EvidenceTakenAway : public ::testing::Test {
 protected:
  // Every case is recorded once for all tests.
  static const std::vector<std::pair<Case, TraceView>>& recordings() {
    static const std::vector<std::pair<Case, TraceView>> all = [] {
      std::vector<std::pair<Case, TraceView>> recorded;
      for (Case& c : hang_cases(3)) {
        RecordedRun run = record_and_analyze(c.config);
        EXPECT_EQ(run.error, "") << c.name;
        EXPECT_EQ(judge_without(c, run.view, run.report), Judgement::kRight) << c.name;
        recorded.emplace_back(std::move(c), std::move(run.view));
      }
      return recorded;
    }();
    return all;
  }

  static size_t ranks_left(const TraceView& view) {
    std::set<int> ranks;
    for (const OpRow& op : view.ops) ranks.insert(op.rank);
    return ranks.size();
  }
};

// What only our own runtime reports about itself: without all of it the verdict stands.
TEST_F(EvidenceTakenAway, WithoutLabelsAndDeviceRecordsEveryVerdictStands) {
  for (const auto& [c, view] : recordings()) {
    TraceView all = view;
    for (size_t i = 0; i < kStructure; ++i) {
      TraceView one = view;
      removals()[i].take(one, c.ranks, 0);
      removals()[i].take(all, c.ranks, 0);
      const Report report = analyze(one);
      EXPECT_EQ(judge_without(c, one, report), Judgement::kRight)
          << c.name << " without " << removals()[i].name << ": " << roots(report);
    }
    const Report report = analyze(all);
    EXPECT_EQ(judge_without(c, all, report), Judgement::kRight) << c.name << " without all: " << roots(report);
  }
}

TEST_F(EvidenceTakenAway, NeverAnotherAccusationAndNeverClean) {
  for (const auto& [c, view] : recordings())
    for (size_t i = kStructure; i < removals().size(); ++i)
      for (uint64_t seed = 0; seed < 8; ++seed) {
        TraceView one = view;
        removals()[i].take(one, c.ranks, seed);
        const Report report = analyze(one);
        EXPECT_NE(judge_without(c, one, report), Judgement::kWrong)
            << c.name << " without " << removals()[i].name << " (" << seed << "): " << roots(report);
      }
}

TEST_F(EvidenceTakenAway, AnySubsetTogether) {
  std::mt19937_64 random(7);
  for (const auto& [c, view] : recordings())
    for (int round = 0; round < 40; ++round) {
      TraceView some = view;
      std::string taken;
      for (const Removal& removal : removals()) {
        if (random() % 3) continue;
        removal.take(some, c.ranks, random());
        taken += std::string(taken.empty() ? "" : ", ") + removal.name;
      }
      if (ranks_left(some) < 2) continue;  // nobody waits for anybody: what is missing is all that can be said
      const Report report = analyze(some);
      EXPECT_NE(judge_without(c, some, report), Judgement::kWrong)
          << c.name << " without " << taken << ": " << roots(report);
    }
}

template <class Row>
void keep(std::vector<Row>& rows, const std::function<bool(size_t, const Row&)>& wanted) {
  std::vector<Row> kept;
  for (size_t i = 0; i < rows.size(); ++i)
    if (wanted(i, rows[i])) kept.push_back(rows[i]);
  rows = std::move(kept);
}

// What a stranger's trace of a healthy job may lack, by tables and by halves of tables.
const std::vector<std::pair<const char*, void (*)(TraceView&)>> kThinner = {
    {"events", [](TraceView& v) { v.syncs.clear(); }},
    {"transfers of rank 0",
     [](TraceView& v) { keep<P2pRow>(v.p2ps, [](size_t, const P2pRow& row) { return row.rank != 0; }); }},
    {"every second transfer",
     [](TraceView& v) { keep<P2pRow>(v.p2ps, [](size_t i, const P2pRow&) { return i % 2; }); }},
    {"every third call", [](TraceView& v) { keep<CollRow>(v.colls, [](size_t i, const CollRow&) { return i % 3; }); }},
    {"every second run of positions",
     [](TraceView& v) {
       keep<PositionRunRow>(v.position_runs, [](size_t i, const PositionRunRow&) { return i % 2; });
     }},
    {"every third softmax row",
     [](TraceView& v) { keep<SoftmaxRow>(v.softmax_rows, [](size_t i, const SoftmaxRow&) { return i % 3; }); }},
    {"every second step row",
     [](TraceView& v) { keep<TrainStepRow>(v.train_steps, [](size_t i, const TrainStepRow&) { return i % 2; }); }},
    {"ranks", [](TraceView& v) { v.ranks.clear(); }},
    {"communicators", [](TraceView& v) { v.comms.clear(); }},
    {"meta", [](TraceView& v) { v.meta.clear(); }},
};

TEST(CleanEvidenceTakenAway, AccusesNobody) {
  for (int i : {5, 3, 12, 27, 4, 8}) {  // tensor and context parallel, ring, all-gather, three steps, data parallel
    const JobConfig config = clean_config(i);
    const RecordedRun run = record_and_analyze(config);
    ASSERT_EQ(run.error, "");
    for (const auto& [what, take] : kThinner) {
      SCOPED_TRACE(describe(config) + " without " + what);
      TraceView view = run.view;
      take(view);
      for (OpRow& op : view.ops) op.coll = op.p2p = kNoRow;
      link_operations(view);
      EXPECT_EQ(roots(analyze(view)), "nothing");
    }
  }
}

// What a SIGKILL at this time would have left: every record up to it, of every thread alike.
TraceView killed_at(const TraceView& view, int64_t time_ns) {
  TraceView v = view;
  v.meta.erase(meta_key::kOutcome);
  v.rank_exits.clear();
  for (OpRow& op : v.ops) {
    op.coll = op.p2p = kNoRow;
    if (op.end_ns > time_ns) op.end_ns = 0, op.state = OpState::kStarted;
    if (op.start_ns > time_ns) op.start_ns = 0, op.state = OpState::kScheduled;
  }
  keep<OpRow>(v.ops, [&](size_t, const OpRow& op) { return op.enqueue_ns <= time_ns; });
  keep<SyncRow>(v.syncs, [&](size_t, const SyncRow& sync) { return sync.time_ns <= time_ns; });
  int step = 0;  // values of a step are written when it ends
  for (const OpRow& op : v.ops) step = std::max(step, op.where.step);
  const auto done = [&](size_t, const auto& row) { return row.where.step < step; };
  keep<SoftmaxRow>(v.softmax_rows, done);
  keep<SoftmaxStatRow>(v.softmax_stats, done);
  keep<AttentionRow>(v.attention_rows, done);
  keep<LabelRunRow>(v.label_runs, done);
  keep<TensorStatRow>(v.tensor_stats, done);
  keep<TrainStepRow>(v.train_steps, done);
  const OpRows rows(v.ops);
  keep<CollRow>(v.colls, [&](size_t, const CollRow& row) { return rows.row_of(row.op_id) != kNoRow; });
  keep<P2pRow>(v.p2ps, [&](size_t, const P2pRow& row) { return rows.row_of(row.op_id) != kNoRow; });
  keep<AccessRow>(v.accesses, [&](size_t, const AccessRow& row) { return rows.row_of(row.op_id) != kNoRow; });
  link_operations(v);
  return v;
}

TEST(Killed, AtAnyInstantAccusesNobody) {
  std::mt19937_64 random(11);
  for (int i : {5, 3, 2, 8, 12, 27}) {
    const JobConfig config = clean_config(i);
    const RecordedRun run = record_and_analyze(config);
    ASSERT_EQ(run.error, "");
    std::vector<int64_t> calls;
    for (const OpRow& op : run.view.ops)
      if (is_call(op)) calls.push_back(op.enqueue_ns);
    for (int round = 0; round < 150; ++round) {
      const Report report = analyze(killed_at(run.view, calls[random() % calls.size()]));
      for (const Finding& f : report.findings)
        EXPECT_EQ(f.id, "hang.undecided") << describe(config) << ": " << f.sentence;
      EXPECT_NE(report.verdict, Verdict::kClean);
    }
  }
}

}  // namespace
}  // namespace ringscope::testing
