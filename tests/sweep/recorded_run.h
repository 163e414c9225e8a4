// Trains in this process with the recorder on, then reads the spool back and analyzes it: the whole way that a
// user's job goes, without the command line.
#pragma once

#include <string>

#include "runtime/train/train.h"
#include "tracedb/model/finding.h"

namespace ringscope::testing {

struct RecordedRun {
  std::string error;  // of train() or of the import; empty = fine
  TrainResult result;
  TraceView view;
  Report report;
  double seconds = 0;        // of train()
  double stall_seconds = 0;  // from the last finished step (or the start) to the report of the stall; 0 = none
  bool stall_by_time = false;
};

RecordedRun record_and_analyze(const JobConfig& config);

}  // namespace ringscope::testing
