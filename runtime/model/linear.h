// Column- and row-parallel linear layers (Megatron-LM, arXiv 1909.08053), y = x W^T + b in nn.Linear's
// orientation. Column-parallel: a rank owns rows of W (output features); row-parallel: columns (input features).
//
// The input of a column-parallel layer is not stored gathered: with sequence parallelism it is gathered again in
// the backward pass for dW (the price of not keeping it).
#pragma once

#include <vector>

#include "runtime/model/parameters.h"

namespace ringscope {

// One checkpoint tensor that is part of a (fused) layer: output features [offset, offset + count) of it, for the
// whole model, divided evenly over TP.
struct LinearPart {
  std::string weight, bias;         // checkpoint names; bias empty = none
  std::vector<int64_t> full_shape;  // of the weight, as stored
  bool transposed = false;          // stored [in, out] (GPT-2's Conv1D)
  int64_t offset = 0, count = 0;    // output features (column-parallel) of the stored tensor
  int64_t bias_size = 0;            // of the stored bias
};

class ColumnLinear {
 public:
  // `own` selects this rank's share of each part: by default 1/TP of `count`.
  ColumnLinear(RankContext&, ParameterStore&, const char* label, int layer, std::vector<LinearPart> parts);
  int64_t features() const { return rows_; }  // local output features

  // x [Ts,H] -> y [T, features]
  Tensor forward(const Tensor& x, const char* gather_name);
  // Adds dW, db; returns dx [Ts,H]. x: the forward input.
  Tensor backward(const Tensor& dy, const Tensor& x, const char* gather_name, const char* reduce_name);

 private:
  RankContext& ctx_;
  ParameterStore& store_;
  int64_t rows_ = 0;
  int weight_ = -1, bias_ = -1;
};

class RowLinear {
 public:
  // weight [H, in] in nn.Linear's orientation; bias replicated, added after the reduction.
  RowLinear(RankContext&, ParameterStore&, const char* label, int layer, const LinearPart& part, int64_t in_features);
  Tensor forward(const Tensor& x, const char* reduce_name);                     // [T,in/TP] -> [Ts,H]
  Tensor backward(const Tensor& dy, const Tensor& x, const char* gather_name);  // [Ts,H] -> [T,in/TP]

 private:
  RankContext& ctx_;
  ParameterStore& store_;
  int64_t cols_ = 0;
  int weight_ = -1, bias_ = -1;
};

}  // namespace ringscope
