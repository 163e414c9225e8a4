// The build without NCCL's header.
#include "probes/nccl/nccl_probe.h"

namespace ringscope {

NcclStatus nccl_status(const std::string&) {
  NcclStatus status;
  status.why = "built without the NCCL header";
  return status;
}

}  // namespace ringscope
