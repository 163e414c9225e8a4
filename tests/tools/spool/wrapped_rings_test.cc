// A flight recording of a run that stalls late: every ring has wrapped many times, and the verdict is that of a run
// that stalls in its first steps.
#include <algorithm>

#include "probes/recorder/recorder.h"
#include "runtime/fault/fault.h"
#include "tests/tools/spool/recorded_job.h"
#include "tests/tracedb/scratch.h"
#include "tools/analyze/analyze.h"
#include "tracedb/import/registry.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

constexpr uint64_t kRingBytes = 256 * 1024;  // the least that the recorder takes by itself

struct Case {
  const char* fault;
  int tp, cp, late;  // the step it stalls at
};

void record_stall(const Case& c, int step, const std::string& spool, uint64_t ring_bytes) {
  JobConfig config = tiny_job(c.tp, c.cp, step + 5);
  auto plan = parse_fault(std::string(c.fault) + ":step=" + std::to_string(step));
  ASSERT_TRUE(plan) << plan.error().message;
  config.fault = *plan;
  record_job(config, spool, RS_MODE_FLIGHT, ring_bytes);
}

// Rings of ranks: what is in them was written over at least `laps` times.
void expect_wrapped(const std::string& spool, uint64_t laps) {
  auto contents = read_spool(spool);
  ASSERT_TRUE(contents) << contents.error().message;
  for (const RingReader& ring : contents->rings) {
    if (ring.rank() < 0 || ring.thread_name().find(".dp") != std::string::npos) continue;  // no replicas: little to do
    EXPECT_GT(ring.end_seq(), laps * kRingBytes / kRecordBytes) << ring.thread_name();
  }
}

// What names a hang is there, and the loss lies before what is left, so that it bars nothing behind.
void expect_evidence(const TraceView& view, int world, int cp) {
  EXPECT_EQ(view.ranks.size(), size_t(world));
  EXPECT_EQ(view.rank_exits.size(), size_t(world));
  EXPECT_EQ(view.meta.at(meta_key::kOutcome), "stalled");
  EXPECT_FALSE(view.streams.empty());
  const bool whole = std::any_of(view.comms.begin(), view.comms.end(), [&](const CommRow& comm) {
    return comm.axis == Axis::kCp && comm.ranks.size() == size_t(cp) &&
           std::count(comm.ranks.begin(), comm.ranks.end(), -1) == 0;
  });
  EXPECT_TRUE(whole);
  for (int rank = 0; rank < world; ++rank) {
    EXPECT_FALSE(view.lossless(rank));
    int64_t last = 0;
    for (const OpRow& op : view.ops)
      if (op.rank == rank && op.enqueue_ns > last) last = op.enqueue_ns;
    ASSERT_GT(last, 0);
    EXPECT_TRUE(view.lossless(rank, last, 0)) << rank;
  }
}

class WrappedRings : public testing::TestWithParam<Case> {};

TEST_P(WrappedRings, LeaveTheVerdictOfAnEarlyStall) {
  const Case c = GetParam();
  const Scratch scratch;
  record_stall(c, 1, scratch / "early", 4 << 20);
  record_stall(c, c.late, scratch / "late", kRingBytes);
  expect_wrapped(scratch / "late", 3);
  auto early = load_paths({scratch / "early"}), late = load_paths({scratch / "late"});
  ASSERT_TRUE(early) << early.error().message;
  ASSERT_TRUE(late) << late.error().message;
  EXPECT_TRUE(early->lossless(0));
  expect_evidence(*late, c.tp * c.cp, c.cp);
  const Report expected = analyze(*early), report = analyze(*late);
  ASSERT_FALSE(expected.findings.empty());
  ASSERT_FALSE(report.findings.empty());
  const Finding &a = expected.findings[0], &b = report.findings[0];
  EXPECT_EQ(b.id, a.id);
  EXPECT_EQ(b.ranks, a.ranks);
  EXPECT_EQ(b.waiting, a.waiting);
  EXPECT_EQ(b.group.has_value(), a.group.has_value());
  EXPECT_EQ(b.where.layer, a.where.layer);
  EXPECT_EQ(b.where.ring_step, a.where.ring_step);
  EXPECT_EQ(a.where.step, 1);
  EXPECT_EQ(b.where.step, c.late);
}

INSTANTIATE_TEST_SUITE_P(Faults, WrappedRings,
                         testing::Values(Case{"ring-early-exit", 1, 4, 700}, Case{"ring-early-exit", 1, 4, 2000},
                                         Case{"cross-group-order", 2, 2, 700}, Case{"rank-exit", 1, 2, 700},
                                         Case{"op-mismatch", 1, 2, 700}, Case{"skip-all-reduce", 1, 2, 700}),
                         [](const auto& info) {
                           std::string name = info.param.fault + ("_" + std::to_string(info.param.late));
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ringscope
