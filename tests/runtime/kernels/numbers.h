// Numbers to try kernels with, and how far two sets of them are apart.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

namespace ringscope::testing {

using Numbers = std::vector<double>;

// N(0, 1) numbers, exactly representable in fp32, so that both types compute the same problem.
inline Numbers normal(int64_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> distribution;
  Numbers x(count);
  for (double& value : x) value = float(distribution(random));
  return x;
}

// |got - want| / |want|, Frobenius.
inline double distance(const Numbers& got, const Numbers& want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) {
      if (std::isfinite(want[i])) norm += want[i] * want[i];
      continue;  // equal infinities as well
    }
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);  // NaN and infinities stay visible
}

// The largest error of `gradient` (of sum(d_out * f(x)) at x) against central differences along `directions`
// random directions, relative to |gradient| |direction|.
inline double gradient_error(const std::function<Numbers(const Numbers&)>& f, const Numbers& x, const Numbers& d_out,
                             const Numbers& gradient, int directions = 4) {
  double norm = 0, worst = 0;
  for (double g : gradient) norm += g * g;
  const auto value = [&](const Numbers& direction, double step) {
    Numbers moved = x;
    for (size_t i = 0; i < x.size(); ++i) moved[i] += step * direction[i];
    const Numbers out = f(moved);
    double sum = 0;
    for (size_t i = 0; i < out.size(); ++i) sum += out[i] * d_out[i];
    return sum;
  };
  for (int n = 0; n < directions; ++n) {
    const Numbers direction = normal(int64_t(x.size()), 1000 + n);
    const double h = 1e-4;
    const double slope =
        (8 * (value(direction, h) - value(direction, -h)) - (value(direction, 2 * h) - value(direction, -2 * h))) /
        (12 * h);
    double want = 0, length = 0;
    for (size_t i = 0; i < x.size(); ++i) want += direction[i] * gradient[i], length += direction[i] * direction[i];
    worst = std::max(worst, std::abs(slope - want) / std::sqrt(norm * length));
  }
  return worst;
}

}  // namespace ringscope::testing
