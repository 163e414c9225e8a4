// The articles' three-step global softmax over sharded keys. Queries of all shards are gathered; every rank
// scores them against its own keys:
//   1. m = all_reduce(MAX) of the local maxima
//   2. z = all_reduce(SUM) of sum_j exp(s_j - m)
//   3. o = reduce_scatter(SUM) of sum_j exp(s_j - m) v_j, at the query's owner, divided by z
// A row that sees no key anywhere keeps m = -inf: o = 0, lse = -inf (never exp(-inf - -inf)).
// Backward needs the final lse and delta of every row only: queries, dO, lse and delta are gathered, dK/dV are
// complete locally, and dQ is reduce-scattered.
#include "runtime/attention/attention.h"

namespace ringscope {
namespace {

class GlobalSoftmaxAttention : public Attention {
 public:
  explicit GlobalSoftmaxAttention(const AttentionEnv& env)
      : env_(env), device_(*env.device), size_(env.cp->size()), rank_(env.cp->rank()) {}

  Tensor forward(const Tensor& q, const Tensor& kv, const AttentionBatch& batch, AttentionSaved& saved) override;
  AttentionGrad backward(const Tensor& d_o, const AttentionBatch& batch, const AttentionSaved& saved) override;

 private:
  void to_transfer(const char* event) { device_.order(*env_.compute, *env_.transfer, event); }
  void to_compute(const char* event) { device_.order(*env_.transfer, *env_.compute, event); }
  Tensor gather(const Tensor& part, const char* name);
  void reduce_max(const Tensor& m);
  void reduce_sum(const Tensor& z);
  std::vector<SoftmaxLog::Handle> open_samples(const AttentionBatch& batch);
  void sample(const std::vector<SoftmaxLog::Handle>& handles, SoftmaxLog::Field field, const Tensor& all);

