// What the loss's backward kernel put out, beside the same sum in fp64 from the kernel's own inputs: a factor that
// entered the gradients and not the loss shows there and nowhere else.
#pragma once

#include "runtime/model/context.h"

namespace ringscope {

// Over the counted tokens whose label lies in this part of the vocabulary: the sum of d_logits at the label, and of
// 1 - probability of the label. Arguments as of kernels::cross_entropy_backward. Nothing with the recorder off.
void record_loss_gradient(const RankContext& context, const Tensor& logits, int64_t valid_columns, const Tensor& m,
                          const Tensor& sum_exp, const Tensor& labels, int64_t first_column, const Tensor& d_logits);

}  // namespace ringscope
