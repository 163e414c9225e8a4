// First divergence of a group: its members' sequences of calls are compared position by position, as NCCL
// matches them. At the first position where they differ an edit script over a small window tells whether a rank
// left a call out, made one more, or made another; a vote tells which rank. Two camps of equal size are settled
// by what other groups of the same axis did at this place, then by other steps, then by other layers.
#include <algorithm>
#include <array>
#include <optional>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

constexpr size_t kWindow = 32;  // calls looked ahead for the edit script
constexpr size_t kRun = 4;      // calls that must agree behind an edit

uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h *= 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 29);
}

// What of a call must agree, at three levels of detail.
struct Digest {
  uint64_t full = 0;       // everything
  uint64_t any_step = 0;   // the same call of another step
  uint64_t any_layer = 0;  // the same call of another layer and step
};

Digest digest(const TraceView& view, uint32_t coll_row) {
  const CollRow& coll = view.colls[coll_row];
  const OpRow& op = view.ops[coll.op];
  uint64_t h = mix(op.name, uint64_t(coll.func) << 8 | uint64_t(op.where.pass));
  Digest d;
  d.any_layer = h;
  h = mix(h, uint64_t(coll.dtype) << 40 | uint64_t(coll.redop) << 32 | uint32_t(coll.root));
  h = mix(h, coll.count);
  Where where = op.where;
  where.step = -1;
  d.any_step = mix(h, where.pack());
  d.full = mix(h, op.where.pack());
  return d;
}

// How often a call was made elsewhere, for groups that have no majority of their own.
class Votes {
 public:
  explicit Votes(const TraceIndex& index) : index_(index) {
    for (const CommCalls& calls : index.comms)
      for (const MemberCalls& member : calls.members)
        for (uint32_t row : member.coll) {
          if (row == kNoRow) continue;
          const Digest d = digest(index.view, row);
          full_[key(calls, d.full)].insert(calls.comm->comm);
          const Where& where = index.view.ops[index.view.colls[row].op].where;
          steps_[key(calls, d.any_step)].insert(where.step);
          layers_[key(calls, d.any_layer)].insert(int64_t(where.step) << 16 | uint16_t(where.layer));
        }
  }

  // Support of the call at three levels: other groups at this place, other steps, other layers or steps.
  std::array<int, 3> support(const CommCalls& calls, uint32_t row) const {
    const Digest d = digest(index_.view, row);
    const auto others = [](const auto& table, uint64_t k) {
      const auto found = table.find(k);
      return found == table.end() ? 0 : int(found->second.size()) - 1;
    };
    return {others(full_, key(calls, d.full)), others(steps_, key(calls, d.any_step)),
            others(layers_, key(calls, d.any_layer))};
  }

  // May `row`, which one camp has and the other has not, be expected here? +1 yes, -1 no, 0 unknown.
  // `anchor` is a call that both camps made: where it was made without `row`, `row` was not needed.
  int expected(const CommCalls& calls, uint32_t row, uint32_t anchor) const {
    const std::array<int, 3> with = support(calls, row);
    if (with[0] > 0) return 1;
    const std::array<int, 3> around = anchor == kNoRow ? std::array<int, 3>{} : support(calls, anchor);
    if (around[0] > 0) return -1;
    if (with[1] > 0) return 1;
    if (around[1] > 0) return -1;
    return with[2] > 0 ? 1 : 0;
  }

 private:
  static uint64_t key(const CommCalls& calls, uint64_t digest) { return mix(digest, uint64_t(calls.comm->axis) + 1); }

  const TraceIndex& index_;
  std::unordered_map<uint64_t, std::set<uint32_t>> full_;
  std::unordered_map<uint64_t, std::set<int64_t>> steps_, layers_;
};

struct Edit {
  enum class Kind { kDeletion, kInsertion, kSubstitution } kind = Kind::kSubstitution;
  size_t length = 1;
};

class Comparison {
 public:
  Comparison(const TraceIndex& index, const CommCalls& calls) : index_(index), calls_(calls) {}

  std::optional<size_t> first_difference() const {
    size_t end = 0;
    for (const MemberCalls& member : calls_.members) end = std::max(end, member.coll.size());
    for (size_t seq = 0; seq < end; ++seq)
      if (differs(seq)) return seq;
    return std::nullopt;
  }

  std::vector<Divergence> explain(size_t seq, const Votes& votes) const {
    std::map<uint64_t, std::vector<const MemberCalls*>> camps;
    for (const MemberCalls& member : calls_.members)
      if (const uint64_t d = full(member, seq)) camps[d].push_back(&member);
    std::vector<std::vector<const MemberCalls*>> sides;
    for (auto& [d, camp] : camps) sides.push_back(std::move(camp));
    std::stable_sort(sides.begin(), sides.end(), [](const auto& x, const auto& y) { return x.size() > y.size(); });
    size_t voters = 0;
    for (const auto& side : sides) voters += side.size();
    const bool majority = sides[0].size() * 2 > voters;
    if (!majority && (sides.size() > 2 || sides[0].size() != sides[1].size())) return {camps_only(seq, sides)};
    if (!majority) return {settle(seq, sides[0], sides[1], votes)};
    std::vector<Divergence> found;
    for (size_t i = 1; i < sides.size(); ++i) found.push_back(depart(seq, sides[0], sides[i]));
    std::erase_if(found, [](const Divergence& d) { return !d.comm; });
    return found;
  }

