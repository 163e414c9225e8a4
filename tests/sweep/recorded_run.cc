#include "tests/sweep/recorded_run.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>

#include "probes/recorder/recorder.h"
#include "tools/analyze/analyze.h"
#include "tracedb/import/registry.h"

namespace ringscope::testing {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

}  // namespace

RecordedRun record_and_analyze(const JobConfig& config) {
  namespace fs = std::filesystem;
  static int counter = 0;
  const fs::path dir = fs::temp_directory_path() /
                       ("ringscope-sweep-" + std::to_string(getpid()) + "-" + std::to_string(counter++)) / "run.spool";
  fs::create_directories(dir.parent_path());
  RecordedRun run;
  const std::string spool = dir.string();
  rs_options options{};
  options.spool_dir = spool.c_str();
  options.mode = RS_MODE_STREAM;
  options.threads_expected = config.world() * 4;
  options.ring_bytes = 1 << 20;
  if (rs_open(&options) != 0) {
    run.error = rs_last_error();
    return run;
  }
  const auto started = Clock::now();
  std::atomic<Clock::time_point> progress = started;  // written by rank 0's thread
  TrainHooks hooks;
  hooks.on_progress = [&](const StepReport&) { progress = Clock::now(); };
  hooks.on_stall = [&](const StallSnapshot& stall) {
    run.stall_seconds = seconds_since(progress);
    run.stall_by_time = stall.by_time;
  };
  auto result = train(config, hooks);
  run.seconds = seconds_since(started);
  rs_close();
  if (!result) {
    run.error = result.error().message;
  } else {
    run.result = std::move(*result);
    auto view = load_paths({spool});
    if (view) {
      run.view = std::move(*view);
      run.report = analyze(run.view);
    } else {
      run.error = view.error().message;
    }
  }
  std::error_code ignored;
  fs::remove_all(dir.parent_path(), ignored);
  return run;
}

}  // namespace ringscope::testing
