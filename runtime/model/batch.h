// ModelBatch: one microbatch of one rank, on the device, with everything that depends on tokens: ids, labels,
// positions, rows, documents. Built by the loader from layout, the one source of truth.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/attention/attention.h"

namespace ringscope {

struct ModelBatch {
  int64_t batch = 0;   // samples
  int64_t tokens = 0;  // batch x shard, T
  Tensor input_ids;    // int32 [T]
  Tensor labels;       // int32 [T], -1 = not counted
  Tensor position;     // int32 [T]: what RoPE and the learned embedding use
  Tensor row;          // int32 [T]: global row in the sequence
  Tensor sample;       // int32 [T]: global sample index, keys dropout
  AttentionBatch attention;
  Tensor divisor;  // fp64 [1]: what the loss is divided by
};

}  // namespace ringscope
