// Happens-before race detection: accesses per second, for whole-buffer operations as in a ring, and for the
// fragmented worst case (100 000 small intervals in one buffer). Prints; asserts nothing but a clean result.
#include <benchmark/benchmark.h>

#include <random>

#include "tests/support/trace_builder.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

using testing::kCompute;
using testing::kCp;
using testing::TraceBuilder;

void run(benchmark::State& state, const TraceView& view) {
  for (auto _ : state) {
    const TraceIndex index(view);
    const std::vector<Finding> found = races(index);
    if (!found.empty()) state.SkipWithError("a clean trace gave a finding");
    benchmark::DoNotOptimize(found.data());
  }
  state.SetItemsProcessed(state.iterations() * int64_t(view.accesses.size()));
}

void BM_RingDoubleBuffer(benchmark::State& state) {
  TraceBuilder trace(1, 2, 1);
  for (int rank = 0; rank < 2; ++rank) {
    const uint64_t ring[2] = {trace.buffer(rank, "ring.kv", 1 << 20), trace.buffer(rank, "ring.kv", 1 << 20)};
    Where where;
    where.step = 0;
    uint64_t computed[2] = {};
    for (int t = 0; t < int(state.range(0)); ++t) {
      if (computed[t % 2]) trace.wait(rank, kCp, computed[t % 2]);
      const auto [recv, send] = trace.hop(rank, kCp, "ring.kv", where);
      trace.access(recv, ring[t % 2], AccessMode::kWrite, 0, 1 << 20);
      trace.access(send, ring[(t + 1) % 2], AccessMode::kRead, 0, 1 << 20);
      trace.wait(rank, kCompute, trace.record(rank, kCp));
      const uint32_t flash = trace.kernel(rank, kCompute, "flash_forward", where);
      trace.access(flash, ring[t % 2], AccessMode::kRead, 0, 1 << 20);
      computed[t % 2] = trace.record(rank, kCompute);
    }
  }
  run(state, trace.finish());
}
BENCHMARK(BM_RingDoubleBuffer)->Arg(50'000)->Unit(benchmark::kMillisecond);

void BM_Fragmented(benchmark::State& state) {
  constexpr uint64_t kIntervals = 100'000;
  TraceBuilder trace(1, 2, 1);
  std::mt19937_64 random(1);
  const uint64_t buffer = trace.buffer(0, "pages", kIntervals * 64);
  Where where;
  where.step = 0;
  testing::Lane last = kCompute;
  for (int i = 0; i < int(state.range(0)); ++i) {
    const testing::Lane lane = i / 64 % 3 ? kCompute : testing::kDp;  // what is measured is the shadow, not the edges
    if (lane != last) trace.wait(0, lane, trace.record(0, last));
    last = lane;
    const uint32_t op = trace.kernel(0, lane, "touch", where);
    const uint64_t first = random() % kIntervals, count = 1 + random() % 8;
    trace.access(op, buffer, i % 4 == 0 ? AccessMode::kWrite : AccessMode::kRead, first * 64,
                 std::min(first + count, kIntervals) * 64);
  }
  run(state, trace.finish());
}
BENCHMARK(BM_Fragmented)->Arg(300'000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ringscope

BENCHMARK_MAIN();
