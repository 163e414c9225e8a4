// Cost of a record: off, on (median, p99.99), and of an intern hit. Prints one line a measurement.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "probes/recorder/emit.h"
#include "tracedb/spool/spool.h"

using namespace ringscope;

namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double mean_ns(uint64_t records) {
  const double from = seconds();
  for (uint64_t i = 0; i < records; ++i) {
    emit(RecordKind::kAccess, AccessRecord{i, i, 0, i, 1});
    asm volatile("" ::: "memory");
  }
  return (seconds() - from) * 1e9 / double(records);
}

void print_tail(uint64_t records) {
  const TickKind kind = tsc_is_invariant() ? TickKind::kTsc : TickKind::kMonotonic;
  const double ticks_per_ns = measure_ticks_per_ns(kind);
  std::vector<uint32_t> ticks(records), empty(records);
  for (uint64_t i = 0; i < records; ++i) {
    const uint64_t from = read_ticks(kind);
    emit(RecordKind::kAccess, AccessRecord{i, i, 0, i, 1});
    ticks[i] = uint32_t(read_ticks(kind) - from);
  }
  for (uint64_t i = 0; i < records; ++i) {
    const uint64_t from = read_ticks(kind);
    empty[i] = uint32_t(read_ticks(kind) - from);
  }
  std::sort(ticks.begin(), ticks.end());
  std::sort(empty.begin(), empty.end());
  const double clock_ticks = empty[records / 2];
  auto at = [&](double q) { return (ticks[size_t(q * double(records - 1))] - clock_ticks) / ticks_per_ns; };
  std::printf("record on, one by one    p50 %.1f  p99 %.1f  p99.9 %.1f  p99.99 %.1f ns (clock of %.1f ns taken off)\n",
              at(.5), at(.99), at(.999), at(.9999), clock_ticks / ticks_per_ns);
}

// What recording adds to a short run of many threads.
void print_short_run(const std::string& dir) {
  constexpr int kRuns = 20, kThreads = 40;
  double worst = 0, sum = 0;
  for (int run = 0; run < kRuns; ++run) {
    const std::string spool = dir + "/run" + std::to_string(run);
    rs_options options{};
    options.spool_dir = spool.c_str();
    options.mode = RS_MODE_STREAM;
    options.ring_bytes = 64 * 1024;
    const double from = seconds();
    if (rs_open(&options) != 0) return;
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([t] {
        rs_thread_attach(t, "bench");
        emit(RecordKind::kAccess, AccessRecord{});
      });
    for (auto& t : threads) t.join();
    rs_close();
    const double ms = (seconds() - from) * 1e3;
    worst = std::max(worst, ms);
    sum += ms;
  }
  std::printf("open, %d threads with 64 KiB rings, close  %.1f ms (worst of %d: %.1f)\n", kThreads, sum / kRuns, kRuns,
              worst);
}

}  // namespace

int main() {
  constexpr uint64_t kRecords = 10'000'000;
  mean_ns(kRecords / 10);
  std::printf("record off               %.2f ns\n", mean_ns(kRecords));
  std::string pattern = (std::filesystem::temp_directory_path() / "recorder-bench-XXXXXX").string();
  if (!mkdtemp(pattern.data())) return 1;
  const std::string spool = pattern + "/s";
  rs_options options{};
  options.spool_dir = spool.c_str();
  options.mode = RS_MODE_FLIGHT;
  const double from = seconds();
  if (rs_open(&options) != 0) {
    std::fprintf(stderr, "%s\n", rs_last_error());
    return 1;
  }
  rs_thread_attach(0, "bench");
  std::printf("open and one 4 MiB ring  %.2f ms\n", (seconds() - from) * 1e3);
  mean_ns(kRecords / 10);
  std::vector<double> means;
  for (int i = 0; i < 9; ++i) means.push_back(mean_ns(kRecords / 5));
  std::sort(means.begin(), means.end());
  std::printf("record on, in a row      %.2f ns (median of 9)\n", means[4]);
  print_tail(2'000'000);
  rs_close();
  print_short_run(pattern);
  std::filesystem::remove_all(pattern);
}
