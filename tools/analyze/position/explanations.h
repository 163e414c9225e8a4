// What wrong positions of a shard can be, in the order in which an explanation is preferred.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tools/analyze/position/shards.h"

namespace ringscope {

// What was made and what was applied on one rank, and the sample both belong to.
struct AppliedShard {
  const PositionRuns* runs = nullptr;  // of all blocks
  const PositionSample* sample = nullptr;
  std::shared_ptr<const std::vector<const PositionRunRow*>> global;  // global_rows of the sample
  const PositionBlock *data = nullptr, *applied = nullptr;
};

// kHalves: the second half of the shard in front of the first. kOverlap: right positions all, but some of them twice in one
// shard. kCount: none of them.
enum class PositionFault { kRestart, kContiguous, kZigzag, kStriped, kHalves, kOffset, kOverlap, kCount };

bool explains(const TraceIndex& index, PositionFault fault, const AppliedShard& shard);
// The first that explains every one of them.
PositionFault best_explanation(const TraceIndex& index, const std::vector<AppliedShard>& shards);
const char* id_of(PositionFault fault);
// What positions are of that fault: " restart at 0 in the shard".
std::string text_of(const TraceIndex& index, PositionFault fault, const AppliedShard& shard);

// "contiguous" if the rows of the shard are dealt like that to its group; "" = in no known way.
std::string layout_of(const TraceIndex& index, const AppliedShard& shard);
}  // namespace ringscope
