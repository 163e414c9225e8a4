// Two calls of a group that ask for the same and that one member makes in the other order: nothing that NCCL matches differs,
// nothing hangs, and each tensor is reduced with another one. Only labels show it, and labels accuse nobody by themselves
// (labels.h): this speaks where the numbers of a run disagree and no rule that knows what calls are for has said why.
#include <algorithm>
#include <map>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

constexpr uint64_t kReach = 16;  // calls between the two

struct Exchange {
  const CommRow* comm = nullptr;
  // The members that make the two calls in one order and in the other, sorted, and what one of each makes first.
  std::vector<int> ranks[2];
  uint32_t rows[2] = {kNoRow, kNoRow};
  int right = -1;  // side

  int changed() const { return 1 - std::max(right, 0); }  // side that is shown as the odd one
};

class Exchanges {
 public:
  explicit Exchanges(const TraceIndex& index) : index_(index) {}

  std::vector<Finding> find() {
    for (const CommCalls& calls : index_.comms) look_at(calls);
    if (found_.empty()) return {};
    for (Exchange& e : found_) decide(e);
    return {finding()};
  }

 private:
  uint32_t op_at(const MemberCalls& member, uint64_t seq) const {
    const uint32_t row = member.calls.at(seq);
    return row == kNoRow ? kNoRow : index_.view.colls[row].op;
  }
  const OpRow& op(uint32_t row) const { return index_.view.ops[row]; }
  uint64_t digest(uint32_t row) const { return call_digest(index_.view.colls[op(row).coll]); }

  void look_at(const CommCalls& calls) {
    uint64_t first = UINT64_MAX, end = 0;
    for (const MemberCalls& member : calls.members) {
      if (member.calls.empty()) return;  // whoever is not shown could be on either side
      first = std::min(first, member.calls.first);
      end = std::max(end, member.calls.end());
    }
    for (uint64_t n = first; n < end; ++n)
      for (size_t i = 1; i < calls.members.size(); ++i)
        if (const uint64_t m = partner(calls.members[0], calls.members[i], n)) add(calls, n, m);
  }

  // The number behind n where both make the call that the other makes at n; 0 = there is none.
  uint64_t partner(const MemberCalls& a, const MemberCalls& b, uint64_t n) const {
    const uint32_t mine = op_at(a, n), theirs = op_at(b, n);
    if (mine == kNoRow || theirs == kNoRow || same_label(op(mine), op(theirs)) || digest(mine) != digest(theirs))
      return 0;
    for (uint64_t m = n + 1; m <= n + kReach; ++m) {
      const uint32_t later = op_at(a, m), other = op_at(b, m);
      if (later == kNoRow || other == kNoRow) return 0;
      if (same_label(op(later), op(theirs)) && same_label(op(other), op(mine)) && digest(later) == digest(other))
        return m;
    }
    return 0;
  }

  // Sides by the label that each member's call has at n; a third one makes it nobody's exchange.
  void add(const CommCalls& calls, uint64_t n, uint64_t m) {
    if (!found_.empty() && found_.back().comm == calls.comm && seq_of(index_, op(found_.back().rows[0])) == int64_t(n))
      return;  // of another member
    const uint32_t at_n = op_at(calls.members[0], n), at_m = op_at(calls.members[0], m);
    Exchange e;
    e.comm = calls.comm;
    for (const MemberCalls& member : calls.members) {
      const uint32_t x = op_at(member, n), y = op_at(member, m);
      if (x == kNoRow || y == kNoRow) return;
      const bool as_first = same_label(op(x), op(at_n)) && same_label(op(y), op(at_m));
      if (!as_first && !(same_label(op(x), op(at_m)) && same_label(op(y), op(at_n)))) return;
      e.ranks[!as_first].push_back(member.rank);
      e.rows[!as_first] = x;
    }
    for (std::vector<int>& side : e.ranks) sort_unique(side);
    found_.push_back(e);
  }

  // Which order is right: that of the same two calls in other steps and in groups that lie alike; if they do not tell, that
  // of most members.
  void decide(Exchange& e) const {
    int votes[2] = {};
    for (const CommCalls& calls : index_.comms) {
      if (group_shape(*calls.comm) != group_shape(*e.comm)) continue;
      for (const auto& [step, orders] : orders_in(calls, e.rows[0], e.rows[1]))
        if (orders.size() == 1) ++votes[!orders.begin()->first];  // or its members differ
    }
    if (votes[0] == votes[1]) votes[0] = int(e.ranks[0].size()), votes[1] = int(e.ranks[1].size());
    if (votes[0] != votes[1]) e.right = votes[1] > votes[0];
    if (e.right >= 0) add_whole_groups(e);
  }

