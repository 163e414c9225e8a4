// What a microbatch is made of, for the trace: positions, the mask's rows and documents, tokens and labels. Each as the
// loader made it (written by the host) and as the device's kernels read it (written by a launch on their stream, from
// their buffers). With the recorder off nothing happens. Thread rule: the rank's host task.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/model/batch.h"
#include "runtime/model/context.h"

namespace ringscope {

// Tokens of one shard of a microbatch as the layout has them, batch outermost.
struct ShardTokens {
  std::span<const int32_t> row, document;  // [batch x shard]
  std::span<const int32_t> sample;         // [batch], global index in the step
};

// Runs of positions of a shard.
void record_positions(const Where&, PositionRole, const ShardTokens&, std::span<const int32_t> position,
                      float rope_base);
// Runs of tokens and their labels.
void record_labels(const Where&, LabelRole, const ShardTokens&, std::span<const int32_t> token,
                   std::span<const int32_t> label);

// The positions of the batch as they lie on the device, for a kernel that is given them with this base (0 = not RoPE).
void record_applied_positions(RankContext&, const ModelBatch&, PositionRole, double rope_base);
// Rows and documents of every shard, as the mask of this rank's attention kernels reads them; tokens and labels.
void record_applied_batch(RankContext&, const ModelBatch&);

}  // namespace ringscope
