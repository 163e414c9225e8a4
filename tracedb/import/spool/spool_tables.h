// Rows of one transaction, by table, and how they go into the store.
#pragma once

#include <vector>

#include "tracedb/model/trace_view.h"
#include "tracedb/store/store.h"

namespace ringscope::spool {

struct Tables {
  std::vector<RankRow> ranks;
  std::vector<RankExitRow> rank_exits;
  std::vector<StreamRow> streams;
  std::vector<OpRow> ops;
  std::vector<CollRow> colls;
  std::vector<P2pRow> p2ps;
  std::vector<AccessRow> accesses;
  std::vector<SyncRow> syncs;
  std::vector<BufferRow> buffers;
  std::vector<RingPlanRow> ring_plans;
  std::vector<SoftmaxRow> softmax_rows;
  std::vector<SoftmaxStatRow> softmax_stats;
  std::vector<TensorStatRow> tensor_stats;
  std::vector<AttentionRow> attention_rows;
  std::vector<LabelRunRow> label_runs;
  std::vector<StepValueRow> step_values;
  std::vector<UpdateSampleRow> update_samples;
  std::vector<PositionRunRow> positions;
  std::vector<MemorySampleRow> memory;
  std::vector<TrainStepRow> train_steps;

  Status write(Store& store) const;
  void clear() { *this = Tables(); }
};

}  // namespace ringscope::spool
