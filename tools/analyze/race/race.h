// Races: two operations of a rank touch the same bytes, one of them writes, and nothing orders them. And reads of
// memory that nothing wrote.
//
// A walk over each rank (walk.cc) finds the places at which an edge is missing, with the rank's own order. What the
// calls of other ranks order all the same is taken out (job_clocks.cc), and the places of one missing edge, over
// layers, steps and ranks, become one finding (report.cc, with races() itself).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

enum class Hazard : uint8_t {
  kArrival,     // race.read_before_arrival: reads what a transfer, or another stream's kernel, may still be writing
  kNotReady,    // race.send_before_ready: a transfer sends what a kernel may still be writing
  kOverwrite,   // race.overwrite_before_read: writes what a kernel may still be reading
  kSendReused,  // race.send_buffer_reused: writes what a transfer may still be sending
  kWriteWrite,  // race.write_write
  kFreed,       // race.freed_in_use
  kUnwritten,   // race.uninitialised_read
};

// A place at which an edge is missing, or bytes are read that nothing wrote.
struct Race {
  Hazard hazard = Hazard::kArrival;
  int rank = 0;
  uint32_t first = kNoRow;   // op row of what should be done before; kNoRow = kUnwritten
  uint32_t second = kNoRow;  // op row of what should come after it; kNoRow = a free
  uint64_t buffer = 0, begin = 0, end = 0;
  // Names of the events that may have been meant for it, into strings; 0 = none: the last that the later side waited
  // for, the first that was waited for without effect, the first and the last recorded behind the earlier side.
  std::array<uint32_t, 4> events{};
  uint32_t before = kNoRow, behind = kNoRow;  // streams of the missing edge; kNoRow = the host
  bool shared = false;      // one buffer serves two blocks at once: `second` was issued before `first`, or in one group
  uint32_t entry = kNoRow;  // op row in front of which the edge belongs: the first call of second's group
};

std::vector<Race> walk_ranks(const TraceIndex& index);

// Removes the pairs that the calls of other ranks order.
void drop_ordered_elsewhere(const TraceIndex& index, std::vector<Race>& races);

}  // namespace ringscope
