// What part of the batch each rank holds: copies of one part must sum it alike, parts must add up to the batch.
#pragma once

#include <map>

#include "tools/analyze/index.h"

namespace ringscope {

// A number for what each rank holds of the batch: ranks that the loader gave the same rows are copies. Where that is
// not recorded, the coordinates tell; without those, or if two ranks have the same, nothing does (empty).
std::map<int, int> shards_of_ranks(const TraceIndex& index);

}  // namespace ringscope
