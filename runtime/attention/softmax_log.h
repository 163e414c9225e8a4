// SoftmaxLog: samples and summaries of what the softmax really did, for the trace, and whether the tensors that entered
// and left attention held numbers. A sample is a row of the trace's softmax_row table: statistics kernels read single
// values out of the buffers that were really consumed, where the stream is there, and the last of them writes the record
// from its stream. So a run that stands still later keeps what it computed before.
//
// With the recorder off every call returns at once. Thread rule: the rank's host task; what is launched runs on the
// stream's worker.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
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

  // first_head: global index of local head 0. slice: TP rank, whose heads these are.
  SoftmaxLog(Device& device, int first_head, int slice = 0);

  bool enabled() const;

  // The head whose rows are sampled, of `heads` local ones: another one in every layer and step, the same on all ranks of
  // a context-parallel group.
  static int sampled_head(const Where& where, int64_t heads);
  int first_head() const { return first_head_; }

  // Opens one sample per row; the returned handle names them together. heads: of the tensors that will be read.
  struct Samples;
  using Handle = std::shared_ptr<Samples>;
  Handle open(const std::vector<SampledRow>& rows, int kv_owner, int parts, SoftmaxMethod method, int64_t heads);

  // Reads tensor[row.local, head] (fp64 [T, HQ]) of every row of the handle, in stream order. With the last field of its
  // kind of sample the records are written; a sample of which a field was never read is not.
  struct Taken {
    Field field;
    Tensor tensor;
  };
  void take(Stream& stream, const Handle& handle, std::initializer_list<Taken> fields);

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

 private:
  Device& device_;
  int first_head_, slice_;
};

}  // namespace ringscope
