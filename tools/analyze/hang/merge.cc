// One mistake shows in several groups: in the copies of a group along another axis, and in every group of the rank that
// left a whole layer out. Copies are put together; of one rank the divergence that it made first is kept.
#include <algorithm>
#include <tuple>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"

namespace ringscope {
namespace {

uint64_t digest(const TraceIndex& index, uint32_t op) { return op == kNoRow ? 0 : program_digest(index, op); }

// Equal for the same mistake in another group. Of a call of another function only the function counts: its arguments may
// follow from the rank.
uint64_t mistake(const TraceIndex& index, const Divergence& d) {
  uint64_t h =
      mix(mix(uint64_t(d.kind) << 8 | uint64_t(d.tail) << 1 | uint64_t(d.ranks.empty()), d.seq), d.comm->ranks.size());
  h = mix(h, digest(index, d.expected));
  const auto function = [&](uint32_t row) {
    const uint32_t coll = row == kNoRow ? kNoRow : index.view.ops[row].coll;
    return coll == kNoRow ? CollFunc::kUnknown : index.view.colls[coll].func;
  };
  const bool other_function = d.kind == Divergence::Kind::kOther && function(d.actual) != function(d.expected);
  return mix(h, other_function ? uint64_t(function(d.actual)) : digest(index, d.actual));
}

// When the accused went past the place; one that made no call there has no time of its own.
int64_t when(const TraceIndex& index, const Divergence& d) {
  return index.view.ops[d.actual != kNoRow ? d.actual : d.expected].enqueue_ns;
}

void put_together(Divergence& known, const Divergence& copy) {
  known.ranks.insert(known.ranks.end(), copy.ranks.begin(), copy.ranks.end());
  sort_unique(known.ranks);
  known.support.observations += 1;
  known.earliest = std::min(known.earliest, copy.earliest);
}

}  // namespace

std::vector<Divergence> merge_divergences(const TraceIndex& index, std::vector<Divergence> all) {
  // Decided ones first, then by time: what follows from one comes behind it.
  std::stable_sort(all.begin(), all.end(), [&](const Divergence& a, const Divergence& b) {
    return std::tuple(a.ranks.empty(), when(index, a)) < std::tuple(b.ranks.empty(), when(index, b));
  });
  std::vector<Divergence> kept;
  std::unordered_map<uint64_t, size_t> mistakes;  // -> kept
  std::set<const CommRow*> groups;                // of the kept ones: their other camps are mistakes of their own
  std::set<int> accused;
  for (const Divergence& d : all) {
    const uint64_t key = mistake(index, d);
    if (const auto copy = mistakes.find(key); copy != mistakes.end()) {
      put_together(kept[copy->second], d);
    } else {
      const auto& members = d.comm->ranks;
      const bool follows = !groups.contains(d.comm) && std::any_of(members.begin(), members.end(),
                                                                   [&](int rank) { return accused.contains(rank); });
      if (follows) continue;
      mistakes.emplace(key, kept.size());
      groups.insert(d.comm);
      kept.push_back(d);
    }
    accused.insert(d.ranks.begin(), d.ranks.end());
  }
  return kept;
}

}  // namespace ringscope
