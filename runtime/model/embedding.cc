#include "runtime/model/embedding.h"

#include <algorithm>

#include "runtime/kernels/kernels.h"
#include "runtime/model/batch_records.h"
#include "runtime/model/block.h"
#include "runtime/model/loss_records.h"
#include "runtime/model/names.h"
#include "runtime/model/tensor_parallel.h"

namespace ringscope {

VocabularyTable::VocabularyTable(RankContext& ctx, ParameterStore& store, const char* label,
                                 const std::string& checkpoint_name)
    : vocab_(ctx.config->model.vocab_size),
      rows_(padded_vocab(vocab_, ctx.mesh.size(Axis::kTp)) / ctx.mesh.size(Axis::kTp)), first_(ctx.coord.tp * rows_) {
  ParameterSpec spec;
  spec.name = label;
  spec.rows = rows_;
  spec.cols = ctx.config->model.hidden_size;
  if (valid_rows() > 0) spec.pieces = {{checkpoint_name, {vocab_, spec.cols}, false, 0, valid_rows(), first_, 0}};
  handle_ = store.add(std::move(spec));
}

int64_t VocabularyTable::valid_rows() const { return std::clamp<int64_t>(vocab_ - first_, 0, rows_); }

Embedding::Embedding(RankContext& ctx, ParameterStore& store, const VocabularyTable& table)
    : ctx_(ctx), store_(store), table_(table) {
  const ModelConfig& model = ctx.config->model;
  const ModelNames names = model_names(model);
  if (names.position.empty()) return;
  ParameterSpec spec;
  spec.name = "position";
  spec.rows = model.max_position_embeddings;
  spec.cols = model.hidden_size;
  spec.pieces = {{names.position, {spec.rows, spec.cols}, false, 0, spec.rows, 0, 0}};
  spec.replicated = true;
  position_ = store.add(std::move(spec));
}

Tensor Embedding::forward(const ModelBatch& batch) {
  Device& device = *ctx_.device;
  Tensor partial = ctx_.allocate({batch.tokens, ctx_.config->model.hidden_size}, "embedding.partial");
  kernels::embedding(device, *ctx_.compute, batch.input_ids, store_[table_.handle()].value, table_.first_row(),
                     partial);
  Tensor x = tensor_parallel::leave(ctx_, partial, "embedding.reduce");
  if (position_ >= 0) {
    const int64_t first = tensor_parallel::first_row(ctx_, batch.tokens);
    kernels::add_position_embedding(device, *ctx_.compute, batch.position.rows(first, first + x.dim(0)),
                                    store_[position_].value, x);
    record_applied_positions(ctx_, batch, PositionRole::kEmbedding, 0);
  }
  return hidden_dropout(ctx_, x, batch, 0, DropoutUse::kEmbedding);
}

void Embedding::backward(const Tensor& dx, const ModelBatch& batch) {
  Device& device = *ctx_.device;
  const Tensor dy = hidden_dropout(ctx_, dx, batch, 0, DropoutUse::kEmbedding);
  if (position_ >= 0) {
    const int64_t first = tensor_parallel::first_row(ctx_, batch.tokens);
    kernels::position_embedding_backward(device, *ctx_.compute, batch.position.rows(first, first + dy.dim(0)), dy,
                                         store_[position_].grad);
  }
  const Tensor all = tensor_parallel::leave_backward(ctx_, dy, "embedding.dgather");
  kernels::embedding_backward(device, *ctx_.compute, batch.input_ids, all, table_.first_row(),
                              store_[table_.handle()].grad);
}

Head::Head(RankContext& ctx, ParameterStore& store, const VocabularyTable& table)
    : ctx_(ctx), store_(store), table_(table) {}

void Head::forward(const Tensor& hidden, const ModelBatch& batch, const Tensor& totals, HeadSaved& saved) {
  Device& device = *ctx_.device;
  Stream& compute = *ctx_.compute;
  const int64_t tokens = batch.tokens, valid = table_.valid_rows();
  saved.hidden = hidden;
  const Tensor all = tensor_parallel::enter(ctx_, hidden, "head.in_ag");
  saved.logits = ctx_.allocate({tokens, table_.rows()}, "head.logits");
  kernels::gemm(device, compute, "head.logits", all, false, store_[table_.handle()].value, true, saved.logits, false);
  saved.m = device.allocate(DType::kF64, {tokens}, MemCategory::kActivation, "head.max");
  Tensor sums = device.allocate(DType::kF64, {2, tokens}, MemCategory::kActivation, "head.sums");
  saved.sum_exp = sums[0];
  kernels::row_max(device, compute, saved.logits, valid, saved.m);
  if (ctx_.tp) ctx_.tp->all_reduce(compute, saved.m, saved.m, RedOp::kMax, "loss.max_ar");
  kernels::sum_exp_target(device, compute, saved.logits, valid, saved.m, batch.labels, table_.first_row(), sums[0],
                          sums[1]);
  if (ctx_.tp) ctx_.tp->all_reduce(compute, sums, sums, RedOp::kSum, "loss.sum_ar");
  kernels::loss_sum(device, compute, saved.m, sums[0], sums[1], batch.labels, totals);
  record_loss_rows(ctx_, saved.m, sums[0], sums[1], batch.labels);
}

Tensor Head::backward(const ModelBatch& batch, const HeadSaved& saved) {
  Device& device = *ctx_.device;
  Stream& compute = *ctx_.compute;
  Tensor d_logits = ctx_.allocate({batch.tokens, table_.rows()}, "head.dlogits");
  kernels::cross_entropy_backward(device, compute, saved.logits, table_.valid_rows(), saved.m, saved.sum_exp,
                                  batch.labels, table_.first_row(), batch.divisor, d_logits);
  record_loss_gradient(ctx_, saved.logits, table_.valid_rows(), saved.m, saved.sum_exp, batch.labels,
                       table_.first_row(), d_logits);
  const Tensor all = tensor_parallel::enter(ctx_, saved.hidden, "head.in_ag_again");
  kernels::gemm(device, compute, "head.dw", d_logits, true, all, false, store_[table_.handle()].grad, true);
  Tensor d_hidden = ctx_.allocate({batch.tokens, all.dim(1)}, "head.dx");
  kernels::gemm(device, compute, "head.dx", d_logits, false, store_[table_.handle()].value, false, d_hidden, false);
  return tensor_parallel::enter_backward(ctx_, d_hidden, "head.din_reduce");
}

}  // namespace ringscope
