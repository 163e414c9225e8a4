// Launches of the attention kernels, the merge, and the pieces of the three-step softmax.
#include <cmath>
#include <memory>

#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/cpu/flash.h"
#include "runtime/kernels/cpu/rng.h"
#include "runtime/kernels/kernels.h"
#include "runtime/kernels/lse_merge_math.h"

namespace ringscope::kernels {
namespace {

void run(const flash::Forward<float>& f, float* scratch) { flash::best().forward_f32(f, scratch); }
void run(const flash::Forward<double>& f, double* scratch) { flash::best().forward_f64(f, scratch); }
void run(const flash::Backward<float>& f, float* scratch) { flash::best().backward_f32(f, scratch); }
void run(const flash::Backward<double>& f, double* scratch) { flash::best().backward_f64(f, scratch); }

// One scratch a worker thread and type, grown as needed, 64-byte aligned.
template <class T>
T* scratch(int64_t elements) {
  static thread_local std::vector<T> memory;
  if (int64_t(memory.size()) < elements + 64) memory.resize(elements + 64);
  void* p = memory.data();
  size_t space = memory.size() * sizeof(T);
  return static_cast<T*>(std::align(64, elements * sizeof(T), p, space));
}

flash::Dropout flash_dropout(const AttentionDropout& d) {
  flash::Dropout out;
  if (d.p == 0) return out;
  out.p = d.p;
  out.key = rng::fold(rng::mix(d.seed ^ 0xA77E4710ull), uint64_t(uint32_t(d.step)));
  out.key = rng::fold(out.key, uint64_t(uint32_t(d.layer)));
  out.first_head = d.first_head;
  out.sample = d.sample.data<int32_t>();
  return out;
}

template <class T>
flash::Forward<T> forward_args(const Tensor& q, const Tensor& kv, const TokenInfo& qi, const TokenInfo& ki,
                               double scale, flash::Mode mode) {
  flash::Forward<T> f{};
  f.q = q.data<T>();
  f.k = kv.data<T>();
  f.v = f.k + kv.count() / 2;
  f.q_row = qi.row.data<int32_t>();
  f.q_document = qi.document.data<int32_t>();
  f.k_row = ki.row.data<int32_t>();
  f.k_document = ki.document.data<int32_t>();
  f.batch = qi.batch;
  f.tq = q.dim(0) / qi.batch;
  f.tk = kv.dim(1) / ki.batch;
  f.hq = q.dim(1);
  f.hk = kv.dim(2);
  f.d = q.dim(2);
  f.scale = scale;
  f.mode = mode;
  return f;
}

std::vector<Tensor> with_dropout(std::vector<Tensor> reads, const AttentionDropout& dropout) {
  if (dropout.p > 0) reads.push_back(dropout.sample);
  return reads;
}

}  // namespace

void flash_forward(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const TokenInfo& qi,
                   const TokenInfo& ki, double scale, const AttentionDropout& dropout, const Tensor& o,
                   const Tensor& lse, const Tensor& m) {
  const auto reads = with_dropout({q, kv, qi.row, qi.document, ki.row, ki.document}, dropout);
  const Tensor writes[] = {o, lse, m};
  device.launch(stream, "flash_forward", reads, writes, [=] {
    by_type(q.dtype(), [&](auto zero) {
      using T = decltype(zero);
      flash::Forward<T> f = forward_args<T>(q, kv, qi, ki, scale, flash::Mode::kOnline);
      f.dropout = flash_dropout(dropout);
      f.o = o.data<T>();
      f.lse = lse.data<double>();
      f.m = m.data<double>();
      run(f, scratch<T>(flash::scratch_elements(f.tk, f.d)));
    });
  });
}

void score_max(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const TokenInfo& qi,
               const TokenInfo& ki, double scale, const Tensor& m) {
  device.launch(stream, "score_max", {q, kv, qi.row, qi.document, ki.row, ki.document}, {m}, [=] {
    by_type(q.dtype(), [&](auto zero) {
      using T = decltype(zero);
      flash::Forward<T> f = forward_args<T>(q, kv, qi, ki, scale, flash::Mode::kMaxOnly);
      f.m = m.data<double>();
      run(f, scratch<T>(flash::scratch_elements(f.tk, f.d)));
    });
  });
}

void exp_sum(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const TokenInfo& qi,
             const TokenInfo& ki, double scale, const AttentionDropout& dropout, const Tensor& m, const Tensor& u,
             const Tensor& z) {
  const auto reads = with_dropout({q, kv, qi.row, qi.document, ki.row, ki.document, m}, dropout);
  const Tensor writes[] = {u, z};
  device.launch(stream, "exp_sum", reads, writes, [=] {
    by_type(q.dtype(), [&](auto zero) {
      using T = decltype(zero);
      flash::Forward<T> f = forward_args<T>(q, kv, qi, ki, scale, flash::Mode::kFixedMax);
      f.dropout = flash_dropout(dropout);
      f.o = u.data<T>();
      f.lse = z.data<double>();
      f.m = m.data<double>();
      run(f, scratch<T>(flash::scratch_elements(f.tk, f.d)));
    });
  });
}

void attention_delta(Device& device, Stream& stream, const Tensor& o, const Tensor& d_o, const Tensor& d) {
  device.launch(stream, "attention_delta", {o, d_o}, {d}, [=] {
    by_type(o.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t dim = o.dim(2);
      for (int64_t i = 0, n = d.count(); i < n; ++i) {
        const T *out = o.data<T>() + i * dim, *grad = d_o.data<T>() + i * dim;
        double sum = 0;
        for (int64_t x = 0; x < dim; ++x) sum += double(out[x]) * grad[x];
        d.data<double>()[i] = sum;
      }
    });
  });
}

