// Races by hand: both sides of a transfer, groups, the host, memory that nothing wrote or that went back, and what the
// calls of other ranks order. Every case is a pair: with the edge nothing is found.
#include <gtest/gtest.h>

#include "tests/support/trace_builder.h"
#include "tests/support/verdict.h"
#include "tools/analyze/analyze.h"

namespace ringscope {
namespace {

using testing::kCompute;
using testing::kCp;
using testing::kDp;
using testing::Lane;
using testing::TraceBuilder;

constexpr uint64_t kBytes = 4096;

std::string said(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings)
    text += (f.root ? "" : "(") + f.id + (f.root ? " " : ") ") + f.sentence + " fix: " + f.fix + "\n";
  return text;
}

// One root with this id on these ranks; "" = clean.
void expect(TraceBuilder& trace, const std::string& id, const std::vector<int>& ranks = {0}) {
  const Report report = analyze(trace.finish());
  if (id.empty()) {
    EXPECT_EQ(said(report), "");
    return;
  }
  ASSERT_EQ(report.findings.size(), 1u) << said(report);
  EXPECT_EQ(report.findings[0].id, id) << said(report);
  EXPECT_EQ(report.findings[0].ranks, ranks) << said(report);
  EXPECT_FALSE(report.findings[0].would_raise_confidence.empty());
}

Where at(int step = 0) {
  Where where;
  where.step = step;
  return where;
}

// Rank 0's program; rank 1 makes the same calls and nothing else.
class Two {
 public:
  explicit Two(std::function<void(Two&, int)> program) : trace(1, 2, 1) {
    for (rank = 0; rank < 2; ++rank) {
      trace.host_sync(rank, kCompute);  // edges are recorded
      program(*this, rank);
    }
  }
  uint64_t buffer(const std::string& name) { return trace.buffer(rank, name, kBytes); }
  // Memory whose whole life is in the trace.
  uint64_t fresh(const std::string& name, MemCategory category = MemCategory::kActivation) {
    const uint64_t id = buffer(name);
    trace.raw().buffers.back().alloc_ns = int64_t(trace.issues(rank)) * 100 + rank + 1;
    trace.raw().buffers.back().category = category;
    return id;
  }
  uint32_t kernel(const char* name, Lane lane = kCompute) { return trace.kernel(rank, lane, name, at()); }
  void reads(uint32_t op, uint64_t buffer, uint64_t begin = 0, uint64_t end = kBytes) {
    trace.access(op, buffer, AccessMode::kRead, begin, end);
  }
  void writes(uint32_t op, uint64_t buffer, uint64_t begin = 0, uint64_t end = kBytes) {
    trace.access(op, buffer, AccessMode::kWrite, begin, end);
  }
  void order(Lane first, Lane second) { trace.wait(rank, second, trace.record(rank, first)); }
  uint32_t host_read(uint64_t buffer, Lane lane = kCompute) {
    trace.host_sync(rank, lane);
    const uint32_t op = trace.kernel(rank, lane, "loss", at());
    trace.raw().ops[op].kind = OpKind::kHostRead;
    reads(op, buffer);
    return op;
  }
  std::pair<uint32_t, uint32_t> hop(const char* name) { return trace.hop(rank, kCp, name, at()); }

  TraceBuilder trace;
  int rank = 0;
};

TEST(Races, ASourceIsNotWrittenWhileItIsSent) {
  for (bool waits : {true, false}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.buffer("grad");
      t.reads(t.hop("x").second, x);
      if (waits || rank == 1) t.order(kCp, kCompute);
      t.writes(t.kernel("fill"), x);
    });
    expect(two.trace, waits ? "" : "race.send_buffer_reused");
  }
}

TEST(Races, TwoWritersNeedAnOrder) {
  for (bool waits : {true, false}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.buffer("ring.kv");
      t.writes(t.hop("x").first, x);
      if (waits || rank == 1) t.order(kCp, kCompute);
      t.writes(t.kernel("fill"), x, 1024, 2048);
    });
    expect(two.trace, waits ? "" : "race.write_write");
  }
}

// Kernels of two streams are no different from transfers.
TEST(Races, KernelsOfTwoStreams) {
  for (bool waits : {true, false}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.buffer("x");
      t.writes(t.kernel("make"), x);
      if (waits || rank == 1) t.order(kCompute, kDp);
      t.reads(t.kernel("use", kDp), x);
    });
    expect(two.trace, waits ? "" : "race.read_before_arrival");
  }
}

