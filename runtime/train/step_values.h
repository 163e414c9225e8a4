// Numbers of a step for the trace: loss sums, counts, divisors, norms, before and after each of their reductions.
// Each is written down by the kernel that reads it, on its stream, so that what stands still later does not hide it.
// Nothing with the recorder off. Thread rule: the rank's host task.
#pragma once

#include <initializer_list>

#include "runtime/model/context.h"

namespace ringscope {

// Element i of `values` (fp64, on the compute stream) is the i-th quantity. `over`: whose reduction they come from.
void record_step_values(const RankContext& context, const Tensor& values,
                        std::initializer_list<StepQuantity> quantities, const Communicator* over = nullptr);

}  // namespace ringscope
