// What the loss's kernels put out, beside the same in fp64 from what they read: a factor that entered the gradients and
// not the loss, or a sum that went wrong on all ranks alike, shows there and nowhere else.
// Nothing with the recorder off.
#pragma once

#include "runtime/model/context.h"

namespace ringscope {

// What a microbatch adds to the loss sum and to the count. Arguments as of kernels::loss_sum.
void record_loss_rows(const RankContext& context, const Tensor& m, const Tensor& sum_exp, const Tensor& target,
                      const Tensor& labels);

// Of every counted token one logit of this part of the vocabulary, that of its label if it lies here: the sums of its
// gradient and of what it should be, before the division. Arguments as of kernels::cross_entropy_backward.
void record_loss_gradient(const RankContext& context, const Tensor& logits, int64_t valid_columns, const Tensor& m,
                          const Tensor& sum_exp, const Tensor& labels, int64_t first_column, const Tensor& d_logits);

}  // namespace ringscope
