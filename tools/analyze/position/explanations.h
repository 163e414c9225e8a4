// What wrong positions of a shard can be, in the order in which an explanation is preferred.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tools/analyze/position/shards.h"

namespace ringscope {

// What was made and what was applied on one rank, and the sample both belong to.
struct AppliedShard {
  const PositionSample* sample = nullptr;
  std::shared_ptr<const std::vector<const PositionRunRow*>> global;  // global_rows of the sample
  const PositionBlock *data = nullptr, *applied = nullptr;
};

// kOverlap: right positions all, but some of them twice in one shard.
enum class PositionFault { kRestart, kContiguous, kZigzag, kStriped, kOffset, kOverlap, kCount };

bool explains(const TraceIndex& index, PositionFault fault, const AppliedShard& shard);

// "contiguous" if the rows of the shard are dealt like that to its group; "" = in no known way.
std::string layout_of(const TraceIndex& index, const AppliedShard& shard);
// What an offset is, in words: "the right ones plus 1", "those of rank 2".
std::string offset_text(const TraceIndex& index, const AppliedShard& shard);
// The first position that the shard holds twice.
int64_t doubled_position(const TraceView& view, const AppliedShard& shard);
// Do the positions of the first half stand in the second, and the other way round?
bool halves_exchanged(const TraceView& view, const AppliedShard& shard);

}  // namespace ringscope
