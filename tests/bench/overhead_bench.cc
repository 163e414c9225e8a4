// What recording costs a job: the default job (the demo's: 8 ranks as threads, each with its host and stream tasks) with the
// recorder off, in flight mode and in stream mode, interleaved in one process; ratios are medians over rounds of the
// same minute. Then the cost of the runtime itself: a step of the same layout with next to no arithmetic.
// Arguments: [rounds = 7].
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "probes/recorder/recorder.h"
#include "runtime/train/train.h"

using namespace ringscope;

namespace {

enum class Recorder { kOff, kFlight, kStream };

struct Run {
  double seconds = 0;         // all of it, with the creation of the rings and the last drain
  double seconds_a_step = 0;  // median step of rank 0
  double cpu_seconds = 0;     // user and system, all threads
  uint64_t records = 0, dropped = 0;
};

double cpu_seconds() {
  rusage use{};
  getrusage(RUSAGE_SELF, &use);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

Run run(const JobConfig& config, Recorder recorder) {
  namespace fs = std::filesystem;
  const fs::path dir = fs::temp_directory_path() / ("ringscope-overhead-" + std::to_string(getpid()));
  const std::string spool = dir.string();
  const double cpu = cpu_seconds();
  const auto from = std::chrono::steady_clock::now();
  if (recorder != Recorder::kOff) {
    rs_options options{};
    options.spool_dir = spool.c_str();
    options.mode = recorder == Recorder::kStream ? RS_MODE_STREAM : RS_MODE_FLIGHT;
    options.threads_expected = config.world() * 5 + 2;
    if (rs_open(&options) != 0) {
      std::fprintf(stderr, "%s\n", rs_last_error());
      std::exit(1);
    }
  }
  const auto result = train(config, {});
  Run out;
  if (recorder != Recorder::kOff) {
    const rs_counts counts = rs_count();
    out.records = counts.written;
    out.dropped = counts.dropped;
    rs_close();  // drains what is left: part of the cost
  }
  out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  out.cpu_seconds = cpu_seconds() - cpu;
  std::error_code ignored;
  fs::remove_all(dir, ignored);
  if (!result || result->end != RunEnd::kCompleted) {
    std::fprintf(stderr, "the run did not complete: %s\n", result ? "stalled" : result.error().message.c_str());
    std::exit(1);
  }
  std::vector<double> steps;
  for (const StepReport& step : result->steps)
    steps.push_back(double(config.global_batch_size) * config.seq_length / step.tokens_per_s);
  out.seconds_a_step = median(steps);
  return out;
}

void tracing_overhead(int rounds) {
  const JobConfig config = default_job();
  std::vector<double> off, flight, stream, flight_run, stream_run, flight_cpu, stream_cpu;
  Run last{};
  run(config, Recorder::kOff);  // warm up
  for (int i = 0; i < rounds; ++i) {
    const Run base = run(config, Recorder::kOff);
    const Run in_flight = run(config, Recorder::kFlight);
    last = run(config, Recorder::kStream);
    off.push_back(base.seconds_a_step);
    flight.push_back(in_flight.seconds_a_step / base.seconds_a_step);
    stream.push_back(last.seconds_a_step / base.seconds_a_step);
    flight_run.push_back(in_flight.seconds / base.seconds);
    stream_run.push_back(last.seconds / base.seconds);
    flight_cpu.push_back(in_flight.cpu_seconds / base.cpu_seconds);
    stream_cpu.push_back(last.cpu_seconds / base.cpu_seconds);
  }
  const auto [least, most] = std::minmax_element(off.begin(), off.end());
  std::printf("default job, recorder off   %.1f ms a step (median of %d runs of %d steps; %.1f to %.1f)\n",
              1e3 * median(off), rounds, config.train_iters, 1e3 * *least, 1e3 * *most);
  std::printf("flight mode / off           %.3f a step, %.3f whole run, %.3f CPU time\n", median(flight),
              median(flight_run), median(flight_cpu));
  std::printf(
      "stream mode / off           %.3f a step, %.3f whole run, %.3f CPU time   (%.0f records a step, %llu dropped)\n",
      median(stream), median(stream_run), median(stream_cpu), double(last.records) / config.train_iters,
      static_cast<unsigned long long>(last.dropped));
}

void runtime_overhead(int rounds) {
  JobConfig config = default_job();
  config.model.num_layers = 1;
  config.model.hidden_size = 16;
  config.model.num_attention_heads = 4;
  config.model.num_query_groups = 2;
  config.model.ffn_hidden_size = 16;
  config.seq_length = 8;
  config.global_batch_size = 2;
  for (const bool turns : {false, true}) {
    config.turns = turns;
    std::vector<double> steps;
    for (int i = 0; i < rounds; ++i)
      steps.push_back(run(config, Recorder::kOff).seconds / config.train_iters);  // turns have no clock
    std::printf("one tiny layer, 8 ranks, %-5s %.2f ms a step\n", turns ? "turns" : "free", 1e3 * median(steps));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 && argv[1][0] != '-' ? std::max(1, std::atoi(argv[1])) : 7;
  tracing_overhead(rounds);
  runtime_overhead(rounds);
  return 0;
}
