// The attention kernels for one instruction set; see flash_kernel.inc.
#define RS_FLASH_NAMESPACE isa_baseline
#define RS_VECTOR_BYTES 16
#define RS_VECTORS 2
#define RS_ISA_NAME "SSE2"
#include "runtime/kernels/cpu/flash_kernel.inc"

namespace ringscope::flash {
const Kernels& baseline() { return isa_baseline::kernels(); }
}  // namespace ringscope::flash
