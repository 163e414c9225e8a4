#include "runtime/train/nonfinite.h"

#include <cmath>

namespace ringscope {

std::vector<NonFiniteTensor> non_finite_tensors(const HostTensors& tensors, DType dtype) {
  std::vector<NonFiniteTensor> found;
  for (const auto& [name, tensor] : tensors) {
    NonFiniteTensor t{name, 0, 0, int64_t(tensor.values.size())};
    for (double value : tensor.values) {
      const double held = dtype == DType::kF32 ? double(float(value)) : value;
      t.nan += std::isnan(held);
      t.infinite += std::isinf(held);
    }
    if (t.nan + t.infinite > 0) found.push_back(t);
  }
  return found;
}

}  // namespace ringscope
