// Transfer: one direction of one message, advanced a segment at a time by the stream's worker. Transfers form
// phases, phases form tracks: the phases of a track run one after another, the tracks of a group side by side.
#pragma once

#include <array>
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
  bool aborted = false;               // inside update
  uint64_t jitter_counter = 0;        // inside update
  std::vector<Fifo> p2p, collective;  // [source * size + destination]
  FifoSet(Sched& s, int size, const CommOptions& o)
      : sched(s), slots(o.p2p_slots), link(o.link), p2p(size_t(size) * size), collective(size_t(size) * size) {}
};

// What a receiver does with bytes: put them there, or combine them with what is there.
enum class Fold : uint8_t { kCopy, kSum, kMax, kMin };

struct Transfer {
  enum class Kind : uint8_t { kSend, kReceive, kLocal };  // local: an own contribution, from `source`
  Kind kind = Kind::kSend;
  Fifo* fifo = nullptr;               // send, receive
  const std::byte* source = nullptr;  // send, local
  std::byte* target = nullptr;        // receive, local
  int64_t bytes = 0;
  Fold fold = Fold::kCopy;
  DType dtype = DType::kNone;  // of a fold that combines
  int after = -1;              // index in the phase of a transfer that must be done first

  int64_t moved = 0;                   // copied in (send), taken from us (send at k = 0), or copied out
  std::shared_ptr<int64_t> posted;     // send at k = 0: what the reader has taken; set = posted
  std::array<std::byte, 8> partial{};  // an element of which only some bytes have come (mismatched programs)
  int partial_bytes = 0;
  bool done() const { return moved == bytes; }
};

struct Phase {
  std::vector<Transfer> transfers;
  std::function<void()> finish;  // on the worker, when the transfers are done; may be empty
  bool done() const;
};

// What one call does. Phases are made when the track reaches the call: they need addresses, and what an earlier
// call of the track left in memory.
struct TrackCall {
  std::function<std::vector<Phase>()> make;
  std::function<void(uint64_t bytes_sent)> on_done;
};

struct Track {
  std::vector<TrackCall> calls;
  size_t call = 0;
  bool made = false;
  std::vector<Phase> phases;  // of the current call
  size_t phase = 0;
  uint64_t bytes_sent = 0;  // by the current call
};

// Advances all tracks until all are done. False = stopped or aborted; the tracks must then stay in memory as long
// as the FIFOs: peers may be reading what was posted. `why` is shown when the run stalls.
bool run_tracks(FifoSet& set, std::vector<Track>& tracks, const char* why);

}  // namespace ringscope
