// The attention kernels for one instruction set; see flash_kernel.inc.
#define RS_FLASH_NAMESPACE isa_avx512
#define RS_VECTOR_BYTES 64
#define RS_VECTORS 4
#define RS_ISA_NAME "AVX-512"
#include "runtime/kernels/cpu/flash_kernel.inc"

namespace ringscope::flash {
const Kernels& avx512() { return isa_avx512::kernels(); }
}  // namespace ringscope::flash
