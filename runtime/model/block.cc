#include "runtime/model/block.h"

#include "probes/nvtx/emit.h"
#include "runtime/kernels/kernels.h"
#include "runtime/model/batch_records.h"
#include "runtime/model/tensor_parallel.h"

namespace ringscope {

Tensor hidden_dropout(RankContext& ctx, const Tensor& x, const ModelBatch& batch, int layer, DropoutUse use) {
  const double p = ctx.config->model.hidden_dropout;
  if (p == 0) return x;
  const int64_t first = tensor_parallel::first_row(ctx, batch.tokens);
  const int64_t last = first + tensor_parallel::row_count(ctx, batch.tokens);
  Tensor y = ctx.allocate({x.dim(0), x.dim(1)}, "dropout.y");
  const kernels::DropoutKey key{ctx.config->seed, ctx.device->where().step, layer, int(use), 0};
  kernels::dropout(*ctx.device, *ctx.compute, "dropout", x, p, key, batch.row.rows(first, last),
                   batch.sample.rows(first, last), y);
  return y;
}

Block::Block(RankContext& ctx, ParameterStore& store, Attention& attention, int layer)
    : Block(ctx, store, attention, layer, layer_names(ctx.config->model, layer)) {}

Block::Block(RankContext& ctx, ParameterStore& store, Attention& attention, int layer, const LayerNames& names)
    : ctx_(ctx), attention_(attention), layer_(layer),
      heads_q_(ctx.config->model.num_attention_heads / ctx.mesh.size(Axis::kTp)),
      heads_kv_(ctx.config->model.num_query_groups / ctx.mesh.size(Axis::kTp)), dim_(head_dim(ctx.config->model)),
      rope_base_(ctx.config->model.arch == Arch::kLlama ? ctx.config->model.rope_theta : 0),
      norm1_(ctx, store, names.norm1), norm2_(ctx, store, names.norm2), qkv_(ctx, store, "qkv", layer, names.qkv),
      out_(ctx, store, "attention.out", layer, names.out, ctx.config->model.num_attention_heads * dim_),
      up_(ctx, store, "mlp.up", layer, names.up),
      down_(ctx, store, "mlp.down", layer, names.down, ctx.config->model.ffn_hidden_size) {}

Tensor Block::add(const Tensor& a, const Tensor& b, const char* name) {
  Tensor sum = ctx_.allocate({a.dim(0), a.dim(1)}, name);
  kernels::add(*ctx_.device, *ctx_.compute, name, a, b, sum);
  return sum;
}

void Block::watch(std::initializer_list<SoftmaxLog::Watched> tensors) const {
  ctx_.softmax_log->watch(*ctx_.compute, {tensors.begin(), tensors.size()});
}

AttentionBatch Block::attention_batch(const ModelBatch& batch) const {
  AttentionBatch own = batch.attention;
  own.dropout.layer = layer_;
  return own;
}

Tensor Block::attend(const Tensor& x, const ModelBatch& batch, BlockSaved& saved) {
  Device& device = *ctx_.device;
  const Tensor qkv = qkv_.forward(x, "attention.in_ag");
  Tensor q = ctx_.allocate({batch.tokens, heads_q_, dim_}, "attention.q");
  Tensor kv = ctx_.allocate({2, batch.tokens, heads_kv_, dim_}, "attention.kv");
  kernels::split_qkv(device, *ctx_.compute, qkv, heads_q_, heads_kv_, rope_base_, batch.position, q, kv);
  if (rope_base_ > 0) record_applied_positions(ctx_, batch, PositionRole::kRope, rope_base_);
  watch({{"attention.q", TensorRole::kAttentionInput, q}, {"attention.kv", TensorRole::kAttentionInput, kv}});
  const Tensor o = attention_.forward(q, kv, attention_batch(batch), saved.attention);
  watch({{"attention.o", TensorRole::kAttentionOutput, o}});
  if (ctx_.attention_watch) ctx_.attention_watch->forward(saved.attention);
  return out_.forward(o.reshape({batch.tokens, heads_q_ * dim_}), "attention.out_reduce");
}

Tensor Block::attend_backward(const Tensor& dy, const ModelBatch& batch, const BlockSaved& saved) {
  Device& device = *ctx_.device;
  const Tensor o = saved.attention.o.reshape({batch.tokens, heads_q_ * dim_});
  const Tensor d_o = out_.backward(dy, o, "attention.dout_gather").reshape({batch.tokens, heads_q_, dim_});
  watch({{"attention.do", TensorRole::kAttentionInput, d_o}});
  const AttentionGrad grad = attention_.backward(d_o, attention_batch(batch), saved.attention);
  watch({{"attention.dq", TensorRole::kAttentionOutput, grad.dq},
         {"attention.dkv", TensorRole::kAttentionOutput, grad.dkv}});
  if (ctx_.attention_watch) ctx_.attention_watch->backward(d_o, grad);
  Tensor dqkv = ctx_.allocate({batch.tokens, (heads_q_ + 2 * heads_kv_) * dim_}, "attention.dqkv");
  kernels::join_qkv(device, *ctx_.compute, grad.dq, grad.dkv, rope_base_, batch.position, dqkv);
  return qkv_.backward(dqkv, saved.norm1.y, "attention.in_ag_again", "attention.din_reduce");
}

Tensor Block::mlp(const Tensor& x, const ModelBatch& batch, BlockSaved& saved) {
  Device& device = *ctx_.device;
  const bool gated = ctx_.config->model.arch == Arch::kLlama;
  saved.up = up_.forward(x, "mlp.in_ag");
  saved.activated = ctx_.allocate({batch.tokens, gated ? up_.features() / 2 : up_.features()}, "mlp.activated");
  if (gated) kernels::swiglu(device, *ctx_.compute, saved.up, saved.activated);
  else kernels::gelu_tanh(device, *ctx_.compute, saved.up, saved.activated);
  return down_.forward(saved.activated, "mlp.out_reduce");
}

Tensor Block::mlp_backward(const Tensor& dy, const ModelBatch& batch, const BlockSaved& saved) {
  Device& device = *ctx_.device;
  const Tensor d_activated = down_.backward(dy, saved.activated, "mlp.dout_gather");
  Tensor d_up = ctx_.allocate({batch.tokens, up_.features()}, "mlp.dup");
  if (ctx_.config->model.arch == Arch::kLlama)
    kernels::swiglu_backward(device, *ctx_.compute, saved.up, d_activated, d_up);
  else kernels::gelu_tanh_backward(device, *ctx_.compute, saved.up, d_activated, d_up);
  return up_.backward(d_up, saved.norm2.y, "mlp.in_ag_again", "mlp.din_reduce");
}

Tensor Block::forward(const Tensor& x, const ModelBatch& batch, BlockSaved& saved) {
  ScopedWhere place(*ctx_.device, [&](Where& w) { w.layer = int16_t(layer_); });
  const nvtx::Range range("block.forward", ctx_.device->where());
  const Tensor a = attend(norm1_.forward(x, saved.norm1), batch, saved);
  const Tensor x1 = add(x, hidden_dropout(ctx_, a, batch, layer_, DropoutUse::kAttention), "residual.attention");
  const Tensor m = mlp(norm2_.forward(x1, saved.norm2), batch, saved);
  return add(x1, hidden_dropout(ctx_, m, batch, layer_, DropoutUse::kMlp), "residual.mlp");
}

Tensor Block::backward(const Tensor& dy, const ModelBatch& batch, const BlockSaved& saved) {
  ScopedWhere place(*ctx_.device, [&](Where& w) { w.layer = int16_t(layer_); });
  const nvtx::Range range("block.backward", ctx_.device->where());
  const Tensor dm = hidden_dropout(ctx_, dy, batch, layer_, DropoutUse::kMlp);
  const Tensor dx1 = add(dy, norm2_.backward(mlp_backward(dm, batch, saved), saved.norm2), "residual.dmlp");
  const Tensor da = hidden_dropout(ctx_, dx1, batch, layer_, DropoutUse::kAttention);
  return add(dx1, norm1_.backward(attend_backward(da, batch, saved), saved.norm1), "residual.dattention");
}

}  // namespace ringscope
