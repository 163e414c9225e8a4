// hang.ring_break: the hop at which a ring broke. FIFO transfers carry no tags, so the neighbour takes the next
// layer's block for the missing one and the stall comes later; the place here is the missing hop.
#include <algorithm>

#include "tools/analyze/rules.h"

namespace ringscope {

Finding ring_break_finding(const TraceIndex& index, const ShortRing& ring) {
  Finding f = make_finding("hang.ring_break");
  f.ranks = ring.ranks;
  f.group = group_ref(*ring.comm);
  f.where = ring.where;
  f.op = "send";
  f.confidence = 0.97;
  f.first_ns = index.step_ns(ring.ranks[0], ring.where.step);
  const int rank = ring.first;
  const auto self = std::find(f.group->ranks.begin(), f.group->ranks.end(), rank);
  const int next = f.group->ranks[size_t(self - f.group->ranks.begin() + 1) % f.group->ranks.size()];
  f.sentence = "ring " + group_text(*f.group) + " broke at " + place_text(ring.where) + ": hop " +
               std::to_string(rank) + "->" + std::to_string(next) + " is missing because " + ranks_text(ring.ranks) +
               " left the ring early (attention steps, " + std::to_string(ring.expected) +
               " expected: " + steps_text(ring) +
               "). A loop length taken from a local, unpadded sequence is the usual cause";
  if (ring.waiting_op != kNoRow) {
    const OpRow& op = index.view.ops[ring.waiting_op];
    f.seq = int64_t(index.view.p2ps[op.p2p].seq);
    if (op.enqueue_ns) f.first_ns = op.enqueue_ns;
    f.evidence.push_back(cite(index.view, "p2p", size_t(op.p2p),
                              "rank " + std::to_string(op.rank) + " receives hop " +
                                  std::to_string(ring.where.ring_step) + " as #" + std::to_string(*f.seq) +
                                  " from rank " + std::to_string(rank) + ", which sends no block of this pass for it"));
  }
  for (Evidence& plan : plan_evidence(index, ring)) f.evidence.push_back(std::move(plan));
  return f;
}

}  // namespace ringscope