  AttentionEnv env_;
  Device& device_;
  int size_, rank_;
};

// [P, ...part] from every rank's part.
Tensor GlobalSoftmaxAttention::gather(const Tensor& part, const char* name) {
  Tensor all = part.rank() == 3
                   ? device_.allocate(part.dtype(), {size_, part.dim(0), part.dim(1), part.dim(2)},
                                      MemCategory::kCommBuffer, name)
                   : device_.allocate(part.dtype(), {size_, part.dim(0), part.dim(1)}, MemCategory::kCommBuffer, name);
  to_transfer("softmax.part_ready");
  env_.cp->all_gather(*env_.transfer, part, all, name);
  to_compute("softmax.all_here");
  return all;
}

void GlobalSoftmaxAttention::reduce_max(const Tensor& m) {
  to_transfer("softmax.max_ready");
  env_.cp->all_reduce(*env_.transfer, m, m, RedOp::kMax, "softmax.max_ar");
  to_compute("softmax.max_here");
}

void GlobalSoftmaxAttention::reduce_sum(const Tensor& z) {
  to_transfer("softmax.sum_ready");
  env_.cp->all_reduce(*env_.transfer, z, z, RedOp::kSum, "softmax.sum_ar");
  to_compute("softmax.sum_here");
}

std::vector<SoftmaxLog::Handle> GlobalSoftmaxAttention::open_samples(const AttentionBatch& batch) {
  std::vector<SoftmaxLog::Handle> handles(size_);
  if (!env_.log->enabled()) return handles;
  for (int i = 0; i < size_; ++i)
    handles[i] = env_.log->open(batch.sampled[i], rank_, size_, SoftmaxMethod::kGlobalThreeStep);
  return handles;
}

// all: [P, T, HQ]; handle i belongs to the rows of shard i.
void GlobalSoftmaxAttention::sample(const std::vector<SoftmaxLog::Handle>& handles, SoftmaxLog::Field field,
                                    const Tensor& all) {
  for (int i = 0; i < size_; ++i) env_.log->take(*env_.compute, handles[i], field, all[i]);
}

Tensor GlobalSoftmaxAttention::forward(const Tensor& q, const Tensor& kv, const AttentionBatch& batch,
                                       AttentionSaved& saved) {
  Stream& compute = *env_.compute;
  const int64_t tokens = q.dim(0), heads = q.dim(1), dim = q.dim(2);
  const Tensor q_all = gather(q, "softmax.q_ag");
  Tensor m = device_.allocate(DType::kF64, {size_, tokens, heads}, MemCategory::kWorkspace, "softmax.max");
  Tensor z = device_.allocate(DType::kF64, {size_, tokens, heads}, MemCategory::kWorkspace, "softmax.sum");
  Tensor u = device_.allocate(q.dtype(), {size_, tokens, heads, dim}, MemCategory::kCommBuffer, "softmax.weighted");
  const auto samples = open_samples(batch);

  for (int i = 0; i < size_; ++i)
    kernels::score_max(device_, compute, q_all[i], kv, batch.shards[i], batch.shards[rank_], env_.scale, m[i]);
  sample(samples, SoftmaxLog::kMOwn, m);
  reduce_max(m);
  sample(samples, SoftmaxLog::kMUsed, m);
  for (int i = 0; i < size_; ++i)
    kernels::exp_sum(device_, compute, q_all[i], kv, batch.shards[i], batch.shards[rank_], env_.scale, batch.dropout,
                     m[i], u[i], z[i]);
  sample(samples, SoftmaxLog::kSumOwn, z);
  reduce_sum(z);
  sample(samples, SoftmaxLog::kSumUsed, z);

  Tensor u_own = device_.allocate(q.dtype(), {tokens, heads, dim}, MemCategory::kCommBuffer, "softmax.weighted_own");
  to_transfer("softmax.weighted_ready");
  env_.cp->reduce_scatter(*env_.transfer, u, u_own, RedOp::kSum, "softmax.out_rs");
  to_compute("softmax.weighted_here");
  Tensor o = device_.allocate(q.dtype(), {tokens, heads, dim}, MemCategory::kActivation, "attention.o");
  Tensor lse = device_.allocate(DType::kF64, {tokens, heads}, MemCategory::kActivation, "attention.lse");
  kernels::softmax_normalise(device_, compute, u_own, m[rank_], z[rank_], o, lse);
  env_.log->summarise(compute, lse, size_, SoftmaxMethod::kGlobalThreeStep);
  if (env_.log->enabled()) {
    const auto result =
        env_.log->open(batch.sampled[rank_], SoftmaxLog::kResult, size_, SoftmaxMethod::kGlobalThreeStep);
    env_.log->take(compute, result, SoftmaxLog::kLseResult, lse);
  }
  saved = {q, kv, o, lse};
  return o;
}

AttentionGrad GlobalSoftmaxAttention::backward(const Tensor& d_o, const AttentionBatch& batch,
                                               const AttentionSaved& saved) {
  Stream& compute = *env_.compute;
  const Tensor& q = saved.q;
  const int64_t tokens = q.dim(0), heads = q.dim(1), dim = q.dim(2);
  Tensor d = device_.allocate(DType::kF64, {tokens, heads}, MemCategory::kWorkspace, "attention.delta");
  kernels::attention_delta(device_, compute, saved.o, d_o, d);
  const Tensor q_all = gather(q, "softmax.q_ag");
  const Tensor d_o_all = gather(d_o, "softmax.do_ag");
  const Tensor lse_all = gather(saved.lse, "softmax.lse_ag");
  const Tensor d_all = gather(d, "softmax.delta_ag");

  AttentionGrad grad;
  grad.dq = device_.allocate(q.dtype(), {tokens, heads, dim}, MemCategory::kActivation, "attention.dq");
  grad.dkv = device_.allocate(q.dtype(), {2, tokens, saved.kv.dim(2), dim}, MemCategory::kActivation, "attention.dkv");
  Tensor dq_all = device_.allocate(q.dtype(), {size_, tokens, heads, dim}, MemCategory::kCommBuffer, "softmax.dq");
  kernels::fill(device_, compute, "attention.dq_zero", dq_all, 0);
  kernels::fill(device_, compute, "attention.dkv_zero", grad.dkv, 0);
  for (int i = 0; i < size_; ++i)
    env_.kernels.backward(device_, compute, q_all[i], saved.kv, d_o_all[i], lse_all[i], d_all[i], batch.shards[i],
                          batch.shards[rank_], env_.scale, batch.dropout, dq_all[i], grad.dkv);
  to_transfer("softmax.dq_ready");
  env_.cp->reduce_scatter(*env_.transfer, dq_all, grad.dq, RedOp::kSum, "softmax.dq_rs");
  to_compute("softmax.dq_here");
  return grad;
}

}  // namespace

std::unique_ptr<Attention> make_global_softmax_attention(const AttentionEnv& env) {
  return std::make_unique<GlobalSoftmaxAttention>(env);
}

}  // namespace ringscope
