#include "tracedb/base/rank_range.h"

#include <algorithm>
#include <charconv>

namespace ringscope {

std::string format_rank_range(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  std::string text;
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(ranks[i]);
    if (last > i) text += '-' + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text;
}

Result<std::vector<int>> parse_rank_range(std::string_view text) {
  constexpr int kMaxRank = 1 << 20;
  std::vector<int> ranks;
  const std::string whole(text);
  auto bad = [&] { return usage_error("'" + whole + "' is not a set of ranks; write it like 0-31,40"); };
  auto number = [&](int& value) {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || value < 0 || value > kMaxRank) return false;
    text.remove_prefix(end - text.data());
    return true;
  };
  while (!text.empty()) {
    int first = 0;
    if (!number(first)) return bad();
    int last = first;
    if (!text.empty() && text.front() == '-') {
      text.remove_prefix(1);
      if (!number(last) || last < first) return bad();
    }
    for (int r = first; r <= last; ++r) ranks.push_back(r);
    if (text.empty()) break;
    if (text.front() != ',' || text.size() == 1) return bad();
    text.remove_prefix(1);
  }
  return ranks;
}

}  // namespace ringscope
