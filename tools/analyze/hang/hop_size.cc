// hang.arg_mismatch of a transfer: a hop whose two sides name different sizes. Bytes go through a FIFO without tags: the
// receive waits for what is missing, or what is too much is taken for the next message.
#include "tools/analyze/hang/calls.h"
#include "tools/analyze/ring/ring.h"

namespace ringscope {

Finding hop_size_finding(const TraceIndex& index, const RingFault& fault) {
  Finding f = ring_finding("hang.arg_mismatch", fault);
  const OpRow& actual = index.view.ops[fault.first.actual];
  const uint64_t bytes = index.view.p2ps[actual.p2p].bytes;
  const uint64_t expected = index.view.p2ps[index.view.ops[fault.first.expected].p2p].bytes;
  f.op = op_name(index, fault.first.actual);
  f.seq = seq_of(index, actual);
  f.first_ns = actual.enqueue_ns;
  const std::string place = place_text(fault.where);
  f.sentence = ranks_text(fault.ranks) + " moved " + std::to_string(bytes) + " bytes in a hop of ring " +
               group_text(*f.group) + (place.empty() ? "" : " at " + place) + " where the others moved " +
               std::to_string(expected) + (fault.first.why.empty() ? "" : " (" + fault.first.why + ")") +
               "; the other side waits for the rest, or takes what is too much for its next message";
  for (uint32_t row : {fault.first.actual, fault.first.expected})
    f.evidence.push_back(cite(index.view, "p2p", size_t(index.view.ops[row].p2p),
                              "rank " + std::to_string(index.view.ops[row].rank) + " ran " + call_text(index, row)));
  f.would_raise_confidence = "more members of the ring, or more earlier steps";
  return f;
}

}  // namespace ringscope