void flash_backward(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const Tensor& d_o,
                    const Tensor& lse, const Tensor& d, const TokenInfo& qi, const TokenInfo& ki, double scale,
                    const AttentionDropout& dropout, const Tensor& dq, const Tensor& dkv) {
  const auto reads = with_dropout({q, kv, d_o, lse, d, qi.row, qi.document, ki.row, ki.document, dq, dkv}, dropout);
  const Tensor writes[] = {dq, dkv};
  device.launch(stream, "flash_backward", reads, writes, [=] {
    by_type(q.dtype(), [&](auto zero) {
      using T = decltype(zero);
      flash::Backward<T> f{};
      const flash::Forward<T> shape = forward_args<T>(q, kv, qi, ki, scale, flash::Mode::kOnline);
      f.q = shape.q, f.k = shape.k, f.v = shape.v;
      f.d_o = d_o.data<T>();
      f.lse = lse.data<double>();
      f.delta = d.data<double>();
      f.q_row = shape.q_row, f.q_document = shape.q_document;
      f.k_row = shape.k_row, f.k_document = shape.k_document;
      f.batch = shape.batch, f.tq = shape.tq, f.tk = shape.tk, f.hq = shape.hq, f.hk = shape.hk, f.d = shape.d;
      f.scale = scale;
      f.dropout = flash_dropout(dropout);
      f.dq = dq.data<T>();
      f.dk = dkv.data<T>();
      f.dv = f.dk + dkv.count() / 2;
      run(f, scratch<T>(flash::scratch_elements(f.tk, f.d)));
    });
  });
}

void lse_merge(Device& device, Stream& stream, const Tensor& o, const Tensor& lse, const Tensor& part_o,
               const Tensor& part_lse) {
  device.launch(stream, "lse_merge", {o, lse, part_o, part_lse}, {o, lse}, [=] {
    by_type(o.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t d = o.dim(2);
      for (int64_t i = 0, n = lse.count(); i < n; ++i) {
        double& l = lse.data<double>()[i];
        const double part = part_lse.data<double>()[i];
        const MergeWeights w = merge_weights(l, part);
        T* to = o.data<T>() + i * d;
        const T* from = part_o.data<T>() + i * d;
        for (int64_t x = 0; x < d; ++x) to[x] = merge_value(w, to[x], from[x]);
        l = w.lse;
      }
    });
  });
}

void softmax_normalise(Device& device, Stream& stream, const Tensor& u, const Tensor& m, const Tensor& z,
                       const Tensor& o, const Tensor& lse) {
  device.launch(stream, "softmax_normalise", {u, m, z}, {o, lse}, [=] {
    by_type(u.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t d = u.dim(2);
      for (int64_t i = 0, n = z.count(); i < n; ++i) {
        const double sum = z.data<double>()[i], top = m.data<double>()[i];
        const bool empty = sum == 0 || (std::isinf(top) && top < 0 && !std::isnan(sum));
        const T* weighted = u.data<T>() + i * d;
        T* out = o.data<T>() + i * d;
        for (int64_t x = 0; x < d; ++x) out[x] = empty ? 0 * weighted[x] : T(weighted[x] / sum);
        lse.data<double>()[i] = empty ? -INFINITY : top + std::log(sum);
      }
    });
  });
}

}  // namespace ringscope::kernels
