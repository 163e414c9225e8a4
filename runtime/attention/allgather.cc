// All-gather context parallelism: every rank gathers the K/V of the whole sequence, makes one attention call for
// its own queries, and keeps nothing: the backward pass gathers again, computes dK/dV for all keys, and a
// reduce-scatter brings the sums home.
// Bytes sent per rank: (P-1) * 2*c*Hk*D*b forward; the same again plus (P-1) * 2*c*Hk*D*b_acc backward.
// Live: 2*N*Hk*D*b twice (as gathered, and in sequence order per sample).
#include <algorithm>

#include "runtime/attention/attention.h"

namespace ringscope {
namespace {

class AllGatherAttention : public Attention {
 public:
  explicit AllGatherAttention(const AttentionEnv& env)
      : env_(env), device_(*env.device), rows_(device_, env.log->first_head()), size_(env.cp->size()) {}

  Tensor forward(const Tensor& q, const Tensor& kv, const AttentionBatch& batch, AttentionSaved& saved) override {
    const int64_t tokens = q.dim(0), heads = q.dim(1);
    const Tensor all = gather(kv, batch);
    const kernels::TokenInfo keys = gathered_info(batch);
    Tensor o = device_.allocate(q.dtype(), {tokens, heads, q.dim(2)}, MemCategory::kActivation, "attention.o");
    Tensor lse = device_.allocate(DType::kF64, {tokens, heads}, MemCategory::kActivation, "attention.lse");
    Tensor m = device_.allocate(DType::kF64, {tokens, heads}, MemCategory::kWorkspace, "attention.max");
    env_.kernels.forward(device_, *env_.compute, q, all, batch.shards[env_.cp_rank()], keys, env_.scale, batch.dropout,
                         o, lse, m);
    env_.log->summarise(*env_.compute, lse, 1, SoftmaxMethod::kLseMerge);
    record_rows(batch, q, all, m, lse, o);
    saved = {q, kv, o, lse};
    return o;
  }

  AttentionGrad backward(const Tensor& d_o, const AttentionBatch& batch, const AttentionSaved& saved) override {
    Stream& compute = *env_.compute;
    const Tensor& q = saved.q;
    const Tensor& kv = saved.kv;
    const Tensor all = gather(kv, batch);
    const kernels::TokenInfo keys = gathered_info(batch);
    AttentionGrad grad;
    grad.dq = device_.allocate(q.dtype(), {q.dim(0), q.dim(1), q.dim(2)}, MemCategory::kActivation, "attention.dq");
    grad.dkv = like(kv, 1, MemCategory::kActivation, "attention.dkv");
    Tensor d_all = like(kv, size_, MemCategory::kKvGathered, "attention.dkv_all");
    Tensor d_parts = like(kv, size_, MemCategory::kKvGathered, "attention.dkv_parts");
    Tensor d = device_.allocate(DType::kF64, {q.dim(0), q.dim(1)}, MemCategory::kWorkspace, "attention.delta");
    kernels::attention_delta(device_, compute, saved.o, d_o, d);
    kernels::fill(device_, compute, "attention.dq_zero", grad.dq, 0);
    kernels::fill(device_, compute, "attention.dkv_zero", d_all, 0);
    env_.kernels.backward(device_, compute, q, all, d_o, saved.lse, d, batch.shards[env_.cp_rank()], keys, env_.scale,
                          batch.dropout, grad.dq, d_all);
    reorder(d_parts, d_all, batch.shards[0].batch, /*to_parts=*/true);
    device_.order(compute, *env_.transfer, "allgather.dkv_ready");
    env_.cp->reduce_scatter(*env_.transfer, d_parts, grad.dkv, RedOp::kSum, "attention.dkv_rs");
    device_.order(*env_.transfer, compute, "allgather.dkv_home");
    return grad;
  }

 private:
  Tensor like(const Tensor& kv, int64_t times, MemCategory category, const char* name) {
    return device_.allocate(kv.dtype(), {2, times * kv.dim(1), kv.dim(2), kv.dim(3)}, category, name);
  }

