// The language model of one rank: embedding, blocks, final norm, head. GPT-2 and Llama by configuration.
#pragma once

#include <memory>
#include <vector>

#include "runtime/attention/attention.h"
#include "runtime/model/block.h"
#include "runtime/model/embedding.h"

namespace ringscope {

struct ModelSaved {
  std::vector<BlockSaved> blocks;
  NormSaved final_norm;
  HeadSaved head;
};

class Model {
 public:
  // Declares every parameter in ctx's store; call store().allocate() and load or initialise before use.
  explicit Model(RankContext& ctx);
  ParameterStore& store() { return store_; }

  // Adds {loss sum, counted tokens} into totals; keeps what backward needs in saved (logits too).
  void forward(const ModelBatch&, const Tensor& totals, ModelSaved& saved);
  // Adds gradients.
  void backward(const ModelBatch&, ModelSaved& saved);

 private:
  RankContext& ctx_;
  ParameterStore store_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<VocabularyTable> embedding_table_, head_table_;
  std::unique_ptr<Embedding> embedding_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<Norm> final_norm_;
  std::unique_ptr<Head> head_;
};

}  // namespace ringscope
