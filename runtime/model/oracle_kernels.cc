#include "runtime/model/oracle_kernels.h"

#include <cmath>
#include <limits>
#include <vector>

#include "runtime/layout/layout.h"

namespace ringscope {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

// Reads and writes elements of fp32 or fp64 tensors as double, inside a launch.
class Values {
 public:
  explicit Values(const Tensor& t)
      : f32_(t.dtype() == DType::kF32 ? t.data<float>() : nullptr),
        f64_(t.dtype() == DType::kF64 ? t.data<double>() : nullptr) {}
  double get(int64_t i) const { return f32_ ? double(f32_[i]) : f64_[i]; }
  void set(int64_t i, double v) const {
    if (f32_) f32_[i] = float(v);
    else f64_[i] = v;
  }
  void add(int64_t i, double v) const { set(i, get(i) + v); }

 private:
  float* f32_;
  double* f64_;
};

// The index arithmetic both passes share: q [Tq,HQ,D], kv [2,Tk,HK,D].
struct Call {
  Tensor q, kv;
  kernels::TokenInfo qi, ki;
  double scale;
  int64_t tq, tk, hq, hk, d;

  Call(const Tensor& q, const Tensor& kv, const kernels::TokenInfo& qi, const kernels::TokenInfo& ki, double scale)
      : q(q), kv(kv), qi(qi), ki(ki), scale(scale), tq(q.dim(0)), tk(kv.dim(1)), hq(q.dim(1)), hk(kv.dim(2)),
        d(q.dim(2)) {}

  int64_t q_at(int64_t i, int64_t h) const { return (i * hq + h) * d; }
  int64_t k_at(int64_t j, int64_t h) const { return (j * hk + h / (hq / hk)) * d; }
  int64_t v_at(int64_t j, int64_t h) const { return k_at(j, h) + tk * hk * d; }

  // Keys of the query's own sample that it may see.
  template <class Visit>
  void visible(int64_t i, Visit visit) const {
    const int64_t sample = i / (tq / qi.batch), per_sample = tk / ki.batch;
    const int32_t row = qi.row.data<int32_t>()[i], document = qi.document.data<int32_t>()[i];
    for (int64_t j = sample * per_sample; j < (sample + 1) * per_sample; ++j)
      if (may_see(row, document, ki.row.data<int32_t>()[j], ki.document.data<int32_t>()[j])) visit(j);
  }
  double score(const Values& qv, const Values& kvv, int64_t i, int64_t j, int64_t h) const {
    double sum = 0;
    for (int64_t x = 0; x < d; ++x) sum += qv.get(q_at(i, h) + x) * kvv.get(k_at(j, h) + x);
    return sum * scale;
  }
};

void forward_row(const Call& c, int64_t i, int64_t h, const Values& o, double* lse, double* m) {
  const Values q(c.q), kv(c.kv);
  double peak = kMinusInfinity, sum = 0;
  c.visible(i, [&](int64_t j) { peak = std::max(peak, c.score(q, kv, i, j, h)); });
  std::vector<double> out(c.d, 0.0);
  c.visible(i, [&](int64_t j) {
    const double p = std::exp(c.score(q, kv, i, j, h) - peak);
    sum += p;
    for (int64_t x = 0; x < c.d; ++x) out[x] += p * kv.get(c.v_at(j, h) + x);
  });
  for (int64_t x = 0; x < c.d; ++x) o.set(c.q_at(i, h) + x, sum > 0 ? out[x] / sum : 0);
  m[i * c.hq + h] = peak;
  lse[i * c.hq + h] = sum > 0 ? peak + std::log(sum) : kMinusInfinity;
}

void forward(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const kernels::TokenInfo& qi,
             const kernels::TokenInfo& ki, double scale, const kernels::AttentionDropout&, const Tensor& o,
             const Tensor& lse, const Tensor& m) {
  const Call call(q, kv, qi, ki, scale);
  device.launch(stream, "oracle_forward", {q, kv, qi.row, qi.document, ki.row, ki.document}, {o, lse, m}, [=] {
    const Values out(o);
    for (int64_t i = 0; i < call.tq; ++i)
      for (int64_t h = 0; h < call.hq; ++h) forward_row(call, i, h, out, lse.data<double>(), m.data<double>());
  });
}

void backward(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const Tensor& d_o, const Tensor& lse,
              const Tensor& delta, const kernels::TokenInfo& qi, const kernels::TokenInfo& ki, double scale,
              const kernels::AttentionDropout&, const Tensor& dq, const Tensor& dkv) {
  const Call c(q, kv, qi, ki, scale);
  device.launch(stream, "oracle_backward", {q, kv, d_o, lse, delta, qi.row, qi.document, ki.row, ki.document, dq, dkv},
                {dq, dkv}, [=] {
                  const Values qv(q), kvv(kv), dov(d_o), dqv(dq), dkvv(dkv);
                  for (int64_t i = 0; i < c.tq; ++i)
                    for (int64_t h = 0; h < c.hq; ++h)
                      c.visible(i, [&](int64_t j) {
                        const double p = std::exp(c.score(qv, kvv, i, j, h) - lse.data<double>()[i * c.hq + h]);
                        double dp = 0;
                        for (int64_t x = 0; x < c.d; ++x) dp += dov.get(c.q_at(i, h) + x) * kvv.get(c.v_at(j, h) + x);
                        const double ds = p * (dp - delta.data<double>()[i * c.hq + h]) * c.scale;
                        for (int64_t x = 0; x < c.d; ++x) {
                          dkvv.add(c.v_at(j, h) + x, p * dov.get(c.q_at(i, h) + x));
                          dqv.add(c.q_at(i, h) + x, ds * kvv.get(c.k_at(j, h) + x));
                          dkvv.add(c.k_at(j, h) + x, ds * qv.get(c.q_at(i, h) + x));
                        }
                      });
                });
}

}  // namespace

AttentionKernels oracle_kernels() { return {&forward, &backward}; }

}  // namespace ringscope
