// hang.ring_break: the hop at which a ring broke. FIFO transfers carry no tags, so the neighbour takes the next
// layer's block for the missing one and the stall comes later; the place here is the missing hop.
#include "tools/analyze/hang/calls.h"
#include "tools/analyze/ring/ring.h"

namespace ringscope {
namespace {

// "1->2": from the rank that left the hop out, towards the neighbour at the ring's distance.
std::string hop_text(const TraceIndex& index, const RingFault& fault, int rank) {
  const OpRow& like = index.view.ops[fault.more ? fault.first.actual : fault.first.expected];
  const P2pRow& p2p = index.view.p2ps[like.p2p];
  const size_t size = fault.comm->ranks.size();
  const uint64_t distance = ring_distance(p2p, index.group_rank(fault.comm->comm, like.rank), size);
  const int peer = fault.comm->ranks[(uint64_t(index.group_rank(fault.comm->comm, rank)) + distance) % size];
  const bool send = p2p.direction == Direction::kSend;
  return std::to_string(send ? rank : peer) + "->" + std::to_string(send ? peer : rank);
}

}  // namespace

Finding ring_break_finding(const TraceIndex& index, const RingFault& fault) {
  Finding f = ring_finding("hang.ring_break", fault);
  f.op = fault.direction == Direction::kSend ? "send" : "recv";
  const uint32_t hop = fault.more ? fault.first.actual : fault.first.expected;
  f.first_ns = index.view.ops[hop].enqueue_ns;
  const int rank = fault.first.ranks[0];
  const std::string place = place_text(fault.where);
  f.sentence = "ring " + group_text(*f.group) + " broke" + (place.empty() ? "" : " at " + place) + ": hop " +
               hop_text(index, fault, rank) + (fault.more ? " is one too many because " : " is missing because ") +
               ranks_text(fault.ranks) + (fault.more ? " left the ring late (" : " left the ring early (") +
               hops_text(fault) + (fault.first.why.empty() ? "" : "; " + fault.first.why) +
               "). A loop length taken from a local, unpadded sequence is the usual cause";
  if (fault.waiting != kNoRow) {
    const OpRow& op = index.view.ops[fault.waiting];
    f.seq = seq_of(index, op);
    if (op.enqueue_ns) f.first_ns = op.enqueue_ns;
    f.evidence.push_back(cite(index.view, "p2p", size_t(op.p2p),
                              "rank " + std::to_string(op.rank) + " has #" + std::to_string(*f.seq) +
                                  " of this channel for the hop; rank " + std::to_string(rank) +
                                  " made no transfer of this pass with that number"));
  }
  f.evidence.push_back(cite(index.view, "p2p", size_t(index.view.ops[hop].p2p),
                            "rank " + std::to_string(index.view.ops[hop].rank) + " ran " + call_text(index, hop)));
  if (f.confidence < 0.85) f.would_raise_confidence = "more earlier steps, or a ring of more members";
  return f;
}

}  // namespace ringscope
