// The vectorised kernels for AVX2.
#define RS_ISA_NAMESPACE isa_avx2
#define RS_VECTOR_BYTES 32
#define RS_VECTORS 2
#define RS_ISA_NAME "AVX2"
#include "runtime/kernels/cpu/simd.inc"

// After simd.inc, on which they build.
#include "runtime/kernels/cpu/flash_kernel.inc"
#include "runtime/kernels/cpu/pointwise_kernel.inc"

namespace ringscope {
const flash::Kernels& flash::avx2() { return isa_avx2::flash_kernels(); }
const pointwise::Kernels& pointwise::avx2() { return isa_avx2::pointwise_kernels(); }
}  // namespace ringscope
