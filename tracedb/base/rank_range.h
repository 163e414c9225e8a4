// Rank sets as people write them: {0,1,2,5} <-> "0-2,5".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracedb/base/result.h"

namespace ringscope {

// Ranks may come unsorted and doubled; the text is sorted and unique. Empty set: "".
std::string format_rank_range(std::vector<int> ranks);

// Accepts "3", "0-2,5", "". Refuses reversed ranges, signs and anything above 2^20 ranks (kUsage).
Result<std::vector<int>> parse_rank_range(std::string_view text);

}  // namespace ringscope
