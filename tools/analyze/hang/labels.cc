#include "tools/analyze/hang/labels.h"

#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/history.h"

namespace ringscope {
namespace {

bool movable(const Strand& with, uint64_t at, uint64_t length) {
  return at > with.first && with.at(at - 1) != 0 && with.at(at - 1) == with.at(at - 1 + length);
}

}  // namespace

uint64_t place_by_label(const TraceIndex& index, const Strand& with, const Strand& without, uint64_t n) {
  const auto& ops = index.view.ops;
  const auto shifted = [&](uint64_t at) {
    const uint32_t here = without.op(at), same = with.op(at);
    if (here == kNoRow || same == kNoRow || !has_label(ops[here]) || same_label(ops[here], ops[same])) return false;
    for (uint64_t k = 1; k <= kWindow; ++k) {
      const uint32_t later = with.op(at + k);
      if (later != kNoRow && same_label(ops[here], ops[later])) return true;
    }
    return false;
  };
  // Two calls in a row under one label (both transfers of a ring step) may look unshifted.
  const auto repeated = [&](uint64_t at) {
    const uint32_t here = with.op(at), before = at > 0 ? with.op(at - 1) : kNoRow, behind = with.op(at + 1);
    return here != kNoRow && has_label(ops[here]) &&
           ((before != kNoRow && same_label(ops[here], ops[before])) ||
            (behind != kNoRow && same_label(ops[here], ops[behind])));
  };
  uint64_t place = n;
  for (uint64_t at = n; at-- > std::max(with.first, without.first) && (shifted(at) || repeated(at));)
    if (shifted(at)) place = at;
  return place;
}

bool from_earlier_step(const TraceIndex& index, uint32_t then, uint32_t now, const Continuation& history) {
  if (history.next == 0) return false;
  if (then == kNoRow || now == kNoRow) return true;
  const int before = index.view.ops[then].where.step, here = index.view.ops[now].where.step;
  return before < 0 || here < 0 || before < here;
}

uint64_t earliest_place(const Strand& with, uint64_t n, uint64_t length) {
  while (movable(with, n, length)) --n;
  return n;
}

std::optional<bool> belongs_by_label(const TraceIndex& index, const Strand& with, uint64_t at) {
  const auto& ops = index.view.ops;
  const uint32_t row = with.op(at);
  if (row == kNoRow || !has_label(ops[row])) return std::nullopt;
  const OpRow& op = ops[row];
  if (op.where != Where{} && at > with.first && with.at(at - 1) == with.at(at) && same_label(ops[with.op(at - 1)], op))
    return false;
  for (uint64_t n = with.first; n < with.end(); ++n) {
    if (n == at || with.at(n) != with.at(at)) continue;
    const OpRow& other = ops[with.op(n)];
    if (other.name == op.name && other.where.pass == op.where.pass && other.where != op.where) return true;
  }
  return std::nullopt;
}

}  // namespace ringscope
