#include <algorithm>
#include <cmath>

#include "runtime/oracle/oracle.h"

namespace ringscope::oracle {

Loss cross_entropy(const std::vector<double>& logits, int64_t vocabulary, const std::vector<int32_t>& labels) {
  Loss loss;
  loss.d_logits.assign(logits.size(), 0);
  loss.count = std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label >= 0; });
  for (size_t i = 0; i < labels.size(); ++i) {
    if (labels[i] < 0) continue;
    const double* row = &logits[i * size_t(vocabulary)];
    double* gradient = &loss.d_logits[i * size_t(vocabulary)];
    const double top = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (int64_t j = 0; j < vocabulary; ++j) sum += std::exp(row[j] - top);
    loss.sum += top + std::log(sum) - row[labels[i]];
    for (int64_t j = 0; j < vocabulary; ++j) gradient[j] = std::exp(row[j] - top) / sum / double(loss.count);
    gradient[labels[i]] -= 1 / double(loss.count);
  }
  return loss;
}

}  // namespace ringscope::oracle
