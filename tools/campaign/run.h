// One recorded run of a campaign: trained in this process, read back, diagnosed. The rules come from outside: this folder
// knows none of them.
#pragma once

#include <functional>
#include <string>

#include "runtime/train/train.h"
#include "tools/campaign/judge.h"
#include "tools/campaign/layouts.h"
#include "tracedb/model/finding.h"

namespace ringscope::campaign {

using Diagnose = std::function<Report(const TraceView&)>;

struct Run {
  RunEnd end = RunEnd::kCompleted;
  std::vector<RankValues> values;  // by rank, of a completed run
  TraceView view;
  Report report;
};

// kUsage: the runtime refuses it (a mutation that cannot be applied). Nothing of it stays on the disk.
Result<Run> record(const JobConfig& config, Keep keep, const Diagnose& diagnose,
                   const std::function<bool()>& interrupted);

// What became of the mutant, by the bits of both. The edges are the judge's.
Measured measure(const Mutation& mutation, const JobConfig& config, const Run& mutant, const Run& twin);

}  // namespace ringscope::campaign
