// A whole tensor on the host, in the checkpoint's shape and the widest type.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ringscope {

struct HostTensor {
  std::vector<int64_t> shape;
  std::vector<double> values;
};
using HostTensors = std::map<std::string, HostTensor>;

}  // namespace ringscope
