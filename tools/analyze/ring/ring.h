// Rings: groups whose members all send to the neighbour at one distance and receive from the one at the other side.
// Every member makes the same transfers between the same calls, so their programs are strands (hang/strand.h), and the
// first difference between them is where a rank ran fewer or more hops, or turned to another neighbour.
#pragma once

#include <utility>

#include "tools/analyze/hang/hang.h"

namespace ringscope {

struct RingFault {
  enum class Kind { kHops, kNeighbour, kSize } kind = Kind::kHops;
  const CommRow* comm = nullptr;
  Direction direction = Direction::kSend;  // of the transfers that were compared
  Divergence first;                        // of the rank that departed first; `expected` or `actual` is the hop
  std::vector<int> ranks;                  // all that departed in this pass, sorted
  Where where;                             // of the first hop that is missing, one too many, or misdirected
  bool more = false;                       // kHops: they ran more hops than the others
  std::vector<std::pair<int, int>> hops;   // (rank, blocks it moved that way in this pass)
  uint32_t waiting = kNoRow;               // the neighbour's transfer that has, or had, no counterpart of this pass
  bool unfinished = false;                 // a transfer of the ring was still open at the end
};
std::vector<RingFault> find_ring_faults(const TraceIndex&);  // ring_fault.cc; the first of every ring

// Is the group driven as a ring by some host thread?
bool is_ring(const TraceIndex&, const CommRow&);

Finding ring_finding(std::string_view id, const RingFault&);           // what all findings of a ring say alike
std::string hops_text(const RingFault&);                               // "rank 0 sent 3, rank 1 sent 2"
Finding step_count_finding(const TraceIndex&, const RingFault&);       // step_count.cc
Finding wrong_neighbour_finding(const TraceIndex&, const RingFault&);  // wrong_neighbour.cc
Finding ring_break_finding(const TraceIndex&, const RingFault&);       // hang/ring_break.cc
Finding hop_size_finding(const TraceIndex&, const RingFault&);         // hang/hop_size.cc

}  // namespace ringscope
