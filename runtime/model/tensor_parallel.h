// Tensor parallelism with and without Megatron's sequence parallelism (arXiv 2205.05198): how activations enter
// and leave the region in which every TP rank holds all tokens and a part of the features.
//
//            forward                       backward
//   enter    SP: all-gather(S)   else: -    SP: reduce-scatter(S)   else: all-reduce
//   leave    SP: reduce-scatter  else: AR   SP: all-gather(S)       else: -
// Outside the region, with SP, a rank holds T/TP consecutive rows of the flattened tokens; without, all T.
// All on the compute stream; names are literals for the trace.
#pragma once

#include "runtime/model/context.h"

namespace ringscope::tensor_parallel {

Tensor enter(RankContext&, const Tensor& x, const char* name);            // [Ts,H] -> [T,H]
Tensor enter_backward(RankContext&, const Tensor& dx, const char* name);  // [T,H] partial -> [Ts,H]
Tensor leave(RankContext&, const Tensor& y, const char* name);            // [T,H] partial -> [Ts,H]
Tensor leave_backward(RankContext&, const Tensor& dy, const char* name);  // [Ts,H] -> [T,H]

// Rows of T that this rank holds outside the region.
int64_t first_row(const RankContext&, int64_t tokens);
int64_t row_count(const RankContext&, int64_t tokens);

}  // namespace ringscope::tensor_parallel
