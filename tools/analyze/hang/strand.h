// Strands: the sequences of calls that the members of one group should share, one a member, on one numbering. Where
// they differ for the first time a member departed; camps.h tells which.
#pragma once

#include <cstdint>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

inline constexpr uint64_t kWindow = 32;  // calls that may be left out or put in at one place

struct Strand {
  int rank = -1;                // global
  uint64_t first = 0;           // number of calls[0]
  bool whole = true;            // starts where the group's sequence starts, not where a buffer wrapped
  bool counted = false;         // numbers were counted, not recorded: a loss anywhere before one shifts it
  std::vector<uint64_t> calls;  // digests; 0 = not recorded
  std::vector<uint32_t> ops;    // op rows, kNoRow = not recorded

  uint64_t end() const { return first + calls.size(); }
  uint64_t at(uint64_t n) const { return n >= first && n < end() ? calls[n - first] : 0; }
  uint32_t op(uint64_t n) const { return n >= first && n < end() ? ops[n - first] : kNoRow; }
};

Strand strand_of(const TraceIndex&, const MemberCalls&);  // of collectives, numbered by seq

// What all members agree on before `end`: at every number the first call that any of them shows.
struct Agreed {
  uint64_t first = 0;
  bool whole = true;
  uint64_t shape = 1;  // of the group (calls.h)
  std::vector<uint64_t> calls;
  uint64_t end() const { return first + calls.size(); }
};
Agreed agreed_before(const std::vector<Strand>& strands, uint64_t end);

// The first number at which two of them show different calls; UINT64_MAX = none.
uint64_t first_difference(const std::vector<Strand>& strands);

}  // namespace ringscope
