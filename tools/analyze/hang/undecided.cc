// hang.undecided: communication did not finish and no rule names a cause. Gives the best partial statement.
#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"

namespace ringscope {
namespace {

uint32_t first_blocked(const TraceView& view) {
  uint32_t first = kNoRow;
  for (uint32_t row = 0; row < view.ops.size(); ++row) {
    const OpRow& op = view.ops[row];
    if (!is_comm(op) || op.state != OpState::kStarted) continue;
    if (first == kNoRow || op.start_ns < view.ops[first].start_ns) first = row;
  }
  return first;
}

// Ranks that others wait for and that wait for nobody themselves.
std::vector<int> awaited(const Stuck& stuck) {
  std::vector<int> ranks;
  for (const Absence& absence : stuck.absences)
    for (int rank : absence.absent)
      if (!std::binary_search(stuck.ranks.begin(), stuck.ranks.end(), rank)) ranks.push_back(rank);
  sort_unique(ranks);
  return ranks;
}

}  // namespace

Finding undecided(const TraceIndex& index, const Stuck& stuck) {
  Finding f = make_finding("hang.undecided");
  f.confidence = 0;
  f.waiting = index.blocked();
  const uint32_t first = first_blocked(index.view);
  f.sentence = index.stalled ? "the run stalled and the trace does not tell why"
                             : "communication did not finish, and the trace does not tell whether it still would";
  if (first != kNoRow) {
    const OpRow& op = index.view.ops[first];
    f.where = op.where;
    f.first_ns = op.start_ns;
    f.op = op_name(index, first);
    f.seq = seq_of(index, op);
    if (const CommRow* comm = comm_of(index, op)) f.group = group_ref(*comm);
    f.sentence += "; the first to block was rank " + std::to_string(op.rank) + " in " + call_text(index, first) + ", " +
                  group_call_text(index, op);
    f.evidence.push_back(
        cite(index.view, "op", size_t(first), "started, not finished, on rank " + std::to_string(op.rank)));
  } else if (!stuck.pending.empty()) {
    f.sentence +=
        "; operations of " + ranks_text(stuck.pending) + " were enqueued, and nothing tells that they started";
  } else {
    f.sentence += "; no communication is known to be unfinished, so a rank is blocked in its own program";
  }
  f.would_raise_confidence = "the host stacks of the blocked ranks, and a trace of every rank without losses";
  if (const std::vector<int> ranks = awaited(stuck); !ranks.empty()) {
    f.sentence += "; others wait for " + ranks_text(ranks) + ", which made no further call";
    f.would_raise_confidence =
        "how " + ranks_text(ranks) + " ended, or where its host stands; " + f.would_raise_confidence;
  }
  return f;
}

}  // namespace ringscope
