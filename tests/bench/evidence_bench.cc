// Prints the table of evidence taken away: recorded hangs judged again without one kind of evidence, with all that only
// our runtime reports removed at once, and with random subsets. Arguments: [variants = 8] [subsets = 200].
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

#include "tests/sweep/evidence.h"
#include "tools/analyze/analyze.h"

using namespace ringscope;
using namespace ringscope::testing;

namespace {

struct Line {
  int count[3] = {};
  void add(Judgement judgement) { ++count[int(judgement)]; }
};

}  // namespace

int main(int argc, char** argv) {
  const bool numbers = argc > 1 && argv[1][0] != '-';
  const int variants = numbers ? std::atoi(argv[1]) : 8, subsets = numbers && argc > 2 ? std::atoi(argv[2]) : 200;
  std::map<std::string, std::map<std::string, Line>> table;  // removed -> fault
  std::vector<std::string> order;
  const auto line = [&](const std::string& removed, const Case& c) -> Line& {
    if (!table.contains(removed)) order.push_back(removed);
    return table[removed][c.name.substr(0, c.name.find(' '))];
  };
  std::mt19937_64 random(1);
  for (const Case& c : hang_cases(variants)) {
    const RecordedRun run = record_and_analyze(c.config);
    line("nothing", c).add(judge_without(c, run.view, run.report));
    TraceView structure = run.view;
    for (size_t i = 0; i < removals().size(); ++i) {
      for (uint64_t seed = 0; seed < (i < kStructure ? 1 : 8); ++seed) {
        TraceView view = run.view;
        removals()[i].take(view, c.ranks, seed);
        line(removals()[i].name, c).add(judge_without(c, view, analyze(view)));
      }
      if (i < kStructure) removals()[i].take(structure, c.ranks, 0);
    }
    line("the first five together", c).add(judge_without(c, structure, analyze(structure)));
    for (int round = 0; round < subsets; ++round) {
      TraceView view = run.view;
      std::string taken;
      for (const Removal& removal : removals()) {
        if (random() % 3) continue;
        removal.take(view, c.ranks, random());
        taken += std::string(taken.empty() ? "" : ", ") + removal.name;
      }
      const Report report = analyze(view);
      const bool nothing_left = view.ops.empty() || view.ops.front().rank == view.ops.back().rank;
      if (nothing_left) continue;
      const Judgement judgement = judge_without(c, view, report);
      line("a random subset", c).add(judgement);
      if (judgement == Judgement::kWrong)
        std::printf("WRONG %s without %s: %s\n", c.name.c_str(), taken.c_str(),
                    report.findings.empty() ? "nothing" : report.findings[0].sentence.c_str());
    }
  }
  std::printf("%-26s (right / careful / wrong)\n", "removed");
  for (const std::string& removed : order) {
    std::printf("%-26s", removed.c_str());
    for (const auto& [fault, l] : table[removed])
      std::printf("  %s %d/%d/%d", fault.c_str(), l.count[0], l.count[1], l.count[2]);
    std::printf("\n");
  }
  return 0;
}