  // Groups that lie alike and make the two in the wrong order in that step, all of their members.
  void add_whole_groups(Exchange& e) const {
    for (const CommCalls& calls : index_.comms) {
      if (calls.comm == e.comm || group_shape(*calls.comm) != group_shape(*e.comm)) continue;
      const auto orders = orders_in(calls, e.rows[0], e.rows[1]);
      const auto here = orders.find(op(e.rows[0]).where.step);
      if (here == orders.end() || here->second.size() != 1 || here->second.begin()->first == (e.right == 0)) continue;
      std::vector<int>& changed = e.ranks[e.changed()];
      for (const MemberCalls& member : calls.members) changed.push_back(member.rank);
      sort_unique(changed);
    }
  }

  // By step: does the group make x before y (of any step)? -> members that do.
  std::map<int, std::map<bool, int>> orders_in(const CommCalls& calls, uint32_t x, uint32_t y) const {
    const auto alike = [&](const OpRow& a, const OpRow& b) {
      Where place = a.where;
      place.step = b.where.step;
      return a.name == b.name && place == b.where;
    };
    std::map<int, std::map<bool, int>> orders;
    for (const MemberCalls& member : calls.members) {
      std::map<int, std::pair<uint64_t, uint64_t>> seen;  // by step; 0 = not yet
      for (uint64_t n = member.calls.first; n < member.calls.end(); ++n) {
        const uint32_t row = op_at(member, n);
        if (row == kNoRow) continue;
        if (alike(op(row), op(x))) seen[op(row).where.step].first = n + 1;
        if (alike(op(row), op(y))) seen[op(row).where.step].second = n + 1;
      }
      for (const auto& [step, at] : seen)
        if (at.first && at.second) ++orders[step][at.first < at.second];
    }
    return orders;
  }

  Finding finding() const {
    const auto first = std::min_element(found_.begin(), found_.end(), [&](const Exchange& a, const Exchange& b) {
      return op(a.rows[0]).enqueue_ns < op(b.rows[0]).enqueue_ns;
    });
    Finding f = make_finding("hang.order_swap");
    for (const Exchange& e : found_)
      if (e.right >= 0) f.ranks.insert(f.ranks.end(), e.ranks[e.changed()].begin(), e.ranks[e.changed()].end());
    sort_unique(f.ranks);
    const uint32_t shown = first->rows[first->changed()], beside = first->rows[1 - first->changed()];
    f.group = group_ref(*first->comm);
    f.seq = seq_of(index_, op(shown));
    f.op = op_name(index_, shown);
    f.where = op(shown).where;
    f.first_ns = op(shown).enqueue_ns;
    f.confidence =
        confidence({.agree = double(first->ranks[1 - first->changed()].size()), .observations = double(found_.size())});
    f.sentence = (f.ranks.empty() ? "members of group " + group_text(*f.group) : ranks_text(f.ranks)) +
                 " made two calls that ask for the same in another order than the others: " +
                 group_call_text(index_, op(shown)) + " is " + call_text(index_, shown) + " on rank " +
                 std::to_string(op(shown).rank) + " and " + call_text(index_, beside) + " on rank " +
                 std::to_string(op(beside).rank) + "; nothing hangs, and each tensor was reduced with the other (" +
                 std::to_string(found_.size()) + (found_.size() == 1 ? " such pair)" : " such pairs)");
    if (f.ranks.empty()) f.sentence += "; nothing tells which order is right, so nobody is accused";
    for (const uint32_t row : {shown, beside})
      f.evidence.push_back(cite(index_.view, "coll", size_t(op(row).coll),
                                "rank " + std::to_string(op(row).rank) + ": " + call_text(index_, row)));
    f.would_raise_confidence =
        "the buffers of both calls on each rank: if they are the same, only the labels are wrong";
    return f;
  }

  const TraceIndex& index_;
  std::vector<Exchange> found_;
};

}  // namespace

std::vector<Finding> exchanged_calls(const TraceIndex& index) { return Exchanges(index).find(); }

}  // namespace ringscope