 private:
  uint64_t full(const MemberCalls& member, size_t seq) const {
    const uint32_t row = member.at(seq);
    return row == kNoRow ? 0 : digest(index_.view, row).full;
  }

  bool differs(size_t seq) const {
    uint64_t first = 0;
    for (const MemberCalls& member : calls_.members) {
      const uint64_t d = full(member, seq);
      if (d == 0) continue;
      if (first == 0) first = d;
      if (d != first) return true;
    }
    return false;
  }

  // How b departs from a at seq: what was left out of b, put into b, or replaced.
  Edit edit(const MemberCalls& a, const MemberCalls& b, size_t seq) const {
    const auto agree = [&](size_t i, size_t j) {
      size_t run = 0;
      while (run < kRun && a.at(i + run) != kNoRow && b.at(j + run) != kNoRow) {
        if (full(a, i + run) != full(b, j + run)) return false;
        ++run;
      }
      return run > 0;
    };
    for (size_t k = 1; k <= kWindow; ++k) {
      if (agree(seq + k, seq)) return {Edit::Kind::kDeletion, k};
      if (agree(seq, seq + k)) return {Edit::Kind::kInsertion, k};
      if (agree(seq + k, seq + k)) return {Edit::Kind::kSubstitution, k};
    }
    return {Edit::Kind::kSubstitution, 1};
  }

  // `camp` departed from `agreed`. Nothing when a rank of it lost records.
  Divergence depart(size_t seq, const std::vector<const MemberCalls*>& agreed,
                    const std::vector<const MemberCalls*>& camp) const {
    Divergence d;
    for (const MemberCalls* member : camp) {
      if (!member->lossless) return {};
      d.ranks.push_back(member->rank);
    }
    sort_unique(d.ranks);
    d.comm = calls_.comm;
    d.seq = seq;
    d.expected = index_.view.colls[agreed[0]->at(seq)].op;
    d.actual = index_.view.colls[camp[0]->at(seq)].op;
    switch (edit(*agreed[0], *camp[0], seq).kind) {
      case Edit::Kind::kDeletion: d.kind = Divergence::Kind::kMissing; break;
      case Edit::Kind::kInsertion: d.kind = Divergence::Kind::kExtra; break;
      case Edit::Kind::kSubstitution: d.kind = Divergence::Kind::kOther; break;
    }
    d.confidence = agreed.size() > 2 ? 0.98 : 0.95;
    return d;
  }

  Divergence settle(size_t seq, const std::vector<const MemberCalls*>& a, const std::vector<const MemberCalls*>& b,
                    const Votes& votes) const {
    const Edit e = edit(*a[0], *b[0], seq);
    int side = 0;  // +1: b departed, -1: a departed
    if (e.kind == Edit::Kind::kDeletion) side = votes.expected(calls_, a[0]->at(seq), b[0]->at(seq));
    if (e.kind == Edit::Kind::kInsertion) side = -votes.expected(calls_, b[0]->at(seq), a[0]->at(seq));
    if (e.kind == Edit::Kind::kSubstitution) {
      const auto x = votes.support(calls_, a[0]->at(seq)), y = votes.support(calls_, b[0]->at(seq));
      for (int level = 0; level < 3 && side == 0; ++level) side = (x[level] > y[level]) - (x[level] < y[level]);
    }
    if (side == 0) return camps_only(seq, {a, b});
    Divergence d = side > 0 ? depart(seq, a, b) : depart(seq, b, a);
    d.confidence = 0.9;
    return d;
  }

  Divergence camps_only(size_t seq, const std::vector<std::vector<const MemberCalls*>>& sides) const {
    for (const auto& side : sides)
      for (const MemberCalls* member : side)
        if (!member->lossless) return {};
    Divergence d;
    d.kind = Divergence::Kind::kOther;
    d.comm = calls_.comm;
    d.seq = seq;
    d.expected = index_.view.colls[sides[0][0]->at(seq)].op;
    d.actual = index_.view.colls[sides[1][0]->at(seq)].op;
    d.confidence = 0.5;
    return d;
  }

  const TraceIndex& index_;
  const CommCalls& calls_;
};

}  // namespace

std::vector<Divergence> find_divergences(const TraceIndex& index) {
  std::vector<Divergence> found;
  std::optional<Votes> votes;  // built only when a group differs; clean traces never need it
  for (const CommCalls& calls : index.comms) {
    if (calls.members.size() < 2) continue;
    Comparison comparison(index, calls);
    const std::optional<size_t> seq = comparison.first_difference();
    if (!seq) continue;
    if (!votes) votes.emplace(index);
    for (Divergence& d : comparison.explain(*seq, *votes))
      if (d.comm) found.push_back(std::move(d));
  }
  return found;
}

}  // namespace ringscope
