// Transfer: one direction of one message, advanced a segment at a time by the stream's worker. A set of transfers
// that belong to one operation, or to one group, progresses together.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/fifo.h"

namespace ringscope {

// What a communicator's FIFOs share over its members.
struct FifoSet {
  Sched& sched;
  Channel channel;
  int slots;
  LinkModel link;
  bool aborted = false;                  // inside update
  uint64_t jitter_counter = 0;           // inside update
  std::vector<Fifo> p2p, collective;     // [source * size + destination]
  FifoSet(Sched& s, int size, const CommOptions& o)
      : sched(s), slots(o.p2p_slots), link(o.link), p2p(size_t(size) * size), collective(size_t(size) * size) {}
};

struct Transfer {
  Fifo* fifo = nullptr;
  bool sending = false;
  std::byte* data = nullptr;             // own memory; a sender only reads it
  int64_t bytes = 0;
  int64_t moved = 0;                     // copied in (sender) or out (receiver)
  int64_t posted = 0;                    // k = 0 sender: given to the FIFO so far
  int after = -1;                        // index of a transfer that must be done first (same peer, call order)
  size_t op = 0;                         // index of the operation it belongs to
  bool done() const { return moved == bytes; }
};

// Advances all transfers until all are done. on_done(i) is called once per transfer, on this thread. False =
// stopped or aborted. `why` is shown when the run stalls.
bool run_transfers(FifoSet& set, std::vector<Transfer>& transfers, const char* why,
                   const std::function<void(size_t)>& on_done);

}  // namespace ringscope
