// Replay of what a trace leaves unfinished, by NCCL's rules and as kindly as they allow: collectives match by
// position, transfers are a FIFO per pair and a send ends by itself, kernels take no time, what a lost record or an
// absent trace may hold is taken as done. Within one host thread the operations of a stream run in issue order and a wait
// binds the record made before it; between threads nothing is ordered.
//
// Matching without wildcards is confluent, so what this replay cannot run, no schedule can run. Every lane that got
// stuck waits for lanes (`edges`) or for calls that the trace does not hold (`absent`). A circle of lanes is proof of a
// deadlock by itself; a call that is absent may still come.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tools/analyze/hang/transfers.h"
#include "tools/analyze/index.h"

namespace ringscope {

// A call that others made and that a rank, whose trace is there and whole, did not make.
struct Absence {
  uint32_t waiting = kNoRow;  // op row of one that waits in it, of several the one that started first
  std::vector<int> makers;    // ranks that made the call, sorted
  std::vector<int> absent;    // ranks that did not, sorted
};

struct StuckLane {
  int rank = 0;
  uint32_t head = kNoRow;    // op row of the operation in which it is stuck; kNoRow = it waits for another stream
  uint32_t behind = kNoRow;  // op row of the first operation behind that wait
};

struct Stuck {
  std::vector<StuckLane> lanes;
  // A graph over the lanes [0, lanes.size()) and, behind them, the collectives they wait in: from who waits to whom.
  std::vector<std::vector<int>> edges;
  std::vector<Absence> absences;
  std::vector<int> pending;  // ranks with communication that did not finish, sorted
  std::vector<int> ranks;    // ranks that have a stuck lane, sorted: the others wait for nobody
};

// kFree: a send ends by itself, as where there is room. kMeets: it ends when its receive has started, as where there is none.
enum class Sends { kFree, kMeets };
Stuck replay(const TraceIndex&, Sends sends = Sends::kFree);

}  // namespace ringscope
