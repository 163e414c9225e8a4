// The loss of a step, followed through all its stages: counted, summed, divided, reduced, reported, and turned into a
// gradient. Needs numbers between the reductions (StepNumbers).
#pragma once

#include <optional>

#include "tools/analyze/numeric/step_numbers.h"

namespace ringscope {

// The first stage of the first step that does not follow from the one before it, with all ranks whose numbers show it.
// A detour that comes to the token mean all the same (loss and gradients) is no mistake.
std::optional<Finding> broken_loss_chain(const TraceIndex& index, const StepNumbers& numbers);

}  // namespace ringscope
