// Position records put together: a block is what one rank recorded of one sample at one place, as the runs it is made
// of. All work here is linear in runs, never in tokens: a million-token sequence is a handful of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

inline constexpr uint32_t kPaddingDocument = 0xFFFFFFFF;

// Runs with one rank, role, sample and place, in storage order. Several threads of a rank may have
// written between them.
struct PositionBlock {
  int rank = 0;
  uint32_t sample = 0;
  Where where;
  PositionRole role = PositionRole::kData;
  std::vector<size_t> runs;
  uint64_t tokens = 0;
};

// All blocks of one sample of one step, of every rank that recorded it.
struct PositionSample {
  int step = -1;
  uint32_t sample = 0;
  std::vector<PositionBlock> blocks;
  const PositionBlock* data_of(int rank) const;  // what the loader made there; null = not recorded
};

using PositionRuns = std::vector<PositionRunRow>;  // what `runs` of a block point into

struct PositionSamples {
  std::vector<PositionSample> samples;  // by (step, sample)
  int64_t contradictory = 0;            // blocks left out: runs that are empty or lie outside of the sequence
};
PositionSamples collect_positions(const TraceView& view);

// Values as they were recorded: a negative position is stored as its 32-bit pattern.
inline int64_t first_position(const PositionRunRow& run) { return int32_t(run.pos_start); }

// A stretch of a shard over which both blocks advance steadily. b is at the same storage offset as a.
struct Stretch {
  uint64_t offset = 0;  // in the shard
  uint64_t count = 0;
  const PositionRunRow *a = nullptr, *b = nullptr;
  uint64_t in_a = 0, in_b = 0;  // offset in the run
  int64_t row_a() const { return int64_t(a->token_start) + int64_t(in_a); }
  int64_t row_b() const { return int64_t(b->token_start) + int64_t(in_b); }
  int64_t position_a() const { return first_position(*a) + int64_t(in_a) * a->stride; }
  int64_t position_b() const { return first_position(*b) + int64_t(in_b) * b->stride; }
  bool padding() const { return a->document == kPaddingDocument; }
  // Does b hold `start` at the first token and advance by `stride`?
  bool b_is(int64_t start, int64_t stride) const {
    return position_b() == start && (count == 1 || int64_t(b->stride) == stride);
  }
};
// Walks two blocks of equal length side by side until `visit` returns false. False = it did, or lengths differ.
bool walk(const PositionRuns&, const PositionBlock& a, const PositionBlock& b,
          const std::function<bool(const Stretch&)>& visit);

// The rows and positions that the loader made of a sample, over all ranks: ascending rows, copies left out.
std::vector<const PositionRunRow*> global_rows(const PositionRuns&, const PositionSample& sample);

// Ranks that hold the parts of a sample, in the order of the context-parallel group: from communicators or
// coordinates, otherwise from who recorded which rows (copies of a shard count once). Copies are not in it.
std::vector<int> shard_owners(const TraceIndex& index, const PositionSample& sample, int rank);

}  // namespace ringscope
