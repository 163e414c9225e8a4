// The float64 oracle under the signature of the flash kernels (attention_backend: oracle). Quadratic memory, one
// thread, no dropout on attention weights (validate() refuses the combination): a yardstick, not a kernel.
#pragma once

#include "runtime/attention/attention.h"

namespace ringscope {
AttentionKernels oracle_kernels();
}  // namespace ringscope
