// A rank that left out the last call of a group before the run stalled: its sequence is a prefix of the others',
// so no position differs. It is accused only when it is known to have passed the place (its host issued a call
// that others issue after the missing one) or to have ended normally.
#include <algorithm>
#include <unordered_set>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

// A call by what it is, whatever the group's members: axis, name, place, direction.
uint64_t identity(const TraceIndex& index, const OpRow& op) {
  uint32_t comm = 0;
  uint64_t what = 0;
  if (op.coll != kNoRow) {
    comm = index.view.colls[op.coll].comm;
    what = uint64_t(index.view.colls[op.coll].func);
  } else {
    comm = index.view.p2ps[op.p2p].comm;
    what = 64 + uint64_t(index.view.p2ps[op.p2p].direction);
  }
  const CommRow* row = index.comm(comm);
  uint64_t h = op.where.pack() * 0x9E3779B97F4A7C15ull;
  h ^= (uint64_t(op.name) << 20 | what << 8 | (row ? uint64_t(row->axis) : 255)) * 0xBF58476D1CE4E5B9ull;
  return h ^ h >> 31;
}

bool has_rows(const OpRow& op) { return is_comm(op) && (op.coll != kNoRow || op.p2p != kNoRow); }

bool passed(const TraceIndex& index, int rank, uint32_t others_op) {
  std::unordered_set<uint64_t> made;
  const auto [begin, end] = index.ops_of(rank);
  for (uint32_t row = begin; row < end; ++row)
    if (has_rows(index.view.ops[row])) made.insert(identity(index, index.view.ops[row]));
  const uint32_t last = index.ops_of(index.view.ops[others_op].rank).second;
  for (uint32_t row = others_op + 1; row < last; ++row)
    if (has_rows(index.view.ops[row]) && made.contains(identity(index, index.view.ops[row]))) return true;
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
