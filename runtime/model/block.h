// One transformer block (pre-norm): x + Attention(Norm(x)), then x + MLP(Norm(x)); forward and backward by hand.
// Saved is keyed by (microbatch, layer) by the model, so that pipelines and recomputation need nothing new.
#pragma once

#include "runtime/attention/attention.h"
#include "runtime/model/batch.h"
#include "runtime/model/linear.h"
#include "runtime/model/names.h"
#include "runtime/model/norm.h"

namespace ringscope {

struct BlockSaved {
  NormSaved norm1, norm2;
  AttentionSaved attention;
  Tensor up, activated;  // MLP before and after the activation
};

class Block {
 public:
  Block(RankContext&, ParameterStore&, Attention&, int layer);
  Tensor forward(const Tensor& x, const ModelBatch&, BlockSaved&);  // [Ts,H] -> [Ts,H]
  Tensor backward(const Tensor& dy, const ModelBatch&, const BlockSaved&);

 private:
  Block(RankContext&, ParameterStore&, Attention&, int layer, const LayerNames&);
  AttentionBatch attention_batch(const ModelBatch&) const;  // with this layer's dropout key
  void watch(std::initializer_list<SoftmaxLog::Watched> tensors) const;
  Tensor attend(const Tensor& x, const ModelBatch&, BlockSaved&);
  Tensor attend_backward(const Tensor& dy, const ModelBatch&, const BlockSaved&);
  Tensor mlp(const Tensor& x, const ModelBatch&, BlockSaved&);
  Tensor mlp_backward(const Tensor& dy, const ModelBatch&, const BlockSaved&);
  Tensor add(const Tensor& a, const Tensor& b, const char* name);

  RankContext& ctx_;
  Attention& attention_;
  int layer_;
  int64_t heads_q_, heads_kv_, dim_;
  double rope_base_;
  Norm norm1_, norm2_;
  ColumnLinear qkv_;
  RowLinear out_;
  ColumnLinear up_;
  RowLinear down_;
};

// Hidden dropout on the rows outside the TP region; returns x itself at p = 0. `use` tells the uses of a layer
// apart. The backward pass is the same call.
enum class DropoutUse : int { kEmbedding = 0, kAttention = 1, kMlp = 2 };
Tensor hidden_dropout(RankContext&, const Tensor& x, const ModelBatch&, int layer, DropoutUse);

}  // namespace ringscope
