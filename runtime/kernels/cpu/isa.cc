// Which instruction set this processor gets.
#include "runtime/kernels/cpu/flash.h"
#include "runtime/kernels/cpu/pointwise.h"

namespace ringscope {
namespace {

enum class Isa { kBaseline, kAvx2, kAvx512 };

Isa detect() {
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"))
    return Isa::kAvx512;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    return Isa::kAvx2;
  return Isa::kBaseline;
}
Isa isa() {
  static const Isa detected = detect();
  return detected;
}

}  // namespace

const flash::Kernels& flash::best() {
  return isa() == Isa::kAvx512 ? avx512() : isa() == Isa::kAvx2 ? avx2() : baseline();
}
const pointwise::Kernels& pointwise::best() {
  return isa() == Isa::kAvx512 ? avx512() : isa() == Isa::kAvx2 ? avx2() : baseline();
}

}  // namespace ringscope
