// Rows of one transaction, by table, and how they go into the store.
#pragma once

#include <string>
#include <vector>

#include "tracedb/model/record.h"
#include "tracedb/store/store.h"

namespace ringscope::spool {

struct Place {  // columns that nearly every table starts with
  int32_t rank = -1;
  uint64_t issue = 0;
};
struct OpRow : Place {
  OpEnqueueRecord r{};
  uint32_t stream = 0;
  int64_t name = 0;
  int64_t enqueue_ns = 0, start_ns = 0, end_ns = 0;
  uint64_t bytes_sent = 0;
  int state() const { return end_ns ? 2 : start_ns ? 1 : 0; }
};
struct CollRow : Place {
  CollRecord r{};
};
struct P2pRow : Place {
  P2pRecord r{};
};
struct AccessRow : Place {
  AccessRecord r{};
};
struct SyncRow : Place {
  SyncRecord r{};
  uint32_t stream = 0;
  int64_t name = 0;
  int64_t time_ns = 0;
};
struct BufferRow : Place {
  BufferAllocRecord r{};
  int64_t free_ns = 0;  // 0 = never freed
  uint16_t free_stream = kEveryStream;
  int64_t name = 0;
  int64_t time_ns = 0;
};
struct RingPlanRow : Place {
  RingPlanRecord r{};
};
struct SoftmaxRow : Place {
  SoftmaxRowRecord r{};
};
struct SoftmaxStatRow : Place {
  SoftmaxStatRecord r{};
};
struct TensorStatRow : Place {
  TensorStatRecord r{};
  int64_t name = 0;
};
struct PositionRow : Place {
  PositionRunRecord r{};
};
struct MemoryRow : Place {
  MemorySampleRecord r{};
  int64_t time_ns = 0;
};
struct TrainRow : Place {
  TrainStepRecord r{};
};

struct Tables {
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
  std::vector<PositionRow> positions;
  std::vector<MemoryRow> memory;
  std::vector<TrainRow> train_steps;

  Status write(Store& store) const;
  void clear();
};

}  // namespace ringscope::spool
