#include "tracedb/import/spool/spool_tables.h"

#include "tracedb/store/rows.h"

namespace ringscope::spool {
namespace {

template <class... Rows>
Status append_all(Store& store, const Rows&... rows) {
  Status ok;
  (void)((ok = append(store, rows), ok.has_value()) && ...);
  return ok;
}

}  // namespace

Status Tables::write(Store& s) const {
  return append_all(s, ranks, rank_exits, streams, ops, colls, p2ps, accesses, syncs, buffers, ring_plans, softmax_rows,
                    softmax_stats, tensor_stats, attention_rows, label_runs, step_values, update_samples, positions,
                    memory, train_steps);
}

}  // namespace ringscope::spool
