// Splitting what people write after a colon.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

namespace ringscope {

inline std::vector<std::string_view> split_words(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace ringscope
