#include "tools/analyze/hang/usage.h"

#include "tools/analyze/hang/calls.h"

namespace ringscope {

uint64_t kind_digest(const CollRow& coll) {
  CollRow without_count = coll;
  without_count.count = 0;
  return call_digest(without_count);
}

Usage::Usage(const TraceIndex& index) : index_(index) {
  for (const CollRow& coll : index.view.colls) {
    if (coll.op >= index.view.ops.size() || index.view.ops[coll.op].name == 0) continue;
    Counts& counts = counts_[key(coll.op)];
    ++counts.by_kind[kind_digest(coll)];
    ++counts.at_number[coll.seq][kind_digest(coll)];
    ++counts.all;
  }
}

uint64_t Usage::key(uint32_t op_row) const {
  const OpRow& op = index_.view.ops[op_row];
  const CommRow* comm = comm_of(index_, op);
  return mix(mix(op.name, uint64_t(op.where.pass)), comm ? group_shape(*comm) : 0);
}

Usage::Elsewhere Usage::elsewhere(uint32_t op_row) const {
  const OpRow& op = index_.view.ops[op_row];
  if (op.coll == kNoRow || op.name == 0) return {};
  const auto found = counts_.find(key(op_row));
  if (found == counts_.end()) return {};
  const CollRow& coll = index_.view.colls[op.coll];
  const uint64_t kind = kind_digest(coll);
  Elsewhere out;
  const auto count = [](const std::unordered_map<uint64_t, size_t>& of, uint64_t what) {
    const auto at = of.find(what);
    return at == of.end() ? size_t(0) : at->second;
  };
  size_t here = 0;
  if (const auto at = found->second.at_number.find(coll.seq); at != found->second.at_number.end()) {
    for (const auto& [what, n] : at->second) here += n;
    out.same = count(found->second.by_kind, kind) - count(at->second, kind);
  }
  out.other = found->second.all - here - out.same;
  return out;
}

}  // namespace ringscope
