#include "runtime/model/model.h"

#include <cmath>

#include "runtime/model/names.h"
#include "runtime/model/oracle_kernels.h"

namespace ringscope {
namespace {

std::unique_ptr<Attention> make_attention(RankContext& ctx) {
  const JobConfig& config = *ctx.config;
  AttentionEnv env;
  env.device = ctx.device;
  env.compute = ctx.compute;
  env.transfer = config.overlap && ctx.cp ? ctx.cp_stream : ctx.compute;
  env.cp = ctx.cp.get();
  env.log = ctx.softmax_log.get();
  env.scale = 1 / std::sqrt(double(head_dim(config.model)));
  if (config.attention_backend == AttentionBackend::kOracle) env.kernels = oracle_kernels();
  if (!ctx.cp) return make_local_attention(env);
  switch (config.cp_comm) {
    case CpComm::kAllGather: return make_allgather_attention(env);
    case CpComm::kGlobalSoftmax: return make_global_softmax_attention(env);
    case CpComm::kP2p: break;
  }
  return make_ring_attention(env);
}

}  // namespace

Model::Model(RankContext& ctx) : ctx_(ctx), store_(ctx), attention_(make_attention(ctx)) {
  const ModelConfig& model = ctx.config->model;
  const ModelNames names = model_names(model);
  embedding_table_ = std::make_unique<VocabularyTable>(ctx, store_, "embedding", names.embedding);
  embedding_ = std::make_unique<Embedding>(ctx, store_, *embedding_table_);
  for (int layer = 0; layer < model.num_layers; ++layer)
    blocks_.push_back(std::make_unique<Block>(ctx, store_, *attention_, layer));
  final_norm_ = std::make_unique<Norm>(ctx, store_, names.final_norm);
  if (!model.tie_embeddings) head_table_ = std::make_unique<VocabularyTable>(ctx, store_, "head", names.head);
  head_ = std::make_unique<Head>(ctx, store_, head_table_ ? *head_table_ : *embedding_table_);
}

void Model::forward(const ModelBatch& batch, const Tensor& totals, ModelSaved& saved) {
  ScopedWhere place(*ctx_.device, [](Where& w) { w.pass = Pass::kForward; });
  saved.blocks.resize(blocks_.size());
  Tensor x = embedding_->forward(batch);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    ScopedWhere layer(*ctx_.device, [&](Where& w) { w.layer = int16_t(i); });
    x = blocks_[i]->forward(x, batch, saved.blocks[i]);
  }
  head_->forward(final_norm_->forward(x, saved.final_norm), batch, totals, saved.head);
}

void Model::backward(const ModelBatch& batch, ModelSaved& saved) {
  ScopedWhere place(*ctx_.device, [](Where& w) { w.pass = Pass::kBackward; });
  Tensor dx = final_norm_->backward(head_->backward(batch, saved.head), saved.final_norm);
  for (size_t i = blocks_.size(); i-- > 0;) {
    dx = blocks_[i]->backward(dx, batch, saved.blocks[i]);
    saved.blocks[i] = {};  // activations of the layer are done with
  }
  embedding_->backward(dx, batch);
}

}  // namespace ringscope
