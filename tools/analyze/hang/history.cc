#include "tools/analyze/hang/history.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ringscope {
namespace {

// z[i]: how many calls before `n` equal those before `n - i` (Z-function of the reversed sequence).
std::vector<size_t> common_pasts(std::span<const uint64_t> calls) {
  const size_t n = calls.size();
  const auto at = [&](size_t i) { return calls[n - 1 - i]; };
  std::vector<size_t> z(n, 0);
  for (size_t i = 1, left = 0, right = 0; i < n; ++i) {
    if (i < right) z[i] = std::min(right - i, z[i - left]);
    while (i + z[i] < n && at(z[i]) != 0 && at(z[i]) == at(i + z[i])) ++z[i];
    if (i + z[i] > right) left = i, right = i + z[i];
  }
  return z;
}

}  // namespace

Continuation continuation(std::span<const uint64_t> calls, bool whole) {
  const size_t n = calls.size();
  Continuation found;
  if (n < 2 || calls[n - 1] == 0) return found;
  size_t run = 1;
  while (run < n && calls[n - 1 - run] == calls[n - 1]) ++run;
  const std::vector<size_t> z = common_pasts(calls);
  // Is the past before n - i as long a run as the one at the end?
  const auto telling = [&](size_t i) { return z[i] > run || (whole && z[i] == run && n - i == run); };
  // A past that reaches back to the beginning of the sequence ends there, one that ends in another call was different.
  const auto rank = [&](size_t i) { return std::pair(z[i], whole && n - i == z[i]); };
  size_t best = 0;
  for (size_t i = 1; i < n; ++i)
    if (calls[n - i] != 0 && telling(i) && (best == 0 || rank(i) > rank(best))) best = i;
  if (best == 0) return found;
  found.next = calls[n - best];
  found.at = n - best;
  found.context = z[best];
  // Every time the past of a whole period, or all of it that there is, was the same.
  const auto counts = [&](size_t i) { return telling(i) && (z[i] >= best || rank(i) >= rank(best)); };
  for (size_t i = 1; i < n; ++i)
    if (calls[n - i] != 0 && counts(i)) ++(calls[n - i] == found.next ? found.seen : found.against);
  return found;
}

}  // namespace ringscope
