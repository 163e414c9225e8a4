// hang.undecided: the run stalled and no rule names a cause. Gives the best partial statement.
#include <algorithm>

#include "tools/analyze/rules.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {

Finding undecided(const TraceIndex& index) {
  Finding f = make_finding("hang.undecided");
  f.confidence = 0.3;
  f.waiting = index.blocked();
  uint32_t first = kNoRow;
  for (uint32_t row = 0; row < index.view.ops.size(); ++row) {
    const OpRow& op = index.view.ops[row];
    if (!is_comm(op) || op.state != OpState::kStarted) continue;
    if (first == kNoRow || op.start_ns < index.view.ops[first].start_ns) first = row;
  }
  f.sentence = "the run stalled and the trace does not tell why";
  if (first != kNoRow) {
    const OpRow& op = index.view.ops[first];
    f.where = op.where;
    f.first_ns = op.start_ns;
    f.op = op_name(index, first);
    const CommRow* comm = nullptr;
    if (op.coll != kNoRow) {
      comm = index.comm(index.view.colls[op.coll].comm);
      f.seq = int64_t(index.view.colls[op.coll].seq);
    } else if (op.p2p != kNoRow) {
      comm = index.comm(index.view.p2ps[op.p2p].comm);
      f.seq = int64_t(index.view.p2ps[op.p2p].seq);
    }
    if (comm) f.group = group_ref(*comm);
    f.sentence += "; the first to block was rank " + std::to_string(op.rank) + " in " + *f.op + " '" +
                  std::string(index.view.text(op.name)) + "'";
    if (comm) f.sentence += " #" + std::to_string(*f.seq) + " of group " + group_text(*f.group);
    if (const std::string place = place_text(op.where); !place.empty()) f.sentence += " at " + place;
    f.evidence.push_back(
        cite(index.view, "op", size_t(first), "started, not finished, on rank " + std::to_string(op.rank)));
  } else {
    f.sentence += "; no communication is unfinished, so a rank is blocked in its own program";
  }
  f.would_raise_confidence = "the host stacks of the blocked ranks, and a trace of every rank without losses";
  return f;
}

}  // namespace ringscope
