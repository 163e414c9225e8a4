// Which tensors hold values that are not finite.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/model/host_tensor.h"
#include "tracedb/model/enums.h"

namespace ringscope {

struct NonFiniteTensor {
  std::string name;
  int64_t nan = 0, infinite = 0, values = 0;
};
// In the order of names. Counted as `dtype` holds the values: what is too large for fp32 is infinite there.
std::vector<NonFiniteTensor> non_finite_tensors(const HostTensors& tensors, DType dtype);

}  // namespace ringscope