// Calls of a group run side by side, whatever their order in it.
TEST(Races, CallsOfAGroupShareNoBuffer) {
  for (bool shared : {false, true}) {
    Two two([&](Two& t, int) {
      const uint64_t x = t.buffer("x"), y = t.buffer("y");
      const auto [recv, send] = t.hop("x");
      t.writes(recv, x);
      t.reads(send, shared ? x : y);
    });
    expect(two.trace, shared ? "race.send_buffer_reused" : "", {0, 1});
  }
}

// A group is enqueued when it closes: an event recorded between its calls does not cover them.
TEST(Races, AnEventInsideOfAGroupDoesNotCoverIt) {
  for (bool inside : {false, true}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.buffer("x");
      const auto [recv, send] = t.hop("x");
      t.writes(recv, x);
      const uint64_t key = t.trace.record(t.rank, kCp);
      if (inside && rank == 0) {  // the record's row lies between the two calls
        TraceView& view = t.trace.raw();
        std::swap(view.syncs.back().issue, view.ops[send].issue);
      }
      t.trace.wait(t.rank, kCompute, key);
      t.reads(t.kernel("flash"), x);
    });
    expect(two.trace, inside ? "race.read_before_arrival" : "");
  }
}

// A wait binds the record that was the last one at the call.
TEST(Races, AStaleRecordOrdersOnlyWhatItSaw) {
  for (bool stale : {false, true}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.buffer("x");
      const uint64_t old = t.trace.record(t.rank, kCp, "done");
      t.writes(t.hop("x").first, x);
      const uint64_t key = t.trace.record(t.rank, kCp, "done");
      t.trace.wait(t.rank, kCompute, stale && rank == 0 ? old : key, "done");
      t.reads(t.kernel("flash"), x);
    });
    expect(two.trace, stale ? "race.read_before_arrival" : "");
  }
}

// The host's read comes after what it synchronised, and what the host enqueues afterwards comes after the read.
TEST(Races, TheHostReads) {
  for (bool ordered : {true, false}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.buffer("loss");
      t.writes(t.hop("x").first, x);
      if (ordered || rank == 1) t.order(kCp, kCompute);
      t.host_read(x, kCompute);
    });
    expect(two.trace, ordered ? "" : "race.read_before_arrival");
  }
  Two after([&](Two& t, int) {
    const uint64_t x = t.buffer("loss");
    t.writes(t.kernel("make"), x);
    t.host_read(x);
    t.writes(t.hop("x").first, x);  // on another stream, without an event: the host has read
  });
  expect(after.trace, "");
}

TEST(Races, MemoryThatNothingWrote) {
  for (uint64_t written : {kBytes, kBytes - 64, uint64_t(0)}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.fresh("x"), other = t.fresh("x");
      for (uint64_t buffer : {x, other}) {
        const uint32_t make = t.kernel("make");
        const uint64_t end = rank == 0 && buffer == x ? written : kBytes;
        if (end > 0) t.writes(make, buffer, 0, end);
        else t.writes(make, t.buffer("elsewhere"));
      }
      t.reads(t.kernel("use"), x);
      t.reads(t.kernel("use_again"), x);
      t.reads(t.kernel("use"), other);
    });
    TraceBuilder trace = two.trace;
    expect(two.trace, written == kBytes ? "" : "race.uninitialised_read");
    if (written == kBytes) continue;
    const Finding f = analyze(trace.finish()).findings[0];
    EXPECT_NE(f.sentence.find("bytes " + std::to_string(written) + "-4095"), std::string::npos) << f.sentence;
    EXPECT_NE(f.sentence.find("elsewhere 'make'"), std::string::npos) << f.sentence;
  }
}

TEST(Races, TheHostReadsWhatNothingWrote) {
  Two two([&](Two& t, int rank) {
    const uint64_t x = t.fresh("loss");
    if (rank == 1) t.writes(t.kernel("make"), x);
    t.host_read(x);
  });
  expect(two.trace, "race.uninitialised_read");
}

// What can have been written unseen is not judged: older than the trace, a kernel that declares nothing, losses, memory
// of the recording itself, and a measurement of what the program never reads.
TEST(Races, UnknownMemoryIsNotUnwritten) {
  for (int why = 0; why < 5; ++why) {
    Two two([&](Two& t, int) {
      const uint64_t x =
          why == 0 ? t.buffer("x") : t.fresh("x", why == 3 ? MemCategory::kStatistics : MemCategory::kKvRing);
      if (why == 1) t.kernel("opaque");
      const uint32_t use = t.kernel("use");
      t.reads(use, x);
      t.writes(use, t.fresh("y", why == 4 ? MemCategory::kStatistics : MemCategory::kKvRing));
    });
    TraceView view = two.trace.finish();
    if (why == 2) view.lost.push_back({-1, "ring", 1, 0, 1, 0});
    for (const Finding& f : analyze(view).findings) ADD_FAILURE() << why << f.sentence;
  }
}

