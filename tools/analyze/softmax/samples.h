// Sampled softmax rows put together from what single ranks recorded, and the tolerance of all softmax rules.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/analyze/index.h"

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

// One query row of one head at one place, as rows in softmax_rows: its parts (in the order of the merge; of three steps
// by member) and the merged result.
struct SoftmaxSample {
  std::vector<size_t> parts;
  size_t result = SIZE_MAX;
  bool complete = false;  // as many parts as the row says it has
};

struct SoftmaxSamples {
  std::vector<SoftmaxSample> samples;  // by place, in the order of the rows' places
  int64_t contradictory = 0;           // rows in samples that were left out
};

// Parts of the three-step method come from every member of a group, those of a merge from one rank. A sample with a
// row that contradicts itself is left out whole: a part numbered beyond the parts there are or recorded twice, parts
// that disagree on their number, a log-sum-exp below its own maximum or above it by more than the log of all keys.
SoftmaxSamples collect_samples(const TraceIndex& index, SoftmaxMethod method);

// The group whose members recorded a three-step sample: by communicator or coordinates, otherwise the parts' ranks.
GroupRef sample_group(const TraceIndex& index, const SoftmaxSample& sample);

}  // namespace ringscope
