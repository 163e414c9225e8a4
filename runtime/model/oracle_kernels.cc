#include "runtime/model/oracle_kernels.h"

#include <algorithm>
#include <vector>

#include "runtime/oracle/oracle.h"

namespace ringscope {
namespace {

// Inside a launch: fp32 or fp64 tensors as double, and back.
std::vector<double> values(const Tensor& t) {
  const size_t n = size_t(t.count());
  if (t.dtype() == DType::kF64) return {t.data<double>(), t.data<double>() + n};
  return {t.data<float>(), t.data<float>() + n};
}
void store(const std::vector<double>& from, const Tensor& to) {
  if (to.dtype() == DType::kF64) std::copy(from.begin(), from.end(), to.data<double>());
  else std::transform(from.begin(), from.end(), to.data<float>(), [](double v) { return float(v); });
}
void add(const std::vector<double>& from, const Tensor& to) {
  std::vector<double> sum = values(to);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += from[i];
  store(sum, to);
}
std::vector<int32_t> tokens(const Tensor& t) { return {t.data<int32_t>(), t.data<int32_t>() + t.count()}; }

// q [Tq,HQ,D], kv [2,Tk,HK,D]; read inside the launch.
oracle::Attention problem(const Tensor& q, const Tensor& kv, const kernels::TokenInfo& qi, const kernels::TokenInfo& ki,
                          double scale) {
  oracle::Attention a;
  a.batch = qi.batch;
  a.tq = q.dim(0) / qi.batch;
  a.tk = kv.dim(1) / ki.batch;
  a.hq = q.dim(1);
  a.hk = kv.dim(2);
  a.d = q.dim(2);
  a.scale = scale;
  a.q = values(q);
  a.k = values(kv[0]);
  a.v = values(kv[1]);
  a.q_row = tokens(qi.row);
  a.q_document = tokens(qi.document);
  a.k_row = tokens(ki.row);
  a.k_document = tokens(ki.document);
  return a;
}

void forward(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const kernels::TokenInfo& qi,
             const kernels::TokenInfo& ki, double scale, const kernels::AttentionDropout&, const Tensor& o,
             const Tensor& lse, const Tensor& m) {
  device.launch(stream, "oracle_forward", {q, kv, qi.row, qi.document, ki.row, ki.document}, {o, lse, m}, [=] {
    const oracle::AttentionResult result = oracle::attention(problem(q, kv, qi, ki, scale));
    store(result.o, o);
    store(result.lse, lse);
    store(result.m, m);
  });
}

// Gradients are added to, as the fast kernels do.
void backward(Device& device, Stream& stream, const Tensor& q, const Tensor& kv, const Tensor& d_o, const Tensor& lse,
              const Tensor& delta, const kernels::TokenInfo& qi, const kernels::TokenInfo& ki, double scale,
              const kernels::AttentionDropout&, const Tensor& dq, const Tensor& dkv) {
  device.launch(stream, "oracle_backward", {q, kv, d_o, lse, delta, qi.row, qi.document, ki.row, ki.document, dq, dkv},
                {dq, dkv}, [=] {
                  const oracle::AttentionGradient gradient = oracle::attention_backward(
                      problem(q, kv, qi, ki, scale), values(d_o), values(lse), values(delta));
                  add(gradient.dq, dq);
                  add(gradient.dk, dkv[0]);
                  add(gradient.dv, dkv[1]);
                });
}

}  // namespace

AttentionKernels oracle_kernels() { return {&forward, &backward}; }

}  // namespace ringscope
