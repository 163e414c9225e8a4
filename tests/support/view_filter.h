// Takes rows out of a TraceView and keeps the links between its tables.
#pragma once

#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope::testing {

template <class Keep>
void keep_ops(TraceView& view, Keep keep) {
  std::vector<uint32_t> moved(view.ops.size(), kNoRow);
  std::vector<OpRow> kept;
  for (size_t i = 0; i < view.ops.size(); ++i) {
    if (!keep(view.ops[i])) continue;
    moved[i] = uint32_t(kept.size());
    kept.push_back(view.ops[i]);
  }
  const auto renumber = [&](auto& rows, auto link) {
    auto old = std::move(rows);
    rows.clear();
    for (auto& row : old) {
      row.op = row.op < moved.size() ? moved[row.op] : kNoRow;
      if (row.op == kNoRow) continue;
      link(kept[row.op], uint32_t(rows.size()));
      rows.push_back(row);
    }
  };
  renumber(view.colls, [](OpRow& op, uint32_t row) { op.coll = row; });
  renumber(view.p2ps, [](OpRow& op, uint32_t row) { op.p2p = row; });
  renumber(view.accesses, [](OpRow&, uint32_t) {});
  view.ops = std::move(kept);
}

}  // namespace ringscope::testing
