#include "runtime/model/linear.h"

#include "runtime/kernels/kernels.h"
#include "runtime/model/tensor_parallel.h"

namespace ringscope {

ColumnLinear::ColumnLinear(RankContext& ctx, ParameterStore& store, const char* label, int layer,
                           std::vector<LinearPart> parts)
    : ctx_(ctx), store_(store) {
  ParameterSpec weight, bias;
  weight.name = bias.name = label;
  weight.cols = ctx.config->model.hidden_size;
  weight.layer = bias.layer = layer;
  bias.init = Init::kZero;
  bias.decay = false;
  for (const LinearPart& part : parts) {
    const int64_t own = part.count / ctx.mesh.size(Axis::kTp);
    const int64_t first = part.offset + ctx.coord.tp * own;
    weight.pieces.push_back({part.weight, part.full_shape, part.transposed, weight.rows, own, first, 0});
    if (!part.bias.empty()) bias.pieces.push_back({part.bias, {part.bias_size}, false, weight.rows, own, first, 0});
    weight.rows += own;
  }
  rows_ = bias.rows = weight.rows;
  weight_ = store.add(std::move(weight));
  if (!bias.pieces.empty()) bias_ = store.add(std::move(bias));
}

Tensor ColumnLinear::forward(const Tensor& x, const char* gather_name) {
  const Tensor all = tensor_parallel::enter(ctx_, x, gather_name);
  Tensor y = ctx_.allocate({all.dim(0), rows_}, "linear.y");
  kernels::gemm(*ctx_.device, *ctx_.compute, "linear.forward", all, false, store_[weight_].value, true, y, false);
  if (bias_ >= 0) kernels::add_bias(*ctx_.device, *ctx_.compute, "linear.bias", y, store_[bias_].value);
  return y;
}

Tensor ColumnLinear::backward(const Tensor& dy, const Tensor& x, const char* gather_name, const char* reduce_name) {
  Device& device = *ctx_.device;
  const Tensor all = tensor_parallel::enter(ctx_, x, gather_name);
  kernels::gemm(device, *ctx_.compute, "linear.dw", dy, true, all, false, store_[weight_].grad, true);
  if (bias_ >= 0) kernels::bias_grad(device, *ctx_.compute, "linear.db", dy, store_[bias_].grad);
  Tensor dx = ctx_.allocate({all.dim(0), all.dim(1)}, "linear.dx");
  kernels::gemm(device, *ctx_.compute, "linear.dx", dy, false, store_[weight_].value, false, dx, false);
  return tensor_parallel::enter_backward(ctx_, dx, reduce_name);
}

RowLinear::RowLinear(RankContext& ctx, ParameterStore& store, const char* label, int layer, const LinearPart& part,
                     int64_t in_features)
    : ctx_(ctx), store_(store), cols_(in_features / ctx.mesh.size(Axis::kTp)) {
  const int64_t hidden = ctx.config->model.hidden_size;
  ParameterSpec weight;
  weight.name = label;
  weight.rows = hidden;
  weight.cols = cols_;
  weight.layer = layer;
  weight.pieces = {{part.weight, part.full_shape, part.transposed, 0, hidden, 0, ctx.coord.tp * cols_}};
  weight_ = store.add(std::move(weight));
  if (part.bias.empty()) return;
  ParameterSpec bias;
  bias.name = label;
  bias.rows = hidden;
  bias.pieces = {{part.bias, {hidden}, false, 0, hidden, 0, 0}};
  bias.init = Init::kZero;
  bias.decay = false;
  bias.replicated = true;
  bias_ = store.add(std::move(bias));
}

Tensor RowLinear::forward(const Tensor& x, const char* reduce_name) {
  Tensor partial = ctx_.allocate({x.dim(0), ctx_.config->model.hidden_size}, "linear.partial");
  kernels::gemm(*ctx_.device, *ctx_.compute, "linear.forward", x, false, store_[weight_].value, true, partial, false);
  Tensor y = tensor_parallel::leave(ctx_, partial, reduce_name);
  if (bias_ >= 0) kernels::add_bias(*ctx_.device, *ctx_.compute, "linear.bias", y, store_[bias_].value);
  return y;
}

Tensor RowLinear::backward(const Tensor& dy, const Tensor& x, const char* gather_name) {
  Device& device = *ctx_.device;
  if (bias_ >= 0) kernels::bias_grad(device, *ctx_.compute, "linear.db", dy, store_[bias_].grad);
  const Tensor all = tensor_parallel::leave_backward(ctx_, dy, gather_name);
  kernels::gemm(device, *ctx_.compute, "linear.dw", all, true, x, false, store_[weight_].grad, true);
  Tensor dx = ctx_.allocate({x.dim(0), x.dim(1)}, "linear.dx");
  kernels::gemm(device, *ctx_.compute, "linear.dx", all, false, store_[weight_].value, false, dx, false);
  return dx;
}

}  // namespace ringscope
