// hang.dead_rank: a rank ended by itself and others are left waiting.
#include <algorithm>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

// The operation that waits for the rank, of all that are blocked the one that blocked first.
uint32_t waiting_operation(const TraceIndex& index, int dead, const CommRow** group) {
  uint32_t best = kNoRow;
  for (uint32_t row = 0; row < index.view.ops.size(); ++row) {
    const OpRow& op = index.view.ops[row];
    if (!is_comm(op) || op.state != OpState::kStarted || op.rank == dead) continue;
    const CommRow* comm = nullptr;
    if (op.coll != kNoRow) {
      comm = index.comm(index.view.colls[op.coll].comm);
      if (comm && std::find(comm->ranks.begin(), comm->ranks.end(), dead) == comm->ranks.end()) comm = nullptr;
    } else if (op.p2p != kNoRow) {
      const P2pRow& p2p = index.view.p2ps[op.p2p];
      comm = index.comm(p2p.comm);
      if (comm && (p2p.peer < 0 || size_t(p2p.peer) >= comm->ranks.size() || comm->ranks[p2p.peer] != dead))
        comm = nullptr;
    }
    if (!comm) continue;
    if (best == kNoRow || op.start_ns < index.view.ops[best].start_ns) {
      best = row;
      *group = comm;
    }
  }
  return best;
}

}  // namespace

std::vector<Finding> dead_ranks(const TraceIndex& index) {
  std::vector<Finding> found;
  if (!index.stalled) return found;
  for (size_t i = 0; i < index.view.rank_exits.size(); ++i) {
    const RankExitRow& exit = index.view.rank_exits[i];
    if (exit.status <= 0) continue;
    Finding f = make_finding("hang.dead_rank");
    f.ranks = {exit.rank};
    f.where = exit.where;
    f.first_ns = exit.time_ns;
    f.confidence = 0.99;
    f.sentence = "rank " + std::to_string(exit.rank) + " ended by itself with exit code " + std::to_string(exit.status);
    if (!exit.reason.empty()) f.sentence += " (" + exit.reason + ")";
    if (const std::string place = place_text(exit.where); !place.empty()) f.sentence += " at " + place;
    f.evidence.push_back(cite(index.view, "rank_exit", size_t(i),
                              "rank " + std::to_string(exit.rank) + " exit status " + std::to_string(exit.status)));
    const CommRow* comm = nullptr;
    const uint32_t op = waiting_operation(index, exit.rank, &comm);
    if (op != kNoRow) {
      const OpRow& row = index.view.ops[op];
      f.group = group_ref(*comm);
      f.op = op_name(index, op);
      if (row.coll != kNoRow) f.seq = int64_t(index.view.colls[row.coll].seq);
      if (row.p2p != kNoRow) f.seq = int64_t(index.view.p2ps[row.p2p].seq);
      f.sentence += "; rank " + std::to_string(row.rank) + " was the first to wait for it, in " + *f.op + " '" +
                    std::string(index.view.text(row.name)) + "' #" + std::to_string(*f.seq) + " of group " +
                    group_text(*f.group);
      f.evidence.push_back(cite(index.view, "op", size_t(op),
                                "rank " + std::to_string(row.rank) + " started " + *f.op + " and did not finish it"));
    }
    found.push_back(std::move(f));
  }
  return found;
}

}  // namespace ringscope
