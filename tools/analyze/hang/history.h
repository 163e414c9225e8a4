// What the past of a sequence says about its next call: the period of the sequence itself.
#pragma once

#include <cstdint>
#include <span>

namespace ringscope {

struct Continuation {
  uint64_t next = 0;   // digest of the call that followed the longest equal past; 0 = the past says nothing
  size_t at = 0;       // where in the sequence that was
  size_t context = 0;  // calls of the past that were equal
  int seen = 0;        // times that this past was followed by `next`
  int against = 0;     // times that it was followed by something else
};

// The continuation of `calls`. A run of one call (A A A) tells nothing about its own length: the past that is looked for
// reaches over the whole run at the end of `calls`, to another call in front of it or, in a `whole` sequence, to the
// beginning. Zero digests (calls that were not recorded) equal nothing. Linear.
Continuation continuation(std::span<const uint64_t> calls, bool whole);

}  // namespace ringscope
