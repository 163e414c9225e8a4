// Which ranks must hold the same bits, and do not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/analyze/numeric/step_numbers.h"

namespace ringscope {

// Stages of a step at which values are compared, in the order in which they come about. Between two of them sums and
// formulas are checked (consistency.cc).
enum class CopyStage { kOwnGradient, kOverTp, kOverCp, kReduced, kNumbers, kUpdated };

struct CopyBreak {
  int step = -1;
  CopyStage stage = CopyStage::kUpdated;
  std::vector<int> odd;      // those that a majority of all that may hold it speaks against, sorted; empty = none does
  std::vector<int> most;     // the larger side
  std::string sides;         // "ranks 0-1 | ranks 2-3"
  std::string what;          // "gradient of layer.weight (slice 0)"
  std::string table;         // of the rows
  std::vector<size_t> rows;  // of the first value that differs
  Where where;
  size_t values = 0;    // that differ, of all steps
  double coverage = 1;  // share of the ranks that may hold it which recorded it
};
// The first that differ: by step, stage, and order of the record.
std::optional<CopyBreak> first_copy_break(const TraceIndex& index, const StepNumbers& numbers);

}  // namespace ringscope
