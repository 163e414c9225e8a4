// The labelled sweep: every planted fault in at least eight configurations, each with its clean twin, and clean
// runs of mixed configurations. Used in full by the benchmark and reduced by the test suite.
#pragma once

#include <string>
#include <vector>

#include "tests/sweep/recorded_run.h"

namespace ringscope::testing {

struct Case {
  std::string name;     // "ring-early-exit #3"
  JobConfig config;     // with the fault planted
  std::string finding;  // expected root; "" = none
  std::vector<std::string> implied;
  std::vector<int> ranks;     // accused
  int layer = -1, step = -1;  // expected place, -1 = not checked
  int hop = -1;               // ring step, -1 = not checked
  std::string group;          // axis of the group; "*" = any that the accused is a member of; "" = the fault has none
};

// `variants` configurations of every fault (8 or more for the full table).
std::vector<Case> fault_cases(int variants);
// Clean configuration number `i` of a fixed mixture: layouts, jitter, emulated links, k = 0, turns by seeds.
JobConfig clean_config(int i);

// "" = as expected; otherwise what differs, in one line.
std::string judge(const Case& c, const RecordedRun& run);
// "" = no finding at all.
std::string judge_clean(const RecordedRun& run);
std::string describe(const JobConfig& config);

}  // namespace ringscope::testing
