#include "probes/nccl/nccl_probe.h"

namespace ringscope {

std::string nccl_version_text(int version) {
  const int major_unit = version >= 10000 ? 10000 : 1000;
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / 100) + "." +
         std::to_string(version % 100);
}

}  // namespace ringscope
