#include "tracedb/model/trace_view.h"

#include <algorithm>
#include <iterator>

namespace ringscope {

const char* name(TableId table) {
  switch (table) {
    case TableId::kRankExit: return "rank_exit";
    case TableId::kOp: return "op";
    case TableId::kColl: return "coll";
    case TableId::kP2p: return "p2p";
    case TableId::kAccess: return "access";
    case TableId::kSync: return "sync";
    case TableId::kBuffer: return "buffer";
    case TableId::kRingPlan: return "ring_plan";
    case TableId::kPositionRun: return "position_run";
    case TableId::kSoftmaxRow: return "softmax_row";
    case TableId::kSoftmaxStat: return "softmax_stat";
    case TableId::kTensorStat: return "tensor_stat";
    case TableId::kAttentionRow: return "attention_row";
    case TableId::kLabelRun: return "label_run";
    case TableId::kStepValue: return "step_value";
    case TableId::kUpdateSample: return "update_sample";
    case TableId::kMemorySample: return "memory_sample";
    case TableId::kTrainStep: return "train_step";
    case TableId::kCount: break;
  }
  return "unknown";
}

RowRun run_of(const std::vector<RowRun>& runs, size_t row) {
  const auto next =
      std::upper_bound(runs.begin(), runs.end(), row, [](size_t at, const RowRun& run) { return at < run.first; });
  return next == runs.begin() ? RowRun{} : *std::prev(next);
}

}  // namespace ringscope
