// The second happens-before: decides whether an edge that a mutation takes away was needed. Simple and quadratic, over one
// rank's timeline, and of its own making: it shares nothing with the rules that it judges.
//
// An operation comes after what its stream held, and after what the host had waited for; a wait brings what its record
// saw; the members of a group call run side by side. Two accesses of one buffer that overlap, one of them a write,
// need a path between them.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "runtime/fault/mutation.h"
#include "tools/campaign/timeline.h"

namespace ringscope::campaign {

// Which race it is, by who writes and who reads.
struct Unordered {
  uint64_t pairs = 0;
  std::set<std::string> ids;
};

// Pairs without a path.
Unordered unordered_pairs(const TraceView& view, const Timeline& timeline);

// The timeline with a record or wait changed at these sites (indices into the rank's sites).
Timeline with_edges_changed(const Timeline& timeline, const Mutation& mutation, const std::vector<Site>& sites,
                            const std::vector<uint32_t>& changed);

// Does something read memory that nothing wrote, once these operations are left out?
bool reads_unwritten(const Timeline& timeline, const std::vector<uint32_t>& left_out);

}  // namespace ringscope::campaign
