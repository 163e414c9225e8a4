// The attention kernels for one instruction set; see flash_kernel.inc.
#define RS_FLASH_NAMESPACE isa_avx2
#define RS_VECTOR_BYTES 32
#define RS_VECTORS 2
#define RS_ISA_NAME "AVX2"
#include "runtime/kernels/cpu/flash_kernel.inc"

namespace ringscope::flash {
const Kernels& avx2() { return isa_avx2::kernels(); }
}  // namespace ringscope::flash
