#include "runtime/model/loss_records.h"

#include <cmath>

#include "probes/recorder/emit.h"

namespace ringscope {
namespace {

StepValueRecord record_here(const RankContext& context) {
  StepValueRecord record{};
  record.where = context.device->where().pack();
  record.axis = 0xFFFF;
  return record;
}

void emit_value(StepValueRecord record, StepQuantity quantity, double value) {
  record.quantity = uint16_t(quantity);
  record.value = value;
  emit(RecordKind::kStepValue, record);
}

struct Sums {
  double gradient = 0, miss = 0, labels = 0;  // terms of the first two all have the same sign
};

template <class T>
Sums sums_of_rows(const Tensor& logits, int64_t valid, const Tensor& m, const Tensor& sum_exp, const Tensor& labels,
                  int64_t first_column, const Tensor& d_logits) {
  Sums sums;
  const int64_t columns = logits.dim(1);
  for (int64_t i = 0; i < logits.dim(0) && valid > 0; ++i) {
    const int64_t label = labels.data<int32_t>()[i];
    if (label < 0) continue;
    const bool here = label >= first_column && label - first_column < valid;
    const int64_t column = here ? label - first_column : label % valid;
    const int64_t at = i * columns + column;
    const double p = std::exp(double(logits.data<T>()[at]) - m.data<double>()[i]) / sum_exp.data<double>()[i];
    const double d = double(d_logits.data<T>()[at]);
    sums.gradient += here ? -d : d;
    sums.miss += here ? 1 - p : p;
    sums.labels += here;
  }
  return sums;
}

}  // namespace

void record_loss_rows(const RankContext& context, const Tensor& m, const Tensor& sum_exp, const Tensor& target,
                      const Tensor& labels) {
  if (!rs_enabled()) return;
  context.device->launch(
      *context.compute, "statistics.loss_rows", {m, sum_exp, target, labels}, {}, [=, record = record_here(context)] {
        double sum = 0, count = 0;
        for (int64_t i = 0; i < labels.count(); ++i) {
          if (labels.data<int32_t>()[i] < 0) continue;
          sum += std::log(sum_exp.data<double>()[i]) + m.data<double>()[i] - target.data<double>()[i];
          count += 1;
        }
        emit_value(record, StepQuantity::kRowsLoss, sum);
        emit_value(record, StepQuantity::kRowsCounted, count);
      });
}

void record_loss_gradient(const RankContext& context, const Tensor& logits, int64_t valid_columns, const Tensor& m,
                          const Tensor& sum_exp, const Tensor& labels, int64_t first_column, const Tensor& d_logits) {
  if (!rs_enabled()) return;
  context.device->launch(
      *context.compute, "statistics.loss_gradient", {logits, m, sum_exp, labels, d_logits}, {},
      [=, record = record_here(context)] {
        const Sums sums = logits.dtype() == DType::kF64
                              ? sums_of_rows<double>(logits, valid_columns, m, sum_exp, labels, first_column, d_logits)
                              : sums_of_rows<float>(logits, valid_columns, m, sum_exp, labels, first_column, d_logits);
        emit_value(record, StepQuantity::kRowsMiss, sums.miss);
        emit_value(record, StepQuantity::kRowsLabels, sums.labels);
        emit_value(record, StepQuantity::kLossGradient, sums.gradient);
      });
}

}  // namespace ringscope