TEST(Races, TheRootOfABroadcastOnlyReads) {
  Two two([&](Two& t, int rank) {
    const uint64_t x = t.fresh("x");
    if (rank == 0) t.writes(t.kernel("make"), x);
    t.order(kCompute, kCp);
    t.trace.coll(rank, kCp, Axis::kCp, CollFunc::kBroadcast, "weights", at());
    TraceView& view = t.trace.raw();
    view.colls.back().root = 0;
    const uint32_t op = view.colls.back().op;
    t.reads(op, x), t.writes(op, x);             // as older recordings say it of every member
    if (rank == 0) t.reads(t.kernel("use"), x);  // beside the broadcast, which only reads here
  });
  expect(two.trace, "");
}

TEST(Races, MemoryGoesBackInTheOrderOfAStream) {
  for (bool ordered : {true, false}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.fresh("x");
      t.writes(t.kernel("make"), x);
      t.order(kCompute, kCp);
      t.reads(t.hop("x").second, x);
      if (ordered || rank == 1) t.order(kCp, kCompute);
      t.writes(t.kernel("next"), t.buffer("y"));
      BufferRow& row = t.trace.raw().buffers[x - 1];
      row.free_ns = int64_t(t.trace.issues(rank)) * 100 + rank + 50;
      row.free_stream = TraceBuilder::stream(rank, kCompute);
      t.writes(t.kernel("later"), t.buffer("y"));
    });
    expect(two.trace, ordered ? "" : "race.freed_in_use");
  }
  Two late([&](Two& t, int rank) {
    const uint64_t x = t.fresh("x");
    t.writes(t.kernel("make"), x);
    t.trace.raw().buffers[x - 1].free_ns = int64_t(t.trace.issues(rank)) * 100 + rank + 50;
    if (rank == 0) t.reads(t.kernel("use"), x);
  });
  expect(late.trace, "race.freed_in_use");
}

// Rank 0's kernel reads a block, and its receive on another stream overwrites it. No event of rank 0 orders the two; but
// what it receives was only sent after rank 1 had taken part in a collective that rank 0 entered behind the kernel.
TEST(Races, TheCallsOfOtherRanksOrderToo) {
  for (bool answered : {true, false}) {
    Two two([&](Two& t, int rank) {
      const uint64_t x = t.buffer("x");
      if (rank == 0) {
        t.reads(t.kernel("flash"), x);
        t.trace.coll(rank, kCompute, Axis::kCp, CollFunc::kAllReduce, "sum", at(), 1);
      } else {
        t.trace.coll(rank, kCompute, Axis::kCp, CollFunc::kAllReduce, "sum", at(), 1);
        if (answered) t.order(kCompute, kCp);
      }
      t.writes(t.hop("x").first, rank == 0 ? x : t.buffer("y"));
    });
    expect(two.trace, answered ? "" : "race.overwrite_before_read");
  }
}

// Who leaves a call out has nothing in its target: that follows.
TEST(Races, AnEmptyTargetOfACallThatWasLeftOut) {
  TraceBuilder trace(1, 4, 1);
  for (int rank = 0; rank < 4; ++rank) {
    for (int step = 0; step < 3; ++step) {
      const uint64_t x = trace.buffer(rank, "parts", kBytes);
      trace.raw().buffers.back().alloc_ns = int64_t(trace.issues(rank)) * 100 + rank + 1;
      if (rank != 2 || step != 2) {
        trace.coll(rank, kCp, Axis::kCp, CollFunc::kAllGather, "gather", at(step), 64);
        trace.access(trace.raw().colls.back().op, x, AccessMode::kWrite);
        trace.wait(rank, kCompute, trace.record(rank, kCp));
      }
      trace.access(trace.kernel(rank, kCompute, "use", at(step)), x, AccessMode::kRead);
    }
  }
  const Report report = analyze(trace.finish());
  ASSERT_EQ(report.findings.size(), 2u) << said(report);
  EXPECT_EQ(report.findings[0].id, "hang.missing_rank");
  EXPECT_EQ(report.findings[1].id, "race.uninitialised_read");
  EXPECT_EQ(report.findings[1].caused_by, 0);
}

}  // namespace
}  // namespace ringscope
