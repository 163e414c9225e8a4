#include "tools/analyze/confidence.h"

#include <algorithm>

namespace ringscope {

double confidence(const Support& s) {
  if (s.agree <= 0) return 0;
  const double share = s.agree / (s.agree + std::max(0.0, s.against));
  const double weight = 1 - 1 / ((1 + s.agree) * (1 + std::max(0.0, s.observations)));
  return std::clamp(std::clamp(s.coverage, 0.0, 1.0) * share * weight, 0.0, kMostConfidence);
}

}  // namespace ringscope
