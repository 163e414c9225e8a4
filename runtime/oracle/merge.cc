#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/oracle/oracle.h"

namespace ringscope::oracle {

// All parts at once: lse = log sum exp(lse_i), o = sum exp(lse_i - lse) o_i.
AttentionResult merge(const std::vector<AttentionResult>& parts, int64_t d) {
  AttentionResult out;
  if (parts.empty()) return out;
  const size_t rows = parts[0].lse.size();
  out.o.assign(rows * size_t(d), 0);
  out.lse.assign(rows, -std::numeric_limits<double>::infinity());
  out.m = out.lse;
  for (size_t i = 0; i < rows; ++i) {
    for (const AttentionResult& part : parts) out.m[i] = std::max(out.m[i], part.m[i]);
    double top = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const AttentionResult& part : parts) top = std::max(top, part.lse[i]);
    if (std::isinf(top)) continue;  // no part saw a key
    for (const AttentionResult& part : parts) sum += std::exp(part.lse[i] - top);
    out.lse[i] = top + std::log(sum);
    for (const AttentionResult& part : parts) {
      if (std::isinf(part.lse[i])) continue;
      const double weight = std::exp(part.lse[i] - out.lse[i]);
      for (size_t x = 0; x < size_t(d); ++x) out.o[i * d + x] += weight * part.o[i * d + x];
    }
  }
  return out;
}

std::vector<double> gather_rows(const std::vector<std::vector<double>>& shards,
                                const std::vector<std::vector<int32_t>>& rows, int64_t width) {
  size_t total = 0;
  for (const auto& shard : shards) total += shard.size();
  std::vector<double> out(total);
  for (size_t r = 0; r < shards.size(); ++r)
    for (size_t i = 0; i < rows[r].size(); ++i)
      for (int64_t x = 0; x < width; ++x) out.at(rows[r][i] * width + x) = shards[r].at(i * width + x);
  return out;
}

}  // namespace ringscope::oracle
