// hang.missing_rank and hang.op_mismatch: the words for a divergence.
#include <algorithm>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

std::string call_text(const TraceIndex& index, uint32_t op_row) {
  const OpRow& op = index.view.ops[op_row];
  std::string text = op_name(index, op_row);
  if (op.coll != kNoRow) {
    const CollRow& coll = index.view.colls[op.coll];
    text += "(" + std::to_string(coll.count) + " " + name(coll.dtype);
    if (coll.redop != RedOp::kNone) text += std::string(" ") + name(coll.redop);
    text += ")";
  }
  if (op.name) text += " '" + std::string(index.view.text(op.name)) + "'";
  const std::string place = place_text(op.where);
  return place.empty() ? text : text + " at " + place;
}

Evidence evidence(const TraceIndex& index, uint32_t op_row, const std::string& prefix) {
  const OpRow& op = index.view.ops[op_row];
  return cite(index.view, "coll", op.coll,
              prefix + "rank " + std::to_string(op.rank) + " ran " + call_text(index, op_row));
}

// The last call of the rank in the group before seq.
std::string last_call(const TraceIndex& index, const Divergence& d, int rank) {
  const CommCalls* calls = index.calls(d.comm->comm);
  for (const MemberCalls& member : calls->members)
    if (member.rank == rank && d.seq > 0 && member.at(d.seq - 1) != kNoRow) {
      const uint32_t op = index.view.colls[member.at(d.seq - 1)].op;
      return "its last call there was #" + std::to_string(d.seq - 1) + ", " + call_text(index, op);
    }
  return "it had made no call there";
}

}  // namespace

Finding divergence_finding(const TraceIndex& index, const Divergence& d) {
  const bool missing = d.kind == Divergence::Kind::kMissing;
  Finding f = make_finding(missing ? "hang.missing_rank" : "hang.op_mismatch");
  f.ranks = d.ranks;
  f.group = group_ref(*d.comm);
  f.seq = int64_t(d.seq);
  f.confidence = d.confidence;
  const uint32_t shown = d.kind == Divergence::Kind::kExtra ? d.actual : d.expected;
  f.op = op_name(index, shown);
  f.where = index.view.ops[shown].where;
  f.first_ns = index.view.ops[shown].enqueue_ns;
  const std::string at = "#" + std::to_string(d.seq) + " of group " + group_text(*f.group);
  const std::string who = ranks_text(d.ranks);
  if (d.ranks.empty()) {
    f.sentence = "the members of group " + group_text(*f.group) + " disagree at call #" + std::to_string(d.seq) +
                 ": some ran " + call_text(index, d.expected) + ", others " + call_text(index, d.actual) +
                 "; there is no majority, so nobody is accused";
    f.would_raise_confidence = "a trace that holds an earlier step in which the group agreed";
  } else if (missing) {
    f.sentence =
        who + " never called " + call_text(index, d.expected) + ", call " + at + "; " + last_call(index, d, d.ranks[0]);
    if (d.actual != kNoRow) f.sentence += "; it went on with " + call_text(index, d.actual);
  } else if (d.kind == Divergence::Kind::kExtra) {
    f.sentence = who + " made one call more than its group: " + call_text(index, d.actual) + " as call " + at +
                 ", where the others ran " + call_text(index, d.expected);
  } else {
    f.sentence = who + " ran " + call_text(index, d.actual) + " as call " + at + ", where the others ran " +
                 call_text(index, d.expected) + "; this is the first call that differs";
  }
  f.evidence.push_back(evidence(index, d.expected, ""));
  if (d.actual != kNoRow) f.evidence.push_back(evidence(index, d.actual, ""));
  if (f.confidence < 0.95 && f.would_raise_confidence.empty())
    f.would_raise_confidence = "a third member of the group: with two, other groups and steps had to decide";
  return f;
}

}  // namespace ringscope
