// What orders the operations of one rank: vector clocks over its lanes, which are its streams and its host. They follow
// CUDA's rules:
//   enqueue:   the operation comes after everything the host has waited for, and after its stream's last operation
//   record:    remembers the stream's clock at the call
//   wait:      joins the remembered clock of the record it bound, however often the event was recorded since; a wait
//              that bound none is a no-op
//   host sync: the host joins the stream's clock
//   host read: an operation of the host: what it enqueues afterwards comes after it
// The order of the calls, not of the clock on the wall, decides, so that a run that came out right still shows a race.
// Rows of two host threads lie in the order of their times, which is no program order: they order what they may order.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

using Clock = std::vector<uint32_t>;  // by lane: how many operations of it are known to be done

class RankOrder {
 public:
  // Rows [begin, end) of ops and [sync, last_sync) of syncs belong to the rank.
  RankOrder(const TraceView& view, uint32_t begin, uint32_t end, size_t sync, size_t last_sync);

  uint32_t host_lane() const { return uint32_t(streams_.size()); }
  uint32_t lane_of(uint32_t stream) const {  // a handful of streams: a scan beats a table
    uint32_t lane = 0;
    while (streams_[lane] != stream) ++lane;
    return lane;
  }
  uint32_t known_lane(uint32_t stream) const {
    for (uint32_t lane = 0; lane < streams_.size(); ++lane)
      if (streams_[lane] == stream) return lane;
    return kNoRow;
  }
  uint32_t stream_of(uint32_t lane) const { return lane < streams_.size() ? streams_[lane] : kNoRow; }

  void apply(const SyncRow& sync);
  // The lane of the operation; its clock counts it from now on. Calls of one group are one operation.
  uint32_t issue(const OpRow& op);
  uint32_t clock(uint32_t lane) const { return clocks_[lane][lane]; }

  // Does everything that `lane` issues from now on come after operation `clock` of lane `other`?
  bool after(uint32_t lane, uint32_t other, uint32_t clock) const { return clocks_[lane][other] >= clock; }

  // What is known to be done when operation `clock` of the lane is.
  Clock at(uint32_t lane, uint32_t clock) const;
  void join(uint32_t lane, const Clock& known);  // as if the lane had waited for it

  // The lane of a record; kNoRow = it is not in the trace, or not yet.
  uint32_t recorded_on(uint64_t key) const;
  // Does whoever waits for this record come after operation `clock` of the lane?
  bool covers(uint64_t key, uint32_t lane, uint32_t clock) const;

 private:
  // What a lane learned from others before operation `from`: its whole clock then.
  struct Lesson {
    uint32_t from;
    size_t at;  // in learned_
  };
  struct Record {
    uint32_t lane, clock;  // operations of the lane by then
    size_t lesson;         // the last one by then, from 1; 0 = none
  };

  void learn(uint32_t lane, const uint32_t* known);
  const uint32_t* learned(uint32_t lane, size_t lesson) const {
    return learned_.data() + lessons_[lane][lesson - 1].at;
  }

  std::vector<uint32_t> streams_;
  std::vector<Clock> clocks_;  // by lane; the last is the host's
  std::vector<std::vector<Lesson>> lessons_;
  std::vector<uint32_t> learned_;  // clocks, one behind the other
  Clock scratch_;
  std::unordered_map<uint64_t, Record> records_;
};

}  // namespace ringscope
