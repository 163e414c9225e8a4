// Fifo: the bytes in flight from one rank to another inside one communicator, without tags and without message
// boundaries: a reader takes bytes in order, whoever wrote them.
//
// k slots of 512 KiB: a writer copies a segment into a free slot and is done with it; a message of n bytes takes
// ceil(n / slot) slots one after another and streams through them. k = 0: rendezvous. The writer posts its
// memory, the reader copies out of it, and the writer is done when everything it posted was taken.
//
// Thread rule: every field changes under sched's lock on the communicator's channel only. Copies happen outside
// it: a segment is filled or drained by the one transfer that claimed it, which its state keeps from all others,
// so even a caller that uses one communicator from two streams at once mixes up bytes, not memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace ringscope {

inline constexpr int64_t kSlotBytes = 512 * 1024;

struct Segment {
  enum class State { kFilling, kReady, kDraining };
  State state = State::kFilling;
  std::vector<std::byte> slot;        // k > 0
  const std::byte* posted = nullptr;  // k = 0: the writer's memory
  std::shared_ptr<int64_t> progress;  // k = 0: bytes of the writer's message that were taken
  int64_t bytes = 0;
  int64_t taken = 0;
  int64_t available_ns = 0;  // emulated link: not before

  const std::byte* data() const { return posted ? posted : slot.data(); }
};

struct Fifo {
  std::deque<Segment> segments;               // references stay valid while others come and go at the ends
  std::vector<std::vector<std::byte>> spare;  // slots to use again
  int64_t link_free_ns = 0;                   // when the emulated link has sent everything before
};

}  // namespace ringscope
