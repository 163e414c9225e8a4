// The LSE merge on a GPU. Pointers are device memory; `stream` is a cudaStream_t (nullptr: the default
// stream).
#pragma once

#include "runtime/kernels/cuda/lse_merge_body.h"

namespace ringscope::cuda {

// Enqueues the merge; returns the cudaError_t of the launch (0 = success). No rows: nothing is launched.
int lse_merge(const LseMerge<float>&, void* stream);
int lse_merge(const LseMerge<double>&, void* stream);

}  // namespace ringscope::cuda
