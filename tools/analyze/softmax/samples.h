// Sampled softmax rows, put together from what single ranks recorded, and the tolerance of all softmax rules.
#pragma once

#include <cmath>
#include <limits>

#include "tools/analyze/rules.h"

namespace ringscope {

// fp32 accumulations are right to about 1e-6 of their size; a wrong merge is off by far more.
inline bool close(double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::fabs(a - b) <= 1e-4 * std::max({1.0, std::fabs(a), std::fabs(b)});
}

inline double log_sum_exp(double a, double b) {
  const double m = std::max(a, b);
  return std::isinf(m) ? m : m + std::log(std::exp(a - m) + std::exp(b - m));
}

inline constexpr double kSeesNothing = -std::numeric_limits<double>::infinity();
inline constexpr int kResultOwner = 0xFFFF;

}  // namespace ringscope
