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
    const auto empty = [i](const AttentionResult& part) { return std::isinf(part.lse[i]) && part.lse[i] < 0; };
    const bool none = std::all_of(parts.begin(), parts.end(), empty);
    for (const AttentionResult& part : parts) top = std::max(top, part.lse[i]);
    for (const AttentionResult& part : parts) sum += empty(part) ? 0 : std::exp(part.lse[i] - top);
    if (!none) out.lse[i] = top + std::log(sum);
    for (const AttentionResult& part : parts) {
      if (empty(part) && !none) continue;
      const double weight = none ? 1 : std::exp(part.lse[i] - out.lse[i]);
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
