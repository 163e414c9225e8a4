// Campaign: thousands of single mutations that nobody chose, over random layouts, each beside its twin, each judged.
// Everything follows from the seed.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/campaign/judge.h"
#include "tools/campaign/layouts.h"
#include "tools/campaign/run.h"

namespace ringscope::campaign {

struct Options {
  uint64_t seed = 1;
  int count = 100;
  int mutants_per_layout = 3;
  FixedFlags fixed;  // written over every job
};

struct Told {  // one finding of a report
  std::string id;
  bool root = true;
  std::vector<int> ranks;
};

struct Row {
  Mutation mutation;
  Layout layout;
  Expected expected;
  VerdictKind verdict = VerdictKind::kRight;
  std::vector<Told> findings;
  double seconds = 0;  // of the mutant's run and diagnosis
};
// "ringscope train --tp 2 ... --mutate '...' --diagnose"; null = of the twin.
std::string command_of(const Layout& layout, const Mutation* mutation);

struct Twin {
  Layout layout;
  bool false_alarm = false;
  std::vector<Told> findings;
};

struct Outcome {
  std::vector<Row> rows;
  std::vector<Twin> twins;
  int refused = 0;                        // draws that the runtime refused; drawn again
  std::vector<std::string> without_site;  // operations that no job of this campaign had a site for
  std::vector<std::string> errors;        // bugs: of the runtime, of the trace, of the judge
  bool interrupted = false;
};

struct Hooks {
  Diagnose diagnose;
  std::function<bool()> interrupted;                         // polled; may be empty
  std::function<void(const std::string& command)> on_begin;  // before a run; may be empty
  std::function<void(const Outcome& so_far)> on_row;         // after it; may be empty
};

// kUsage: the fixed flags leave no valid job.
Result<Outcome> run_campaign(const Options& options, const Hooks& hooks);

// The denominators of the campaign, decided by the judge.
struct Share {
  int all = 0, right = 0, partly = 0, careful = 0, missed = 0, wrong = 0;
  void add(VerdictKind kind);
};
struct Summary {
  int mutants = 0, layouts = 0, twins = 0;
  Share decidable_hangs, undecidable_hangs, exits, visible_corrupt, nameless_corrupt, needed_edges;
  int redundant_edges = 0, redundant_told = 0;
  int harmless = 0, harmless_alarms = 0, twin_alarms = 0;
  int silent = 0, silent_accused = 0;
  int wrong = 0;         // accusations of somebody else, over all effects
  int false_alarms = 0;  // on harmless mutants and on twins
  std::map<std::string, std::map<std::string, int>> by_operation, by_effect;  // verdicts
};
Summary summarise(const Outcome& outcome);

}  // namespace ringscope::campaign
