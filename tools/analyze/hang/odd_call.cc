// A call that all members of a group made alike, and that the job makes otherwise wherever else it uses its label: nothing
// hangs and no member differs, but one reduction, type or function is not the one that the program means. Speaks only
// where no rule that knows what a call is for has spoken.
#include <algorithm>
#include <map>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"
#include "tools/analyze/hang/usage.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

constexpr size_t kLeastUses = 2;  // of the usual call

struct Odd {
  std::vector<uint32_t> rows;  // op rows
  size_t usual = 0, odd = 0;
};

class OddCalls {
 public:
  explicit OddCalls(const TraceIndex& index) : index_(index), usage_(index) {}

  std::vector<Finding> find() {
    for (const CommCalls& calls : index_.comms) {
      uint64_t first = UINT64_MAX, end = 0;
      for (const MemberCalls& member : calls.members) {
        if (member.calls.empty()) continue;
        first = std::min(first, member.calls.first);
        end = std::max(end, member.calls.end());
      }
      for (uint64_t seq = first; seq < end; ++seq) look_at(calls, seq);
    }
    std::vector<Finding> found;
    for (const auto& [key, odd] : odd_) found.push_back(finding(odd));
    return found;
  }

 private:
  // Whoever is seen in the group made the same call under the same label.
  void look_at(const CommCalls& calls, uint64_t seq) {
    uint32_t shown = kNoRow;
    std::vector<uint32_t> rows;
    for (const MemberCalls& member : calls.members) {
      const uint32_t row = member.calls.at(seq);
      if (row == kNoRow) continue;
      const uint32_t op = index_.view.colls[row].op;
      if (shown == kNoRow) shown = op;
      if (kind_digest(index_.view.colls[row]) != kind_digest(index_.view.colls[index_.view.ops[shown].coll]) ||
          index_.view.ops[op].name != index_.view.ops[shown].name)
        return;
      rows.push_back(op);
    }
    if (shown == kNoRow) return;
    const Usage::Elsewhere elsewhere = usage_.elsewhere(shown);
    if (elsewhere.other < kLeastUses * rows.size() || 2 * (elsewhere.same + rows.size()) > elsewhere.other) return;
    Odd& odd = odd_[mix(index_.view.ops[shown].name, kind_digest(index_.view.colls[index_.view.ops[shown].coll]))];
    odd.rows.insert(odd.rows.end(), rows.begin(), rows.end());
    odd.usual = elsewhere.other;
  }

  // The usual call under the same label, to show beside it.
  uint32_t usual(uint32_t odd_row) const {
    const OpRow& odd = index_.view.ops[odd_row];
    for (const CollRow& coll : index_.view.colls) {
      const OpRow& op = index_.view.ops[coll.op];
      if (op.name == odd.name && op.where.pass == odd.where.pass &&
          kind_digest(coll) != kind_digest(index_.view.colls[odd.coll]))
        return coll.op;
    }
    return odd_row;
  }

  Finding finding(const Odd& odd) const {
    uint32_t shown = odd.rows[0];
    for (uint32_t row : odd.rows)
      if (index_.view.ops[row].enqueue_ns < index_.view.ops[shown].enqueue_ns) shown = row;
    const OpRow& op = index_.view.ops[shown];
    const uint32_t like = usual(shown);
    const bool same_function = index_.view.colls[op.coll].func == index_.view.colls[index_.view.ops[like].coll].func;
    Finding f = make_finding(same_function ? "hang.arg_mismatch" : "hang.op_mismatch");
    for (uint32_t row : odd.rows) f.ranks.push_back(index_.view.ops[row].rank);
    sort_unique(f.ranks);
    if (const CommRow* comm = comm_of(index_, op)) f.group = group_ref(*comm);
    f.seq = seq_of(index_, op);
    f.op = op_name(index_, shown);
    f.where = op.where;
    f.first_ns = op.enqueue_ns;
    f.confidence = confidence({1, double(odd.usual), double(odd.rows.size()), 1});
    f.sentence = ranks_text(f.ranks) + " ran " + call_text(index_, shown) + ", " + group_call_text(index_, op) +
                 ", where the job otherwise runs " + call_text(index_, like) + " under this label (" +
                 std::to_string(odd.usual) + " times); all members agree, so nothing hangs";
    for (uint32_t row : {shown, like})
      f.evidence.push_back(cite(index_.view, "coll", size_t(index_.view.ops[row].coll), call_text(index_, row)));
    f.would_raise_confidence =
        "the program's own word for what this call is for; if the label has two uses, it is none";
    return f;
  }

  const TraceIndex& index_;
  Usage usage_;
  std::map<uint64_t, Odd> odd_;
};

}  // namespace

std::vector<Finding> odd_calls(const TraceIndex& index) { return OddCalls(index).find(); }

}  // namespace ringscope
