// Helpers of the CPU launches: pick the element type, and launch with one line.
#pragma once

#include "runtime/device/device.h"
#include "tracedb/base/check.h"

namespace ringscope::kernels {

// Calls f(float{}) or f(double{}); inside a launch, so that a kernel is one generic lambda.
template <class F>
void by_type(DType type, F&& f) {
  RS_CHECK(type == DType::kF32 || type == DType::kF64, "kernels compute in fp32 or fp64");
  if (type == DType::kF32) f(float{});
  else f(double{});
}

}  // namespace ringscope::kernels
