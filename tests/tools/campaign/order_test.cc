// The judge's own happens-before, on programs composed by hand.
#include <gtest/gtest.h>

#include "tests/support/trace_builder.h"
#include "tools/campaign/order.h"

using namespace ringscope;
using namespace ringscope::campaign;
using namespace ringscope::testing;

namespace {

// One rank: a kernel makes a block, a transfer brings another into a buffer, a kernel reads that one. Events between.
class OrderTest : public ::testing::Test {
 protected:
  OrderTest() : trace_(1, 2, 1) {
    const uint64_t in = trace_.buffer(0, "in", 4096), out = trace_.buffer(0, "out", 4096);
    site(SiteKind::kKernel, "make");
    trace_.access(trace_.kernel(0, kCompute, "make", {}), out, AccessMode::kWrite);
    site(SiteKind::kRecord, "ready");
    ready_ = trace_.record(0, kCompute, "ready");
    site(SiteKind::kWait, "ready");
    trace_.wait(0, kCp, ready_, "ready");
    const auto [recv, send] = trace_.hop(0, kCp, "ring", {});
    site(SiteKind::kCall, "ring_recv");
    site(SiteKind::kCall, "ring_send");
    trace_.access(recv, in, AccessMode::kWrite);
    trace_.access(send, out, AccessMode::kRead);
    site(SiteKind::kRecord, "here");
    const uint64_t here = trace_.record(0, kCp, "here");
    trace_.kernel(0, kCompute, "statistics.watch", {});  // no site
    site(SiteKind::kWait, "here");
    trace_.wait(0, kCompute, here, "here");
    site(SiteKind::kKernel, "use");
    trace_.access(trace_.kernel(0, kCompute, "use", {}), in, AccessMode::kRead);
    trace_.host_sync(0, kCompute);
    trace_.host_sync(0, kCp);
    site(SiteKind::kKernel, "overwrite");
    trace_.access(trace_.kernel(0, kCompute, "overwrite", {}), out, AccessMode::kWrite);
    view_ = trace_.raw();
    for (SyncRow& sync : view_.syncs) sync.rank = 0;
    timeline_ = *timeline_of(view_, 0, sites_);
  }

  void site(SiteKind kind, const char* name) {
    Site s;
    s.index = uint32_t(sites_.size());
    s.kind = kind, s.name = name;
    sites_.push_back(s);
  }
  Unordered after(const std::string& op, std::vector<uint32_t> changed) {
    Mutation mutation;
    for (const MutationOpRow& row : mutation_ops())
      if (row.name == op.substr(0, op.find('='))) mutation.op = row.op;
    if (op.find('=') != std::string::npos) mutation.value = op.substr(op.find('=') + 1);
    return unordered_pairs(view_, with_edges_changed(timeline_, mutation, sites_, changed));
  }

  TraceBuilder trace_;
  TraceView view_;
  Timeline timeline_;
  std::vector<Site> sites_;
  uint64_t ready_ = 0;
};

using Ids = std::set<std::string>;

TEST_F(OrderTest, TheProgramItselfIsOrdered) { EXPECT_EQ(unordered_pairs(view_, timeline_).pairs, 0u); }

TEST_F(OrderTest, SitesAreFoundBesideStatisticsAndHostWaits) {
  EXPECT_EQ(timeline_.items[timeline_.item_of_site[7]].name, "use");
  std::vector<Site> other = sites_;
  other[7].name = "something";
  EXPECT_FALSE(timeline_of(view_, 0, other)) << "another program";
}

TEST_F(OrderTest, AWaitThatIsGone) {
  EXPECT_EQ(after("drop", {2}).ids, Ids{"race.send_before_ready"});
  EXPECT_EQ(after("drop", {6}).ids, Ids{"race.read_before_arrival"});
}

TEST_F(OrderTest, ARecordThatIsGoneOrTooEarly) {
  EXPECT_EQ(after("never", {1}).ids, Ids{"race.send_before_ready"});
  EXPECT_EQ(after("early", {1}).ids, Ids{"race.send_before_ready"});
  EXPECT_EQ(after("early", {5}).ids, Ids{"race.read_before_arrival"}) << "the group is one operation";
  EXPECT_EQ(after("stale", {1}).ids, Ids{"race.send_before_ready"}) << "there is no record before";
}

TEST_F(OrderTest, AWaitOnTheWrongStream) {
  EXPECT_EQ(after("stream=dp", {6}).ids, Ids{"race.read_before_arrival"});
  EXPECT_EQ(after("stream=compute", {6}).pairs, 0u) << "the stream that it is on";
}

TEST_F(OrderTest, AHostWaitOrdersAsWell) {
  // What overwrites the sent block comes after a host wait: no event is needed there.
  EXPECT_EQ(after("drop", {1, 2, 6}).ids, (Ids{"race.send_before_ready", "race.read_before_arrival"}));
}

TEST_F(OrderTest, MembersOfAGroupRunSideBySide) {
  TraceBuilder trace(1, 2, 1);
  const uint64_t one = trace.buffer(0, "one", 4096);
  const auto [recv, send] = trace.hop(0, kCp, "ring", {});
  trace.access(recv, one, AccessMode::kWrite);
  trace.access(send, one, AccessMode::kRead);
  std::vector<Site> sites(2);
  sites[0].kind = sites[1].kind = SiteKind::kCall;
  sites[0].name = "ring_recv", sites[1].name = "ring_send", sites[1].index = 1;
  EXPECT_EQ(unordered_pairs(trace.raw(), *timeline_of(trace.raw(), 0, sites)).pairs, 1u);
}

TEST_F(OrderTest, MemoryThatNothingWrote) {
  EXPECT_TRUE(reads_unwritten(timeline_, {0})) << "the block is sent";
  EXPECT_TRUE(reads_unwritten(timeline_, {3})) << "the block that would have come is used";
  EXPECT_FALSE(reads_unwritten(timeline_, {4})) << "nothing is written by a send";
  EXPECT_FALSE(reads_unwritten(timeline_, {8})) << "nobody reads what it would have written";
}

}  // namespace
