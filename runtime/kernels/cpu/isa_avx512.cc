// The vectorised kernels for AVX-512.
#define RS_ISA_NAMESPACE isa_avx512
#define RS_VECTOR_BYTES 64
#define RS_VECTORS 4
#define RS_ISA_NAME "AVX-512"
#include "runtime/kernels/cpu/simd.inc"

// After simd.inc, on which they build.
#include "runtime/kernels/cpu/flash_kernel.inc"
#include "runtime/kernels/cpu/pointwise_kernel.inc"

namespace ringscope {
const flash::Kernels& flash::avx512() { return isa_avx512::flash_kernels(); }
const pointwise::Kernels& pointwise::avx512() { return isa_avx512::pointwise_kernels(); }
}  // namespace ringscope
