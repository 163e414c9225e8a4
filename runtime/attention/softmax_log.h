// SoftmaxLog: samples and summaries of what the softmax really did, for the trace, and whether the tensors that entered
// and left attention held numbers. A sample is a row of the trace's softmax_row table: kernels copy single values out of the buffers that were really consumed into a statistics
// buffer on the device; flush(), at the end of a step, reads it back (a named read-back point) and records.
//
// With the recorder off every call returns at once. Thread rule: the rank's host task.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/device/device.h"
#include "tracedb/model/record.h"

namespace ringscope {

// A query row worth sampling: it sees keys of at least two shards.
struct SampledRow {
  int32_t local = 0;   // row in the shard's tensors [T, ...]
  int32_t row = 0;     // global row of the sequence
  int32_t sample = 0;  // global sample index
};

class SoftmaxLog {
 public:
  // A value of a sample. kSumOwn is the part's own sum relative to exp(m_used): lse_own follows from it.
  enum Field { kMOwn, kLseOwn, kMUsed, kSumOwn, kSumUsed, kLseResult, kFields };
  static constexpr int kResult = 0xFFFF;  // kv_owner of the merged row

  // head: global index of the sampled query head; it is local head 0. slice: TP rank, whose heads these are.
  SoftmaxLog(Device& device, int head, int slice = 0);

  bool enabled() const;

  // Opens one sample per row; the returned handle names them together.
  struct Handle {
    int first = -1;
    int count = 0;
  };
  Handle open(const std::vector<SampledRow>& rows, int kv_owner, int parts, SoftmaxMethod method);

  // Copies tensor[row.local, head 0] (fp64 [T, HQ]) of every row of the handle into the field, in stream order.
  void take(Stream& stream, const Handle& handle, Field field, const Tensor& tensor);

  // One line over all rows and heads of an attention call: range and mean of the log-sum-exp (fp64 [T, HQ]), rows
  // that see no key, values that are no numbers.
  void summarise(Stream& stream, const Tensor& lse, int parts, SoftmaxMethod method);

  // Norm and count of non-numbers of tensors that enter or leave attention here: where a NaN began shows on the rank
  // itself, before an exchange or a reduction carries it to the others. fp32 or fp64.
  struct Watched {
    const char* name;  // static
    TensorRole role;
    Tensor tensor;
  };
  void watch(Stream& stream, std::span<const Watched> tensors);

  // Reads back and records everything since the last flush. False = stopped.
  [[nodiscard]] bool flush(Stream& stream);

 private:
  struct Slot {
    int chunk = 0;  // statistics tensor
    int row = 0;    // of it: kFields fp64
  };
  struct Sample {
    SampledRow row;
    int kv_owner = 0, parts = 0;
    SoftmaxMethod method = SoftmaxMethod::kLseMerge;
    Where where;
    Slot slot;
  };
  struct Summary {
    int64_t rows = 0;  // query rows x heads
    int parts = 0;
    SoftmaxMethod method = SoftmaxMethod::kLseMerge;
    Where where;
    Slot slot;
  };
  struct Watch {
    const char* name;
    TensorRole role = TensorRole::kAttentionInput;
    int64_t count = 0;
    Where where;
    Slot slot;
  };
  Slot next_slot();
  void record(const Sample& sample, const double* values) const;
  void record(const Summary& summary, const double* values) const;
  void record(const Watch& watch, const double* values) const;

  Device& device_;
  int head_, slice_;
  std::vector<Sample> samples_;
  std::vector<Summary> summaries_;
  std::vector<Watch> watches_;
  std::vector<Tensor> chunks_;
  int used_ = 0;  // rows of the last chunk
};

}  // namespace ringscope
