// hang.missing_rank, hang.op_mismatch, hang.arg_mismatch and hang.order_swap: the words for a divergence.
#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"

namespace ringscope {
namespace {

Evidence evidence(const TraceIndex& index, uint32_t op_row) {
  const OpRow& op = index.view.ops[op_row];
  return cite(index.view, "coll", op.coll,
              "rank " + std::to_string(op.rank) + " ran " + call_text(index, op_row) + " as #" +
                  std::to_string(seq_of(index, op)));
}

// The last call of the rank in the group before seq.
std::string last_call(const TraceIndex& index, const Divergence& d, int rank) {
  const int member = index.group_rank(d.comm->comm, rank);
  const uint32_t row =
      member < 0 || d.seq == 0 ? kNoRow : index.calls(d.comm->comm)->members[size_t(member)].calls.at(d.seq - 1);
  if (row == kNoRow) return "it had made no call there";
  return "its last call there was #" + std::to_string(d.seq - 1) + ", " + call_text(index, index.view.colls[row].op);
}

// Equal calls that no label tells apart: it may have been any of them.
std::string or_one_before(const Divergence& d) {
  if (d.earliest >= d.seq) return "";
  return " (or one of the " + std::to_string(d.seq - d.earliest) + " equal calls before it)";
}

// The calls are of one function: what they ask for differs.
bool same_function(const TraceIndex& index, const Divergence& d) {
  if (d.kind != Divergence::Kind::kOther || d.expected == kNoRow || d.actual == kNoRow) return false;
  const OpRow &a = index.view.ops[d.expected], &b = index.view.ops[d.actual];
  return a.coll != kNoRow && b.coll != kNoRow && index.view.colls[a.coll].func == index.view.colls[b.coll].func;
}

std::string arguments_text(const TraceIndex& index, const Divergence& d) {
  const CollRow &a = index.view.colls[index.view.ops[d.expected].coll],
                &b = index.view.colls[index.view.ops[d.actual].coll];
  std::string text;
  const auto differ = [&](const char* what, const std::string& wrong, const std::string& right) {
    if (wrong != right) text += (text.empty() ? "" : ", ") + std::string(what) + " " + wrong + " instead of " + right;
  };
  differ("count", std::to_string(b.count), std::to_string(a.count));
  differ("type", name(b.dtype), name(a.dtype));
  differ("reduction", name(b.redop), name(a.redop));
  differ("root", std::to_string(b.root), std::to_string(a.root));
  return text;
}

std::string_view id_of(const TraceIndex& index, const Divergence& d) {
  if (d.kind == Divergence::Kind::kMissing && !d.ranks.empty()) return "hang.missing_rank";
  if (d.swapped) return "hang.order_swap";
  return same_function(index, d) ? "hang.arg_mismatch" : "hang.op_mismatch";
}

std::string sentence(const TraceIndex& index, const Divergence& d) {
  const std::string group = group_text(group_ref(*d.comm)), who = ranks_text(d.ranks);
  const std::string at = "call #" + std::to_string(d.seq) + " of group " + group;
  const std::string why = d.why.empty() ? "" : " (" + d.why + ")";
  if (d.ranks.empty())
    return "the members of group " + group + " disagree at call #" + std::to_string(d.seq) + ": some ran " +
           call_text(index, d.expected == kNoRow ? d.actual : d.expected) +
           (d.actual == kNoRow || d.expected == kNoRow ? ", others made no call there"
                                                       : ", others " + call_text(index, d.actual)) +
           "; nothing in the trace tells which is right, so nobody is accused";
  if (d.kind == Divergence::Kind::kMissing) {
    std::string text = who + (d.idle ? " has not called " : " never called ") + call_text(index, d.expected) + ", " +
                       at + or_one_before(d) + why;
    if (d.length > 1) text += ", nor " + std::to_string(d.length - 1) + " more";
    text += "; " + last_call(index, d, d.ranks[0]);
    return d.actual == kNoRow ? text : text + "; it went on with " + call_text(index, d.actual);
  }
  if (d.kind == Divergence::Kind::kExtra)
    return who + " made " + (d.length == 1 ? "one call" : std::to_string(d.length) + " calls") +
           " more than the group: " + call_text(index, d.actual) + " as " + at + or_one_before(d) +
           (d.expected == kNoRow ? ", where the others made none"
                                 : ", where the others ran " + call_text(index, d.expected)) +
           why;
  if (d.swapped)
    return who + " made " + std::to_string(d.length) + " calls of group " + group + " in another order: from #" +
           std::to_string(d.seq) + " on it ran " + call_text(index, d.actual) + " where the others ran " +
           call_text(index, d.expected) + why;
  if (same_function(index, d))
    return who + " called " + op_name(index, d.actual) +
           " with other arguments than its group: " + arguments_text(index, d) + ", in " + call_text(index, d.actual) +
           " as " + at + why + "; nothing compares them, so it may return garbage instead of hanging";
  const bool all = d.ranks.size() == d.comm->ranks.size();
  return who + " ran " + call_text(index, d.actual) + " as " + at + ", where " + (all ? "the group" : "the others") +
         " ran " + call_text(index, d.expected) + why + "; this is the first call that differs";
}

}  // namespace

Finding divergence_finding(const TraceIndex& index, const Divergence& d) {
  Finding f = make_finding(id_of(index, d));
  f.ranks = d.ranks;
  f.group = group_ref(*d.comm);
  f.seq = int64_t(d.seq);
  f.confidence = confidence(d.support);
  if (d.idle) f.severity = Severity::kWarning;
  const uint32_t shown = d.kind == Divergence::Kind::kExtra || d.expected == kNoRow ? d.actual : d.expected;
  f.op = op_name(index, shown);
  f.where = index.view.ops[shown].where;
  f.first_ns = index.view.ops[shown].enqueue_ns;
  f.sentence = sentence(index, d);
  for (uint32_t row : {d.expected, d.actual})
    if (row != kNoRow) f.evidence.push_back(evidence(index, row));
  if (d.idle) f.would_raise_confidence = "a second snapshot without progress, or a timeout that fired";
  else if (d.ranks.empty()) f.would_raise_confidence = "a trace that holds an earlier step in which the group agreed";
  else if (f.confidence < 0.95)
    f.would_raise_confidence = "more members of the group, or more earlier steps in which it agreed";
  return f;
}

}  // namespace ringscope
