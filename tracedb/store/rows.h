// Row structs in and out of the database, by the description in columns.h. Row is one of RankRow, RankExitRow, StreamRow,
// OpRow, CollRow, P2pRow, AccessRow, SyncRow, BufferRow, RingPlanRow, PositionRunRow, SoftmaxRow, SoftmaxStatRow,
// AttentionRow, LabelRunRow, TensorStatRow, StepValueRow, UpdateSampleRow, MemorySampleRow, TrainStepRow. A table that the
// file's version lacks is empty.
#pragma once

#include <vector>

#include "tracedb/store/store.h"

namespace ringscope {

// Adds the rows (bulk path); links between tables are not stored.
template <class Row>
Status append(Store& store, const std::vector<Row>& rows);

// All rows in the order of their ids, links unset. `runs`, if given, gets where the ids do not count on.
template <class Row>
Status read_rows(const Store& store, std::vector<Row>& rows, std::vector<RowRun>* runs = nullptr);

// Communicators in creation order, their members by group rank (-1 = not recorded). A size beyond kMostMembers is damage.
inline constexpr uint32_t kMostMembers = 1 << 20;
Result<std::vector<CommRow>> read_comms(const Store& store);

// Everything that a view holds, into an empty store; finish() is the caller's.
Status write_view(const TraceView& view, Store& store);  // write_view.cc

}  // namespace ringscope
