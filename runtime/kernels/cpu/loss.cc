// Vocabulary-parallel cross entropy and the optimizer.
#include <algorithm>
#include <cmath>

#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/cpu/pointwise.h"
#include "runtime/kernels/kernels.h"

namespace ringscope::kernels {

void row_max(Device& device, Stream& stream, const Tensor& logits, int64_t valid, const Tensor& m) {
  device.launch(stream, "loss.row_max", {logits}, {m}, [=] {
    by_type(logits.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t v = logits.dim(1);
      for (int64_t i = 0; i < logits.dim(0); ++i) {
        const T* row = logits.data<T>() + i * v;
        double top = -INFINITY;
        for (int64_t j = 0; j < valid; ++j) top = std::max(top, double(row[j]));
        m.data<double>()[i] = top;
      }
    });
  });
}

void sum_exp_target(Device& device, Stream& stream, const Tensor& logits, int64_t valid, const Tensor& m,
                    const Tensor& labels, int64_t first_column, const Tensor& sum_exp, const Tensor& target) {
  device.launch(stream, "loss.sum_exp", {logits, m, labels}, {sum_exp, target}, [=] {
    by_type(logits.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t v = logits.dim(1);
      for (int64_t i = 0; i < logits.dim(0); ++i) {
        const T* row = logits.data<T>() + i * v;
        const T top = T(m.data<double>()[i]);
        const double sum = pointwise::best_for<T>().sum_exp(row, top, valid);
        const int64_t label = labels.data<int32_t>()[i] - first_column;
        sum_exp.data<double>()[i] = sum;
        target.data<double>()[i] = label >= 0 && label < valid ? double(row[label]) : 0;
      }
    });
  });
}

void loss_sum(Device& device, Stream& stream, const Tensor& m, const Tensor& sum_exp, const Tensor& target,
              const Tensor& labels, const Tensor& totals) {
  device.launch(stream, "loss.total", {m, sum_exp, target, labels, totals}, {totals}, [=] {
    double sum = 0, count = 0;
    for (int64_t i = 0; i < labels.count(); ++i) {
      if (labels.data<int32_t>()[i] < 0) continue;
      sum += std::log(sum_exp.data<double>()[i]) + m.data<double>()[i] - target.data<double>()[i];
      count += 1;
    }
    totals.data<double>()[0] += sum;
    totals.data<double>()[1] += count;
  });
}

void cross_entropy_backward(Device& device, Stream& stream, const Tensor& logits, int64_t valid, const Tensor& m,
                            const Tensor& sum_exp, const Tensor& labels, int64_t first_column, const Tensor& divisor,
                            const Tensor& dlogits) {
  device.launch(stream, "loss.backward", {logits, m, sum_exp, labels, divisor}, {dlogits}, [=] {
    by_type(logits.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t v = logits.dim(1);
      const double by = 1 / divisor.data<double>()[0];
      for (int64_t i = 0; i < logits.dim(0); ++i) {
        const T* row = logits.data<T>() + i * v;
        T* out = dlogits.data<T>() + i * v;
        const int32_t label = labels.data<int32_t>()[i];
        if (label < 0) {
          std::fill_n(out, v, T(0));
          continue;
        }
        const T top = T(m.data<double>()[i]), share = T(by / sum_exp.data<double>()[i]);
        pointwise::best_for<T>().scaled_exp(row, top, share, valid, out);
        for (int64_t j = valid; j < v; ++j) out[j] = 0;
        const int64_t own = label - first_column;
        if (own >= 0 && own < valid) out[own] -= T(by);
      }
    });
  });
}

void sum_of_squares(Device& device, Stream& stream, const Tensor& x, const Tensor& total) {
  device.launch(stream, "grad.sum_of_squares", {x, total}, {total}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      double sum = 0;
      const T* values = x.data<T>();
      for (int64_t i = 0, n = x.count(); i < n; ++i) sum += double(values[i]) * values[i];
      total.data<double>()[0] += sum;
    });
  });
}

void clip_factor(Device& device, Stream& stream, const Tensor& total, double max_norm, const Tensor& clip) {
  device.launch(stream, "grad.clip_factor", {total}, {clip}, [=] {
    const double room = max_norm / (std::sqrt(total.data<double>()[0]) + 1e-6);
    clip.data<double>()[0] = max_norm <= 0 || room >= 1 ? 1.0 : room;  // a norm of NaN makes every gradient NaN
  });
}

// AdamW (arXiv 1711.05101): decay first, eps after the bias-corrected root.
void adamw(Device& device, Stream& stream, const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v,
           const Tensor& clip, AdamW a) {
  device.launch(stream, "adamw", {w, g, m, v, clip}, {w, m, v}, [=] {
    by_type(w.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const double c1 = 1 - std::pow(a.beta1, double(a.step)), c2 = 1 - std::pow(a.beta2, double(a.step));
      const T decay = T(1 - a.lr * a.weight_decay), b1 = T(a.beta1), b2 = T(a.beta2), eps = T(a.eps);
      const T rate = T(a.lr / c1), root = T(1 / std::sqrt(c2)), factor = T(clip.data<double>()[0]);
      T *ws = w.data<T>(), *ms = m.data<T>(), *vs = v.data<T>();
      const T* gs = g.data<T>();
      for (int64_t i = 0, n = w.count(); i < n; ++i) {
        const T grad = gs[i] * factor;
        ms[i] = b1 * ms[i] + (T(1) - b1) * grad;
        vs[i] = b2 * vs[i] + (T(1) - b2) * grad * grad;
        ws[i] = ws[i] * decay - rate * ms[i] / (std::sqrt(vs[i]) * root + eps);
      }
    });
  });
}

}  // namespace ringscope::kernels