  void record_rows(const AttentionBatch& batch, const Tensor& q, const Tensor& all, const Tensor& m, const Tensor& lse,
                   const Tensor& o) {
    const AttentionRows::Call call{batch, size_};
    std::vector<AttentionRows::Part> parts;
    for (int owner = 0; owner < size_; ++owner)
      parts.push_back({.shard = env_.cp_rank(), .owner = owner, .q = q, .kv = all, .blocks = size_, .at = owner});
    rows_.recompute(*env_.compute, call, parts);
    rows_.put_out(*env_.compute, call, env_.cp_rank(), AttentionRows::kAllKeys, m, lse, o);
  }

  // K/V of all shards as [2, batch x (P*c), Hk, D].
  Tensor gather(const Tensor& kv, const AttentionBatch& batch) {
    Tensor parts = like(kv, size_, MemCategory::kKvGathered, "attention.kv_parts");
    Tensor all = like(kv, size_, MemCategory::kKvGathered, "attention.kv_all");
    device_.order(*env_.compute, *env_.transfer, "allgather.kv_ready");
    env_.cp->all_gather(*env_.transfer, kv, parts, "attention.kv_ag");
    device_.order(*env_.transfer, *env_.compute, "allgather.kv_here");
    reorder(parts, all, batch.shards[0].batch, /*to_parts=*/false);
    return all;
  }

  // parts: [P][2][batch][c] rows, as the collective moves them; all: [2][batch][P][c] rows, as the kernel wants.
  void reorder(const Tensor& parts, const Tensor& all, int64_t batch, bool to_parts) {
    const int64_t row_bytes = all.dim(2) * all.dim(3) * size_of(all.dtype());
    const int64_t tokens = all.dim(1) / size_, shard_bytes = tokens / batch * row_bytes;
    const int64_t size = size_;
    const auto copy = [=] {
      auto* p = static_cast<char*>(static_cast<void*>(parts.data<uint8_t>()));
      auto* a = static_cast<char*>(static_cast<void*>(all.data<uint8_t>()));
      for (int64_t rank = 0; rank < size; ++rank)
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t b = 0; b < batch; ++b) {
            char* in_parts = p + ((rank * 2 + half) * batch + b) * shard_bytes;
            char* in_all = a + ((half * batch + b) * size + rank) * shard_bytes;
            if (to_parts) std::copy_n(in_all, shard_bytes, in_parts);
            else std::copy_n(in_parts, shard_bytes, in_all);
          }
    };
    const Tensor& from = to_parts ? all : parts;
    const Tensor& to = to_parts ? parts : all;
    device_.launch(*env_.compute, "attention.reorder", {from}, {to}, copy);
  }

  // Rows and documents of all shards, in the order of `all`. Rebuilt per call: a few integers per token.
  kernels::TokenInfo gathered_info(const AttentionBatch& batch) {
    const int64_t samples = batch.shards[0].batch, shard = batch.shards[0].row.count() / samples;
    kernels::TokenInfo info;
    info.batch = samples;
    for (Tensor kernels::TokenInfo::*field : {&kernels::TokenInfo::row, &kernels::TokenInfo::document}) {
      Tensor to = device_.allocate(DType::kI32, {samples * size_ * shard}, MemCategory::kInput, "tokens.gathered");
      std::vector<Tensor> from;
      for (const kernels::TokenInfo& part : batch.shards) from.push_back(part.*field);
      device_.launch(*env_.compute, "attention.token_info", std::span<const Tensor>(from),
                     std::span<const Tensor>(&to, 1), [=, size = size_] {
                       for (int64_t b = 0; b < samples; ++b)
                         for (int p = 0; p < size; ++p)
                           std::copy_n(from[p].data<int32_t>() + b * shard, shard,
                                       to.data<int32_t>() + (b * size + p) * shard);
                     });
      info.*field = to;
    }
    return info;
  }

  AttentionEnv env_;
  Device& device_;
  AttentionRows rows_;
  int size_;
};

}  // namespace

std::unique_ptr<Attention> make_allgather_attention(const AttentionEnv& env) {
  return std::make_unique<AllGatherAttention>(env);
}

}  // namespace ringscope
