// LayerNorm (GPT-2) or RMSNorm (Llama) on the rows this rank holds outside the TP region. Weights are replicated
// over TP; with sequence parallelism their gradients are partial sums until the end-of-step all-reduce.
#pragma once

#include "runtime/model/parameters.h"

namespace ringscope {

struct NormSaved {
  Tensor x, y, mean, rstd;
};

class Norm {
 public:
  // name: checkpoint prefix ("model.norm"); the parameters are <name>.weight and, for LayerNorm, <name>.bias
  Norm(RankContext& ctx, ParameterStore& store, const std::string& name);
  Tensor forward(const Tensor& x, NormSaved& saved);
  Tensor backward(const Tensor& dy, const NormSaved& saved);

 private:
  RankContext& ctx_;
  ParameterStore& store_;
  int weight_, bias_ = -1;
};

}  // namespace ringscope
