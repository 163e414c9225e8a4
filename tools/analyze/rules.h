// The rules of every family. Each is a function of the shared index and returns findings; none knows the others.
// Roots and consequences between families are settled in analyze.cc.
#pragma once

#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

// hang. A rank that left the common sequence of calls of a group: where, and how.
struct Divergence {
  enum class Kind { kMissing, kExtra, kOther } kind = Kind::kMissing;
  const CommRow* comm = nullptr;
  uint64_t seq = 0;            // in the group's own sequence
  std::vector<int> ranks;      // who departed; empty = two camps without a majority
  uint32_t expected = kNoRow;  // op row that the group agreed on (kExtra: what it ran at that seq)
  uint32_t actual = kNoRow;    // op row of the departed rank at that seq
  double confidence = 1.0;
};
std::vector<Divergence> find_divergences(const TraceIndex&);       // hang/divergence.cc
std::vector<Divergence> find_missing_tails(const TraceIndex&);     // hang/missing_tail.cc: only in a stalled run
Finding divergence_finding(const TraceIndex&, const Divergence&);  // hang/divergence_text.cc

std::vector<Finding> dead_ranks(const TraceIndex&);          // hang/dead_rank.cc
std::vector<Finding> cross_group_cycles(const TraceIndex&);  // hang/cross_group_cycle.cc
Finding undecided(const TraceIndex&);                        // hang/undecided.cc

// ring. One ring pass in which members ran different numbers of steps.
struct ShortRing {
  const CommRow* comm = nullptr;
  Where where;                             // of the first missing hop
  std::vector<int> ranks;                  // who left early
  int first = -1;                          // of them the one that ran fewest steps: the missing hop is its
  std::vector<std::pair<int, int>> steps;  // (rank, attention steps it ran)
  int expected = 0;
  std::vector<int64_t> plan_rows;
  uint32_t waiting_op = kNoRow;  // the neighbour's receive of the missing block
};
std::vector<ShortRing> find_short_rings(const TraceIndex&);  // ring/step_count.cc, first pass of each ring
std::string steps_text(const ShortRing&);                    // "rank 0 ran 4, rank 1 ran 3"
std::vector<Evidence> plan_evidence(const TraceIndex&, const ShortRing&);
Finding step_count_finding(const TraceIndex&, const ShortRing&);
Finding ring_break_finding(const TraceIndex&, const ShortRing&);  // hang/ring_break.cc

std::vector<Finding> races(const TraceIndex&);  // race/race.cc
// softmax, position, loss and numeric: numeric/numeric.h

}  // namespace ringscope
