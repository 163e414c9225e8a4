// Prints the table of the labelled sweep, and how well the confidence of its verdicts held: of those given with c, at
// least the share c must be right. Arguments: [variants = 8] [clean runs = 200] [only faults named like X].
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
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

// Verdicts by the confidence they were given with.
class Calibration {
 public:
  void add(const Report& report, bool right) {
    for (const Finding& f : report.findings) {
      if (!f.root || f.id == "hang.undecided") continue;
      Bin& bin =
          bins_[size_t(std::upper_bound(std::begin(kFrom), std::end(kFrom), f.confidence) - std::begin(kFrom) - 1)];
      bin.sum += f.confidence;
      bin.right += right;
      ++bin.all;
    }
  }
  void print() const {
    std::printf("%-26s %10s %12s %10s\n", "confidence", "verdicts", "mean", "right");
    for (size_t i = 0; i < bins_.size(); ++i)
      if (bins_[i].all)
        std::printf("from %.2f %27d %12.3f %10.3f\n", kFrom[i], bins_[i].all, bins_[i].sum / bins_[i].all,
                    double(bins_[i].right) / bins_[i].all);
  }

 private:
  struct Bin {
    int all = 0, right = 0;
    double sum = 0;
  };
  static constexpr double kFrom[] = {0, 0.5, 0.7, 0.8, 0.9, 0.95};
  std::array<Bin, std::size(kFrom)> bins_;
};

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
  Calibration calibration;
  for (const Case& c : fault_cases(variants)) {
    if (!std::strstr(c.name.c_str(), only)) continue;
    Line& line = table[c.name.substr(0, c.name.find(' '))];
    const RecordedRun run = record_and_analyze(c.config);
    const std::string wrong = judge(c, run);
    ++line.runs;
    line.right += wrong.empty();
    calibration.add(run.report, wrong.empty());
    line.slowest = std::max(line.slowest, run.seconds);
    if (!wrong.empty()) std::printf("MISS  %-26s %s: %s\n", c.name.c_str(), describe(c.config).c_str(), wrong.c_str());
    const RecordedRun twin = run_twin(c);
    const std::string alarm = judge_clean(twin);
    calibration.add(twin.report, false);
    line.twin_clean += alarm.empty();
    if (!alarm.empty())
      std::printf("ALARM %-26s twin, %s: %s\n", c.name.c_str(), describe(c.config).c_str(), alarm.c_str());
    std::fflush(stdout);
  }
  int silent = 0;
  for (int i = 0; i < clean; ++i) {
    const JobConfig config = clean_config(i);
    const RecordedRun run = record_and_analyze(config);
    const std::string alarm = judge_clean(run);
    calibration.add(run.report, false);
    silent += alarm.empty();
    if (!alarm.empty()) std::printf("ALARM clean #%d, %s: %s\n", i, describe(config).c_str(), alarm.c_str());
    std::fflush(stdout);
  }
  std::printf("%-26s %10s %12s %10s\n", "fault", "right", "twin clean", "slowest s");
  for (const auto& [name, line] : table)
    std::printf("%-26s %6d/%-3d %8d/%-3d %10.2f\n", name.c_str(), line.right, line.runs, line.twin_clean, line.runs,
                line.slowest);
  std::printf("clean runs without a finding: %d of %d\n", silent, clean);
  calibration.print();
  return 0;
}
