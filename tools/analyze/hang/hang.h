// What the rules of the hang and ring families share with each other, and with nobody else.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/analyze/confidence.h"
#include "tools/analyze/hang/replay.h"
#include "tools/analyze/index.h"

namespace ringscope {

// Members that left the common sequence of a group: where, and how.
struct Divergence {
  enum class Kind { kMissing, kExtra, kOther } kind = Kind::kMissing;
  const CommRow* comm = nullptr;
  uint64_t seq = 0;            // in the numbering of the strands; of a collective: its seq
  std::vector<int> ranks;      // who departed, sorted; empty = two camps, and nothing tells which is right
  uint32_t expected = kNoRow;  // op row that the group agreed on (kExtra: what it ran at that number)
  uint32_t actual = kNoRow;    // op row of the departed rank at that number
  uint64_t length = 1;         // calls left out or put in
  uint64_t earliest = 0;       // the call may be any from here to seq: they are equal, and no label tells them apart
  Support support;
  std::string why;       // how it was decided, for the sentence: "3 members agree"
  bool tail = false;     // not a difference: a call that others made and nothing stands in its place
  bool idle = false;     // nothing proves that it will not come: "has not called yet"
  bool swapped = false;  // kOther: the same calls in another order
};

// Ranks of several communicators that made the same mistake, or one rank in several groups, become one. Keeps of every
// rank what it did first; what only members of an earlier divergence show follows from it.
std::vector<Divergence> merge_divergences(const TraceIndex&, std::vector<Divergence>);  // merge.cc

std::vector<Divergence> find_divergences(const TraceIndex&);  // divergence.cc: by position
// Adds the members of groups that agree among themselves, and made the mistake all of them.
void add_whole_groups(const TraceIndex&, const std::vector<const CommCalls*>& agreeing, Divergence&);  // whole_group.cc
Finding divergence_finding(const TraceIndex&, const Divergence&);  // divergence_text.cc

// Ranks that ended by themselves or were killed. `follows`: it was inside a call that others never joined (a watchdog
// stopped it), or the trace does not show whether it was; such a death is no root.
struct Death {
  Finding finding;
  bool follows = false;
};
std::vector<Death> find_deaths(const TraceIndex&);  // dead_rank.cc
bool died(const RankExitRow& exit);                 // by itself or by a signal

std::optional<Finding> unequal_hops(const TraceIndex&);                       // unequal_hop.cc
std::vector<Finding> comm_init_mismatches(const TraceIndex&);                 // comm_init.cc
std::vector<Finding> cross_group_cycles(const TraceIndex&, const Stuck&);     // cross_group_cycle.cc
std::vector<Finding> p2p_cycles(const TraceIndex&, const Stuck&);             // p2p_cycle.cc
std::vector<Divergence> find_missing_tails(const TraceIndex&, const Stuck&);  // missing_tail.cc
// Ranks, alive in a declared stall, whose host neither waits for a stream nor issues anything: the last that it did was no
// wait, although the trace records waits of hosts. Sorted.
std::vector<int> silent_hosts(const TraceIndex&, const Stuck&);             // silent_host.cc
Finding silent_finding(const TraceIndex&, const std::vector<int>& ranks);   // silent_host.cc
std::string silent_text(const TraceIndex&, const std::vector<int>& ranks);  // silent_host.cc
Finding tail_finding(const TraceIndex&, const Divergence&);                 // missing_tail.cc
Finding undecided(const TraceIndex&, const Stuck&);                         // undecided.cc

}  // namespace ringscope
