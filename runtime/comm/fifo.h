// Fifo: the bytes in flight from one rank to another inside one communicator, without tags and without message
// boundaries: a reader takes bytes in order, whoever wrote them.
//
// k slots of 512 KiB: a writer copies a segment into a free slot and is done with it; a message of n bytes takes
// ceil(n / slot) slots one after another and streams through them. k = 0: rendezvous. The writer posts its
// memory, the reader copies out of it, and the writer is done when everything it posted was taken.
//
// Thread rule: `segments`, and every field, change inside sched's update() on the communicator's channel only.
// Copies happen outside the lock: the one writer fills a segment it has claimed (`ready` false), the one reader
// takes from the front segment, which nobody else touches.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace ringscope {

inline constexpr int64_t kSlotBytes = 512 * 1024;

struct Segment {
  std::vector<std::byte> copy;        // k > 0
  const std::byte* posted = nullptr;  // k = 0: the writer's memory
  int64_t bytes = 0;
  int64_t taken = 0;
  int64_t available_ns = 0;           // emulated link: not before
  bool ready = false;                 // filled
};

struct Fifo {
  std::deque<Segment> segments;
  int64_t link_free_ns = 0;           // when the emulated link has sent everything before
};

}  // namespace ringscope
