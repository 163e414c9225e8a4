// Runs as two ctest entries: with the collector in NVTX_INJECTION64_PATH and without any tool. NVTX decides
// once a process whether a tool is attached, so the two cases cannot share one process.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "probes/nvtx/emit.h"
#include "tests/probes/nvtx/nvtx_collector.h"

namespace ringscope {
namespace {

Where place(int step, int layer, int ring_step) {
  Where where;
  where.step = step;
  where.layer = int16_t(layer);
  where.ring_step = int16_t(ring_step);
  where.pass = Pass::kBackward;
  return where;
}

// The collector's own counters, from the library that NVTX has loaded.
const NvtxCollectorSeen& seen() {
  const char* path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr) ADD_FAILURE() << "NVTX_INJECTION64_PATH names no collector";
  void* library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  if (library == nullptr) ADD_FAILURE() << "NVTX has not loaded " << path;
  using Read = const NvtxCollectorSeen*();
  return *reinterpret_cast<Read*>(dlsym(library, "nvtx_collector_seen"))();
}

TEST(NvtxWithTool, RangesCarryTheirPlaceAndBytes) {
  ASSERT_TRUE(nvtx::available());
  const NvtxCollectorSeen before = seen();
  {
    nvtx::Range outer("cp.ring_step", place(7, 3, 2), 4096);
    EXPECT_STREQ(seen().last_name, "cp.ring_step");
    EXPECT_EQ(seen().last_step, 7);
    EXPECT_EQ(seen().last_layer, 3);
    EXPECT_EQ(seen().last_ring_step, 2);
    EXPECT_EQ(seen().last_pass, int(Pass::kBackward));
    nvtx::Range inner("attn.flash", Where{}, 8);
    EXPECT_EQ(seen().last_step, -1) << "an unknown step must stay unknown";
    EXPECT_EQ(seen().last_pass, -1);
  }
  EXPECT_EQ(seen().pushes - before.pushes, 2);
  EXPECT_EQ(seen().pops - before.pops, 2);
  EXPECT_EQ(seen().payloads - before.payloads, 2);
  EXPECT_EQ(seen().bytes - before.bytes, 4104u);
  EXPECT_EQ(seen().schemas, 1) << "the schema is registered once a process";
}

TEST(NvtxWithTool, MarksAndThreadsAreCountedExactly) {
  const NvtxCollectorSeen before = seen();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 250; ++i) {
        nvtx::Range range("kernel", place(i, t, 0), 2);
        nvtx::mark("arrived", place(i, t, 1).pack(), 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(seen().pushes - before.pushes, 1000);
  EXPECT_EQ(seen().pops - before.pops, 1000);
  EXPECT_EQ(seen().marks - before.marks, 1000);
  EXPECT_EQ(seen().bytes - before.bytes, 3000u);
}

TEST(NvtxWithoutTool, CallsAreHarmlessAndCheap) {
  ASSERT_FALSE(nvtx::available());
  constexpr int kRanges = 1'000'000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kRanges; ++i) {
    nvtx::range_push("kernel", 0, 0);
    nvtx::range_pop();
  }
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  const double ns_per_range = spent.count() / kRanges;
  std::printf("ns per range without a tool: %.2f\n", ns_per_range);
  // Printed for the reader. The bound only catches a lock or a system call, also under a sanitizer.
  EXPECT_LT(ns_per_range, 1000.0);
}

}  // namespace
}  // namespace ringscope
