#include "tracedb/base/nearest.h"

#include <algorithm>
#include <vector>

namespace ringscope {

// Optimal string alignment; three rows of the table are enough.
int edit_distance(std::string_view a, std::string_view b) {
  std::vector<int> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = int(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(above);
    above.swap(row);
    row[0] = int(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  if (word.size() > 256) return "";  // not a typing error
  std::string_view best;
  int best_distance = 0;
  for (std::string_view candidate : known) {
    const bool begins = word.size() >= 3 && candidate.substr(0, word.size()) == word;
    const int distance = begins ? 1 : edit_distance(word, candidate);
    if (size_t(distance) * 3 > std::max(word.size(), candidate.size())) continue;
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view near = nearest_word(word, known);
  return near.empty() ? "" : "; did you mean '" + std::string(near) + "'?";
}

}  // namespace ringscope
