#include "tracedb/store/op_rows.h"

#include <algorithm>

namespace ringscope {
namespace {

constexpr uint64_t kSequence = (uint64_t(1) << 40) - 1;
constexpr uint64_t kSlack = 8;  // a ring is dense while its ids span at most this many times their number

}  // namespace

OpRows::OpRows(const std::vector<OpRow>& ops) {
  for (const OpRow& op : ops) {
    Ring& ring = rings_[uint32_t(op.op >> 40)];
    const uint64_t at = op.op & kSequence;
    ring.first = ring.count ? std::min(ring.first, at) : at;
    ring.last = std::max(ring.last, at);
    ++ring.count;
  }
  for (auto& [id, ring] : rings_) {
    const uint64_t span = ring.last - ring.first + 1;
    if (span <= ring.count * kSlack + 1024) ring.rows.assign(span, kNoRow);
  }
  for (uint32_t row = 0; row < ops.size(); ++row) {
    Ring& ring = rings_[uint32_t(ops[row].op >> 40)];
    if (ring.rows.empty()) {
      scattered_.try_emplace(ops[row].op, row);
      continue;
    }
    uint32_t& slot = ring.rows[(ops[row].op & kSequence) - ring.first];
    if (slot == kNoRow) slot = row;
  }
}

uint32_t OpRows::row_of(uint64_t op) const {
  const auto found = rings_.find(uint32_t(op >> 40));
  if (found == rings_.end()) return kNoRow;
  const Ring& ring = found->second;
  if (ring.rows.empty()) {
    const auto scattered = scattered_.find(op);
    return scattered == scattered_.end() ? kNoRow : scattered->second;
  }
  const uint64_t at = op & kSequence;
  return at < ring.first || at > ring.last ? kNoRow : ring.rows[at - ring.first];
}

void link_operations(TraceView& view) {
  const OpRows rows(view.ops);
  for (uint32_t i = 0; i < view.colls.size(); ++i) {
    view.colls[i].op = rows.row_of(view.colls[i].op_id);
    if (view.colls[i].op != kNoRow) view.ops[view.colls[i].op].coll = i;
  }
  for (uint32_t i = 0; i < view.p2ps.size(); ++i) {
    view.p2ps[i].op = rows.row_of(view.p2ps[i].op_id);
    if (view.p2ps[i].op != kNoRow) view.ops[view.p2ps[i].op].p2p = i;
  }
  for (AccessRow& access : view.accesses) access.op = rows.row_of(access.op_id);
}

}  // namespace ringscope
