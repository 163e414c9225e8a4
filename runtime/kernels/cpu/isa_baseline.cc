// The vectorised kernels for every processor of the architecture.
#define RS_ISA_NAMESPACE isa_baseline
#define RS_VECTOR_BYTES 16
#define RS_VECTORS 2
#define RS_ISA_NAME "baseline"
#include "runtime/kernels/cpu/simd.inc"

// After simd.inc, on which they build.
#include "runtime/kernels/cpu/flash_kernel.inc"
#include "runtime/kernels/cpu/pointwise_kernel.inc"

namespace ringscope {
const flash::Kernels& flash::baseline() { return isa_baseline::flash_kernels(); }
const pointwise::Kernels& pointwise::baseline() { return isa_baseline::pointwise_kernels(); }
}  // namespace ringscope
