// One query row of one head over one block of keys, in plain fp64 arithmetic from the bytes that a kernel is given: what
// statistics hold against what the kernel put out. For inside of launches; the mask comes from the caller, who takes it
// from the layout and not from the device.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/kernels/kernels.h"

namespace ringscope::kernels {

struct RowQuery {
  Tensor q;               // [T,HQ,D]
  int64_t token = 0;      // row of q
  int64_t head = 0;       // local query head
  int32_t row = 0;        // global row in the sequence
  int32_t document = -1;  // of it
  int32_t sample = 0;     // global sample index: keys the dropout
};
struct RowKeys {
  Tensor kv;                               // [2,Tk,HK,D]
  int64_t first = 0;                       // token of kv where the block of the query's sample begins
  std::span<const int32_t> row, document;  // of the block's tokens, as the layout has them
};
struct RowValues {
  double m, lse;         // -inf: no key is visible
  double out;            // sum_x row_factor(x) o_x
  double out_size;       // sum_j p_j sum_x |row_factor(x) v_jx|
  double score_noise;    // largest sum_x |q_x k_x| of a visible key, scaled, times sqrt(D)
  uint32_t visible = 0;  // keys
};

// The vector that output rows are multiplied with: no component is 0 and no two are alike.
double row_factor(int64_t x);
// The same product of a row that a kernel put out: o[.., D] from `at` on.
double row_product(const Tensor& o, int64_t at);

// The scale is D^-1/2. dropout.sample is not read.
RowValues attention_row(const RowQuery&, const RowKeys&, const AttentionDropout&);

}  // namespace ringscope::kernels
