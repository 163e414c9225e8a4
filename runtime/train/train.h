// train: the reference sequence-parallel training job, and the same model's evaluation. One call runs all ranks as
// tasks of one sched in this process. It reads no trace and decides nothing: a stall calls on_stall, a step calls on_progress.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/job_config.h"
#include "runtime/fault/site.h"
#include "runtime/model/host_tensor.h"
#include "runtime/sched/sched.h"
#include "runtime/train/attention_dump.h"
#include "runtime/train/nonfinite.h"
#include "tracedb/base/result.h"

namespace ringscope {

struct StepReport {
  int step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  double tokens_per_s = 0;
  int64_t peak_bytes = 0;    // largest over ranks
  int64_t valid_tokens = 0;  // counted in the global batch
};

struct TrainHooks {
  std::function<void(const StepReport&)> on_progress;  // on rank 0's thread
  std::function<void(const StallSnapshot&)> on_stall;  // on the calling thread, ranks still blocked
  std::function<bool()> interrupted;                   // polled; true = finish the trace and leave
};

struct RankTraffic {  // bytes copied towards peers, by axis, forward / everything
  uint64_t tp = 0, cp = 0, dp = 0;
};

struct TrainResult {
  RunEnd end = RunEnd::kCompleted;
  std::vector<StepReport> steps;
  HostTensors final_parameters;          // by checkpoint name; only when asked
  std::vector<RankTraffic> traffic;      // by rank
  std::vector<int64_t> kv_peak_bytes;    // by rank: ring buffers or gathered K/V
  std::vector<AttentionCall> attention;  // by rank; empty = not asked for, or its step was not finished by all ranks
};

struct TrainOptions {
  bool keep_parameters = false;
  std::optional<AttentionPick> dump_attention;
};

// The recorder, when open, receives everything. Errors: kUsage (validate), kData (data file, checkpoint).
Result<TrainResult> train(const JobConfig&, const TrainHooks&, const TrainOptions& = {});

// What the ranks of this job do at every seam, by a run in which nothing is computed, sent or recorded.
Result<SiteTable> list_sites(const JobConfig&);

// One batch through a checkpoint (CLI.md, "eval tensors").
struct EvalInput {
  int64_t batch = 0, length = 0;
  std::vector<int64_t> input_ids, labels, position_ids, document_ids;  // [batch, length]; empty = absent
  std::vector<int64_t> valid_lengths;                                  // [batch]; what follows is padding
  bool gradients = false;
};
struct EvalResult {
  RunEnd end = RunEnd::kCompleted;
  HostTensors tensors;                                              // logits, loss, grad.<name>, grad_norm
  std::vector<NonFiniteTensor> non_finite_weights, non_finite_out;  // of the checkpoint; of `tensors`
  std::vector<RankTraffic> traffic_forward, traffic;
  std::vector<int64_t> kv_peak_bytes;
};
// kUsage: what the checkpoint or the configuration asks for and this version cannot compute. kData: input that lies
// outside the model (ids, labels, positions) or contradicts itself.
Result<EvalResult> evaluate(const JobConfig&, const EvalInput&, const TrainHooks&);

}  // namespace ringscope
