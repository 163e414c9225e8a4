// A host that stopped issuing: a lock, a data loader, a loop that does not end. In a stall every other host stands in a wait
// for one of its streams, and that wait is the last thing it did; a silent one did something else last.
#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"

namespace ringscope {
namespace {

struct LastDone {
  bool waits = false;    // for a stream
  uint32_t op = kNoRow;  // the last operation that it issued
  uint64_t issue = 0;
};

LastDone last_done(const TraceIndex& index, int rank) {
  LastDone last;
  const auto [begin, end] = index.ops_of(rank);
  if (begin < end) last.op = end - 1, last.issue = index.view.ops[end - 1].issue;
  // A host that waits for the others to create a communicator waits.
  last.waits = begin < end && index.view.ops[end - 1].kind == OpKind::kCommInit &&
               index.view.ops[end - 1].state != OpState::kCompleted;
  const auto [first, behind] = index.syncs_of(rank);
  if (first < behind && index.view.syncs[behind - 1].issue > last.issue)
    last.waits = index.view.syncs[behind - 1].kind == SyncKind::kHostSync;
  return last;
}

}  // namespace

std::vector<int> silent_hosts(const TraceIndex& index, const Stuck& stuck) {
  std::vector<int> silent;
  const bool waits_recorded = std::any_of(index.view.syncs.begin(), index.view.syncs.end(),
                                          [](const SyncRow& sync) { return sync.kind == SyncKind::kHostSync; });
  const bool creations_recorded = std::any_of(index.view.ops.begin(), index.view.ops.end(),
                                              [](const OpRow& op) { return op.kind == OpKind::kCommInit; });
  if (!index.stalled || !(waits_recorded || creations_recorded)) return silent;
  for (int rank : index.ranks()) {
    const RankExitRow* exit = index.exit_of(rank);
    const auto [begin, end] = index.ops_of(rank);
    // What it issued before was joined by all, so nothing of it is stuck.
    const bool alive = exit && exit->status == -2 && !std::binary_search(stuck.ranks.begin(), stuck.ranks.end(), rank);
    // Of several threads, each would have to be silent.
    if (!alive || host_threads(index, rank).size() != 1 || !index.lossless(rank, index.view.ops[end - 1].enqueue_ns, 0))
      continue;
    if (!last_done(index, rank).waits) silent.push_back(rank);
  }
  // Alive, and it never asked for the first communicator.
  for (const RankRow& row : index.view.ranks) {
    const RankExitRow* exit = index.exit_of(row.rank);
    if (creations_recorded && !index.seen(row.rank) && exit && exit->status == -2 && index.lossless(row.rank))
      silent.push_back(row.rank);
  }
  sort_unique(silent);
  return silent;
}

std::string silent_text(const TraceIndex& index, const std::vector<int>& ranks) {
  const uint32_t op = last_done(index, ranks[0]).op;
  if (op == kNoRow)
    return std::string(ranks.size() == 1 ? "the host of " : "the hosts of ") + ranks_text(ranks) +
           " started and issued nothing at all, while others wait for it to create a communicator";
  const std::string place = place_text(index.view.ops[op].where);
  return std::string(ranks.size() == 1 ? "the host of " : "the hosts of ") + ranks_text(ranks) +
         " issued nothing more and waited for no stream; the last that rank " + std::to_string(ranks[0]) +
         " issued was " + op_name(index, op) + (place.empty() ? "" : " at " + place);
}

Finding silent_finding(const TraceIndex& index, const std::vector<int>& ranks) {
  Finding f = make_finding("hang.missing_rank");
  f.ranks = ranks;
  const uint32_t op = last_done(index, ranks[0]).op;
  f.sentence = silent_text(index, ranks);
  // Those who wait as they should, and those who do not, are observations of one rule.
  f.confidence = confidence({1, double(std::max<size_t>(1, index.ranks().size() - ranks.size())), 0, 1});
  f.would_raise_confidence = "the host stacks of " + ranks_text(ranks);
  if (op == kNoRow) return f;
  f.where = index.view.ops[op].where;
  f.first_ns = index.view.ops[op].enqueue_ns;
  f.op = op_name(index, op);
  f.evidence.push_back(cite(index.view, "op", size_t(op), "the last operation of rank " + std::to_string(ranks[0])));
  return f;
}

}  // namespace ringscope
