// ring.wrong_neighbour: a member sends to, or receives from, another rank than the ring does: the peers do not form
// one ring.
#include "tools/analyze/hang/calls.h"
#include "tools/analyze/ring/ring.h"

namespace ringscope {
namespace {

std::string towards(const TraceIndex& index, uint32_t op_row) {
  const OpRow& op = index.view.ops[op_row];
  const bool send = index.view.p2ps[op.p2p].direction == Direction::kSend;
  return (send ? "sends to rank " : "receives from rank ") + std::to_string(peer_rank(index, op));
}

}  // namespace

Finding wrong_neighbour_finding(const TraceIndex& index, const RingFault& fault) {
  Finding f = ring_finding("ring.wrong_neighbour", fault);
  const OpRow& actual = index.view.ops[fault.first.actual];
  f.op = op_name(index, fault.first.actual);
  f.seq = seq_of(index, actual);
  f.first_ns = actual.enqueue_ns;
  const std::string place = place_text(fault.where);
  f.sentence = "the transfers of group " + group_text(*f.group) + " do not form one ring" +
               (place.empty() ? "" : " at " + place) + ": " + ranks_text(fault.ranks) + " " +
               towards(index, fault.first.actual) + ", in the direction in which rank " +
               std::to_string(index.view.ops[fault.first.expected].rank) + " " + towards(index, fault.first.expected) +
               " (" + fault.first.why + ")";
  for (uint32_t row : {fault.first.actual, fault.first.expected})
    f.evidence.push_back(cite(
        index.view, "p2p", size_t(index.view.ops[row].p2p),
        "rank " + std::to_string(index.view.ops[row].rank) + " " + towards(index, row) + ": " + call_text(index, row)));
  return f;
}

}  // namespace ringscope
