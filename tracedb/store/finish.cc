// What follows from the rows once they are all there: order, matches, ring steps, indexes.
#include "tracedb/store/derive.h"
#include "tracedb/store/schema.h"
#include "tracedb/store/store.h"

namespace ringscope {
namespace {

Status derive_all(Store& store) {
  for (const char* table :
       {"op", "coll", "p2p", "access", "sync", "buffer", "ring_plan", "softmax_row", "softmax_stat", "tensor_stat",
        "attention_row", "label_run", "step_value", "update_sample", "position_run", "memory_sample", "train_step"})
    if (auto ok = restore_order(store, table); !ok) return ok;
  for (const auto derive : {match_transfers, bind_waits, derive_ring_steps})
    if (auto ok = derive(store); !ok) return ok;
  if (auto ok = store.exec(kSchema_indexes); !ok) return ok;
  return store.exec("PRAGMA analysis_limit=1000; ANALYZE;");
}

}  // namespace

Status Store::finish() {
  if (auto ok = begin(); !ok) return ok;
  auto status = derive_all(*this);
  if (status) status = commit();
  if (!status) {
    rollback();
    return status;
  }
  // A WAL database opens neither after a rename without its WAL nor in a read-only folder.
  return exec("PRAGMA journal_mode=DELETE; PRAGMA locking_mode=NORMAL;");
}

}  // namespace ringscope
