// ring.step_count: members of one ring ran different numbers of hops in a pass, counted in the transfers they made.
#include "tools/analyze/hang/calls.h"
#include "tools/analyze/ring/ring.h"

namespace ringscope {

Finding step_count_finding(const TraceIndex& index, const RingFault& fault) {
  Finding f = ring_finding("ring.step_count", fault);
  const uint32_t hop = fault.more ? fault.first.actual : fault.first.expected;
  f.first_ns = index.view.ops[hop].enqueue_ns;
  const std::string place = place_text(fault.where);
  f.sentence = ranks_text(fault.ranks) + " ran too " + (fault.more ? "many" : "few") + " hops in ring " +
               group_text(*f.group) + (place.empty() ? "" : " at " + place) + " (" + hops_text(fault) +
               "; one attention step more than hops belongs to a pass); later blocks of this ring arrive one hop " +
               (fault.more ? "too late" : "too early");
  f.evidence.push_back(cite(index.view, "p2p", size_t(index.view.ops[hop].p2p),
                            "rank " + std::to_string(index.view.ops[hop].rank) + " ran " + call_text(index, hop)));
  return f;
}

}  // namespace ringscope
