// The checkpoint's names: transformers' GPT2LMHeadModel and LlamaForCausalLM. The one place that knows them.
#pragma once

#include <string>
#include <vector>

#include "runtime/model/linear.h"

namespace ringscope {

struct LayerNames {
  std::string norm1, norm2;         // prefixes
  std::vector<LinearPart> qkv, up;  // column-parallel
  LinearPart out, down;             // row-parallel
};
LayerNames layer_names(const ModelConfig&, int layer);

struct ModelNames {
  std::string embedding, position, final_norm, head;  // head: same as embedding when tied
};
ModelNames model_names(const ModelConfig&);

// Head size, with the default filled in.
int64_t head_dim(const ModelConfig&);

}  // namespace ringscope
