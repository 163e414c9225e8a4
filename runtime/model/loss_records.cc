#include "runtime/model/loss_records.h"

#include <cmath>

#include "probes/recorder/emit.h"

namespace ringscope {
namespace {

struct Sums {
  double gradient = 0, miss = 0;
};

template <class T>
Sums sum_at_labels(const Tensor& logits, int64_t valid, const Tensor& m, const Tensor& sum_exp, const Tensor& labels,
                   int64_t first_column, const Tensor& d_logits) {
  Sums sums;
  const int64_t columns = logits.dim(1);
  for (int64_t i = 0; i < logits.dim(0); ++i) {
    const int64_t own = labels.data<int32_t>()[i] - first_column;
    if (labels.data<int32_t>()[i] < 0 || own < 0 || own >= valid) continue;
    sums.gradient += double(d_logits.data<T>()[i * columns + own]);
    const double logit = double(logits.data<T>()[i * columns + own]);
    sums.miss += 1 - std::exp(logit - m.data<double>()[i]) / sum_exp.data<double>()[i];
  }
  return sums;
}

}  // namespace

void record_loss_gradient(const RankContext& context, const Tensor& logits, int64_t valid_columns, const Tensor& m,
                          const Tensor& sum_exp, const Tensor& labels, int64_t first_column, const Tensor& d_logits) {
  if (!rs_enabled()) return;
  StepValueRecord record{};
  record.where = context.device->where().pack();
  record.axis = 0xFFFF;
  context.device->launch(*context.compute, "statistics.loss_gradient", {logits, m, sum_exp, labels, d_logits}, {}, [=] {
    const Sums sums = logits.dtype() == DType::kF64
                          ? sum_at_labels<double>(logits, valid_columns, m, sum_exp, labels, first_column, d_logits)
                          : sum_at_labels<float>(logits, valid_columns, m, sum_exp, labels, first_column, d_logits);
    StepValueRecord full = record;
    full.quantity = uint16_t(StepQuantity::kLossGradient);
    full.value = sums.gradient;
    emit(RecordKind::kStepValue, full);
    full.quantity = uint16_t(StepQuantity::kLabelMiss);
    full.value = sums.miss;
    emit(RecordKind::kStepValue, full);
  });
}

}  // namespace ringscope
