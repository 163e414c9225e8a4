// A rank that left out the last call of a group before the run stalled: its sequence is a prefix of the others',
// so no position differs. It is accused only when it is known to have passed the place (its host issued a call
// that others issue after the missing one) or to have ended normally.
#include <algorithm>
#include <unordered_map>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

// An operation by what it is, whatever the group's members: axis, name, place, direction.
uint64_t identity(const TraceIndex& index, const OpRow& op) {
  const CommRow* comm = nullptr;
  uint64_t what = 128 + uint64_t(op.kind);
  if (op.coll != kNoRow) {
    comm = index.comm(index.view.colls[op.coll].comm);
    what = uint64_t(index.view.colls[op.coll].func);
  } else if (op.p2p != kNoRow) {
    comm = index.comm(index.view.p2ps[op.p2p].comm);
    what = 64 + uint64_t(index.view.p2ps[op.p2p].direction);
  }
  uint64_t h = op.where.pack() * 0x9E3779B97F4A7C15ull;
  h ^= (uint64_t(op.name) << 20 | what << 8 | (comm ? uint64_t(comm->axis) : 255)) * 0xBF58476D1CE4E5B9ull;
  return h ^ h >> 31;
}

// Did `rank` issue something that the owner of `others_op` issued only after it? Operations of one identity are
// counted, so one that also runs before the missing call proves nothing.
bool passed(const TraceIndex& index, int rank, uint32_t others_op) {
  std::unordered_map<uint64_t, int> made, seen;
  const auto [begin, end] = index.ops_of(rank);
  for (uint32_t row = begin; row < end; ++row) ++made[identity(index, index.view.ops[row])];
  const auto [first, last] = index.ops_of(index.view.ops[others_op].rank);
  for (uint32_t row = first; row < last; ++row) {
    const uint64_t id = identity(index, index.view.ops[row]);
    const int nth = ++seen[id];
    if (row <= others_op) continue;
    const auto found = made.find(id);
    if (found != made.end() && found->second >= nth) return true;
  }
  return false;
}

}  // namespace

std::vector<Divergence> find_missing_tails(const TraceIndex& index) {
  std::vector<Divergence> found;
  if (!index.stalled) return found;
  for (const CommCalls& calls : index.comms) {
    // The first call of the group that somebody is blocked in.
    size_t seq = SIZE_MAX;
    uint32_t op = kNoRow;
    for (const MemberCalls& member : calls.members)
      for (size_t i = 0; i < member.coll.size() && i < seq; ++i) {
        if (member.coll[i] == kNoRow) continue;
        const uint32_t row = index.view.colls[member.coll[i]].op;
        if (index.view.ops[row].state != OpState::kStarted) continue;
        seq = i;
        op = row;
      }
    if (op == kNoRow) continue;
    Divergence d;
    for (const MemberCalls& member : calls.members) {
      if (!member.lossless || member.coll.size() > seq) continue;
      const RankExitRow* exit = index.exit_of(member.rank);
      if (exit && exit->status > 0) continue;  // hang.dead_rank tells that
      const bool ended = exit && exit->status == 0;
      if (ended || passed(index, member.rank, op)) d.ranks.push_back(member.rank);
    }
    if (d.ranks.empty()) continue;
    sort_unique(d.ranks);
    d.comm = calls.comm;
    d.seq = seq;
    d.expected = op;
    d.confidence = 0.9;
    found.push_back(std::move(d));
  }
  return found;
}

}  // namespace ringscope
