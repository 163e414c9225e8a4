#include "runtime/attention/attention.h"

namespace ringscope {

namespace {

class LocalAttention : public Attention {
 public:
  explicit LocalAttention(const AttentionEnv& env) : env_(env), rows_(*env.device, env.log->first_head()) {}

  Tensor forward(const Tensor& q, const Tensor& kv, const AttentionBatch& batch, AttentionSaved& saved) override {
    Device& device = *env_.device;
    const int64_t tokens = q.dim(0), heads = q.dim(1);
    Tensor o = device.allocate(q.dtype(), {tokens, heads, q.dim(2)}, MemCategory::kActivation, "attention.o");
    Tensor lse = device.allocate(DType::kF64, {tokens, heads}, MemCategory::kActivation, "attention.lse");
    Tensor m = device.allocate(DType::kF64, {tokens, heads}, MemCategory::kWorkspace, "attention.max");
    env_.kernels.forward(device, *env_.compute, q, kv, batch.shards[0], batch.shards[0], env_.scale, batch.dropout, o,
                         lse, m);
    env_.log->summarise(*env_.compute, lse, 1, SoftmaxMethod::kLseMerge);
    rows_.recompute(*env_.compute, {batch}, {{.q = q, .kv = kv}});
    rows_.put_out(*env_.compute, {batch}, 0, AttentionRows::kAllKeys, m, lse, o);
    saved = {q, kv, o, lse};
    return o;
  }

  AttentionGrad backward(const Tensor& d_o, const AttentionBatch& batch, const AttentionSaved& saved) override {
    Device& device = *env_.device;
    Stream& compute = *env_.compute;
    const Tensor& q = saved.q;
    AttentionGrad grad;
    grad.dq = device.allocate(q.dtype(), {q.dim(0), q.dim(1), q.dim(2)}, MemCategory::kActivation, "attention.dq");
    grad.dkv =
        device.allocate(q.dtype(), {2, q.dim(0), saved.kv.dim(2), q.dim(2)}, MemCategory::kActivation, "attention.dkv");
    Tensor d = device.allocate(DType::kF64, {q.dim(0), q.dim(1)}, MemCategory::kWorkspace, "attention.delta");
    kernels::attention_delta(device, compute, saved.o, d_o, d);
    kernels::fill(device, compute, "attention.dq_zero", grad.dq, 0);
    kernels::fill(device, compute, "attention.dkv_zero", grad.dkv, 0);
    env_.kernels.backward(device, compute, q, saved.kv, d_o, saved.lse, d, batch.shards[0], batch.shards[0], env_.scale,
                          batch.dropout, grad.dq, grad.dkv);
    return grad;
  }

 private:
  AttentionEnv env_;
  AttentionRows rows_;
};

}  // namespace

std::unique_ptr<Attention> make_local_attention(const AttentionEnv& env) {
  return std::make_unique<LocalAttention>(env);
}

}  // namespace ringscope
