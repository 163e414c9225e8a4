// Prints the table of the labelled sweep. Arguments: [variants = 8] [clean runs = 200] [only faults named like X].
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tests/sweep/sweep.h"

using namespace ringscope;
using namespace ringscope::testing;

namespace {

// The twin of a case: the same job without the fault.
RecordedRun run_twin(Case c) {
  c.config.fault = {};
  return record_and_analyze(c.config);
}

}  // namespace

int main(int argc, char** argv) {
  const bool numbers = argc > 1 && argv[1][0] != '-';  // ./dev bench hands flags of Google Benchmark to all
  const int variants = numbers ? std::atoi(argv[1]) : 8, clean = numbers && argc > 2 ? std::atoi(argv[2]) : 200;
  const char* only = numbers && argc > 3 ? argv[3] : "";
  struct Line {
    int right = 0, runs = 0, twin_clean = 0;
    double slowest = 0;
  };
  std::map<std::string, Line> table;
  for (const Case& c : fault_cases(variants)) {
    if (!std::strstr(c.name.c_str(), only)) continue;
    Line& line = table[c.name.substr(0, c.name.find(' '))];
    const RecordedRun run = record_and_analyze(c.config);
    const std::string wrong = judge(c, run);
    ++line.runs;
    line.right += wrong.empty();
    line.slowest = std::max(line.slowest, run.seconds);
    if (!wrong.empty()) std::printf("MISS  %-26s %s: %s\n", c.name.c_str(), describe(c.config).c_str(), wrong.c_str());
    const std::string alarm = judge_clean(run_twin(c));
    line.twin_clean += alarm.empty();
    if (!alarm.empty())
      std::printf("ALARM %-26s twin, %s: %s\n", c.name.c_str(), describe(c.config).c_str(), alarm.c_str());
    std::fflush(stdout);
  }
  int silent = 0;
  for (int i = 0; i < clean; ++i) {
    const JobConfig config = clean_config(i);
    const std::string alarm = judge_clean(record_and_analyze(config));
    silent += alarm.empty();
    if (!alarm.empty()) std::printf("ALARM clean #%d, %s: %s\n", i, describe(config).c_str(), alarm.c_str());
    std::fflush(stdout);
  }
  std::printf("%-26s %10s %12s %10s\n", "fault", "right", "twin clean", "slowest s");
  for (const auto& [name, line] : table)
    std::printf("%-26s %6d/%-3d %8d/%-3d %10.2f\n", name.c_str(), line.right, line.runs, line.twin_clean, line.runs,
                line.slowest);
  std::printf("clean runs without a finding: %d of %d\n", silent, clean);
  return 0;
}
