// What finish() derives once all rows are there. Each runs inside its transaction and is linear in the rows.
#pragma once

#include "tracedb/store/store.h"

namespace ringscope {

Status restore_order(Store& store, const std::string& table);  // order.cc: ids follow (rank, issue)
Status match_transfers(Store& store);                          // match.cc: p2p.match_op
Status bind_waits(Store& store);                               // match.cc: sync.from_stream
Status derive_ring_steps(Store& store);                        // ring_steps.cc: table ring_step

}  // namespace ringscope
