// From reduced gradients to updated parameters: the norm, the clip factor, the optimizer's arithmetic. Each is a
// formula over what was recorded.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/analyze/numeric/step_numbers.h"

namespace ringscope {

struct UpdateBreak {
  enum Stage { kOwnNorm, kNormOverTp, kClip, kUpdate } stage = kOwnNorm;
  int step = -1;
  std::vector<int> ranks;  // whose numbers do not follow, sorted
  bool everybody = false;  // every rank that could show it does
  std::string sentence;    // behind the ranks
  std::string table;       // of the rows
  std::vector<size_t> rows;
  Where where;
  size_t observations = 1;
};
// The first step's first stage at which it breaks.
std::optional<UpdateBreak> first_update_break(const TraceIndex& index, const StepNumbers& numbers);

}  // namespace ringscope
