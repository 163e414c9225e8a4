// What other steps of a group say about a place of one. The calls of a step are a sequence of their own, and a job repeats
// its steps: layers and microbatches repeat inside a step as well, but only until its end does not. Steps are told apart by
// the labels of calls, which all members must carry alike; without labels there are no steps (history.h knows periods).
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tools/analyze/hang/strand.h"

namespace ringscope {

// Of the steps that began as this one did up to the place. A step that only members show which went on alike at the place is
// none: they would be their own witnesses.
struct Precedent {
  int step = -1;      // the step that the place lies in; -1 = not known, and then nothing else is
  uint64_t call = 0;  // digest of what they went on with; 0 = with the next step: nothing more belongs to this one
  int seen = 0;       // steps that went on so
  int against = 0;    // steps that went on otherwise
  const Strand* strand = nullptr;  // where one of them can be read, from number `at` on
  uint64_t at = 0;
  bool known() const { return seen > against; }
};

class Steps {
 public:
  // The strands outlive it.
  Steps(const TraceIndex&, const std::vector<Strand>& strands);

  // The first number before `n` at which a strand is in another step than the others, or makes another call; else n. Where
  // calls are equal, a step of other length shows before the calls do.
  uint64_t first_difference(uint64_t n) const;
  // Of number n, up to which the strands agree.
  Precedent precedent(uint64_t n) const;
  // Does the strand go on at n as the precedent did?
  bool conforms(const Precedent&, const Strand&, uint64_t n) const;

 private:
  struct Segment {
    uint64_t first = 0, count = 0;
    bool whole = true;    // it begins where its step begins
    bool closed = false;  // the strand went on with a later step, or its rank came to its end
    bool torn = false;    // the step was left and entered again: no sequence
  };
  using Segments = std::map<int, Segment>;  // by step

  Segments segments_of(const Strand&) const;
  int step_at(const Strand&, uint64_t n) const;
  void ask(int step, int place, const std::vector<uint64_t>& prefix, const std::vector<uint64_t>& sides,
           std::map<uint64_t, Precedent>& answers) const;

  const TraceIndex& index_;
  const std::vector<Strand>& strands_;
  std::vector<Segments> segments_;  // by strand
};

}  // namespace ringscope
