// Ring attention, forward and backward. Rank r of P holds, at step t, the K/V block of rank (r - t) mod P.
//
// Forward, step t = 0 .. P-1:
//   hop t (t < P-1): receive the next block from r-1 into ring[t % 2] while sending the held block to r+1
//   attention of the own queries over the held block; merge with what came before (LSE merge, fp64 weights)
// Bytes sent per rank: (P-1) * 2 * c * Hk * D * b.
//
// Ordering, all of it, with t counting hops:
//   RAW  attention of step t+1 waits for the receive of hop t                       (recv_done[t])
//   WAR  hop t writes ring[t % 2], which attention of step t-1 may still read, t>=2 (compute_done[t-1])
//   Hops 0 and 1 overwrite blocks of the previous layer: ordered by kv_ready, recorded on the compute stream
//   after that layer. The send of hop t-1 reads the same buffer but shares the stream with hop t.
//
// Backward: the blocks travel again, and the accumulator dK/dV of a block travels one step behind it: at step t
// rank r adds its contribution to the accumulator that it received, and passes it on; the P-th hop brings it
// home. The accumulator has to arrive before the add only, so its transfer overlaps with the kernel as well.
// Bytes per rank: (P-1) * 2*c*Hk*D*b + P * 2*c*Hk*D*b_acc.
#include <array>

#include "probes/nvtx/emit.h"
#include "probes/recorder/emit.h"
#include "runtime/attention/attention.h"

namespace ringscope {
namespace {

class RingAttention : public Attention {
 public:
  explicit RingAttention(const AttentionEnv& env)
      : env_(env), device_(*env.device), size_(env.cp->size()), rank_(env.cp->rank()) {}

  Tensor forward(const Tensor& q, const Tensor& kv, const AttentionBatch& batch, AttentionSaved& saved) override;
  AttentionGrad backward(const Tensor& d_o, const AttentionBatch& batch, const AttentionSaved& saved) override;

 private:
  int owner(int step) const { return (rank_ - step + size_) % size_; }
  int next() const { return (rank_ + 1) % size_; }
  int previous() const { return (rank_ + size_ - 1) % size_; }

  void reserve(std::array<Tensor, 2>& pair, const Tensor& like, const char* name);
  Event exchange_kv(int hop, const Tensor& held, const Event& kv_ready, const std::vector<Event>& compute_done);
  void wait_for_block(const Event& recv_done, int hop);
  void attend(int step, const Tensor& q, const Tensor& held, const AttentionBatch& batch, const AttentionSaved& saved);
  void log_part(int step, const AttentionBatch& batch, const Tensor& lse, const Tensor& m);
  void record_plan(int run_steps);

  AttentionEnv env_;
  Device& device_;
  int size_, rank_;
  std::array<Tensor, 2> ring_;         // the double buffer of travelling blocks
  std::array<Tensor, 2> accumulator_;  // travelling dK/dV
  Tensor part_o_, part_lse_, part_m_;
};

// The pair lives as long as the method: layers share it, as real frameworks do.
void RingAttention::reserve(std::array<Tensor, 2>& pair, const Tensor& like, const char* name) {
  if (pair[0].defined() && pair[0].count() == like.count()) return;
  for (Tensor& tensor : pair)
    tensor = device_.allocate(like.dtype(), {2, like.dim(1), like.dim(2), like.dim(3)}, MemCategory::kKvRing, name);
}

// Issues hop `hop` of the K/V blocks; returns the event after its receive.
Event RingAttention::exchange_kv(int hop, const Tensor& held, const Event& kv_ready,
                                 const std::vector<Event>& compute_done) {
  Stream& transfer = *env_.transfer;
  if (hop == 0) device_.wait(transfer, kv_ready);
  if (hop >= 2) device_.wait(transfer, compute_done[hop - 1]);
  {
    CommGroup group(*env_.cp);
    env_.cp->recv(transfer, ring_[hop % 2], previous(), "ring.kv_recv");
    env_.cp->send(transfer, held, next(), "ring.kv_send");
  }
  Event recv_done = device_.create_event("ring.recv_done");
  device_.record(recv_done, transfer);
  return recv_done;
}

void RingAttention::wait_for_block(const Event& recv_done, int hop) {
  ScopedWhere place(device_, [&](Where& w) { w.ring_step = int16_t(hop); });
  device_.wait(*env_.compute, recv_done);
}

// Step 0 writes the result, later steps merge into it.
void RingAttention::attend(int step, const Tensor& q, const Tensor& held, const AttentionBatch& batch,
                           const AttentionSaved& saved) {
  const Tensor& o = step == 0 ? saved.o : part_o_;
  const Tensor& lse = step == 0 ? saved.lse : part_lse_;
  env_.kernels.forward(device_, *env_.compute, q, held, batch.shards[rank_], batch.shards[owner(step)], env_.scale,
                       batch.dropout, o, lse, part_m_);
  log_part(step, batch, lse, part_m_);
  if (step == 0) return;
  kernels::lse_merge(device_, *env_.compute, saved.o, saved.lse, part_o_, part_lse_);
}

void RingAttention::log_part(int step, const AttentionBatch& batch, const Tensor& lse, const Tensor& m) {
  SoftmaxLog& log = *env_.log;
  if (!log.enabled()) return;
  const auto handle = log.open(batch.sampled[rank_], owner(step), size_, SoftmaxMethod::kLseMerge);
  log.take(*env_.compute, handle, SoftmaxLog::kMOwn, m);
  log.take(*env_.compute, handle, SoftmaxLog::kLseOwn, lse);
}

void RingAttention::record_plan(int run_steps) {
  RingPlanRecord plan{};
  plan.where = device_.where().pack();
  plan.comm = env_.cp->id();
  plan.expected_steps = uint32_t(size_);
  plan.run_steps = uint32_t(run_steps);
  emit(RecordKind::kRingPlan, plan);
}

Tensor RingAttention::forward(const Tensor& q, const Tensor& kv, const AttentionBatch& batch, AttentionSaved& saved) {
  Stream& compute = *env_.compute;
  const int64_t tokens = q.dim(0), heads = q.dim(1);
  reserve(ring_, kv, "ring.kv");
  saved.q = q;
  saved.kv = kv;
  saved.o = device_.allocate(q.dtype(), {tokens, heads, q.dim(2)}, MemCategory::kActivation, "attention.o");
  saved.lse = device_.allocate(DType::kF64, {tokens, heads}, MemCategory::kActivation, "attention.lse");
  part_o_ = device_.allocate(q.dtype(), {tokens, heads, q.dim(2)}, MemCategory::kWorkspace, "attention.part_o");
  part_lse_ = device_.allocate(DType::kF64, {tokens, heads}, MemCategory::kWorkspace, "attention.part_lse");
  part_m_ = device_.allocate(DType::kF64, {tokens, heads}, MemCategory::kWorkspace, "attention.part_max");

  Event kv_ready = device_.create_event("ring.kv_ready");
  device_.record(kv_ready, compute);
  std::vector<Event> compute_done;
  Tensor held = kv;
  for (int t = 0; t < size_; ++t) {
    ScopedWhere place(device_, [&](Where& w) { w.ring_step = int16_t(t); });
    nvtx::Range range("ring.step", device_.where(), uint64_t(held.bytes()));
    Event recv_done;
    if (t + 1 < size_) recv_done = exchange_kv(t, held, kv_ready, compute_done);
    attend(t, q, held, batch, saved);
    compute_done.push_back(device_.create_event("ring.compute_done"));
    device_.record(compute_done.back(), compute);
    if (t + 1 < size_) {
      wait_for_block(recv_done, t);
      held = ring_[t % 2];
    }
  }
  record_plan(size_);
  env_.log->summarise(compute, saved.lse, size_, SoftmaxMethod::kLseMerge);
  if (env_.log->enabled()) {
    const auto result = env_.log->open(batch.sampled[rank_], SoftmaxLog::kResult, size_, SoftmaxMethod::kLseMerge);
    env_.log->take(compute, result, SoftmaxLog::kLseResult, saved.lse);
  }
  part_o_ = part_lse_ = part_m_ = Tensor();
  return saved.o;
}

AttentionGrad RingAttention::backward(const Tensor& d_o, const AttentionBatch& batch, const AttentionSaved& saved) {
  Stream& compute = *env_.compute;
  Stream& transfer = *env_.transfer;
  const Tensor& q = saved.q;
  const Tensor& kv = saved.kv;
  reserve(ring_, kv, "ring.kv");
  reserve(accumulator_, kv, "ring.dkv");
  AttentionGrad grad;
  grad.dq = device_.allocate(q.dtype(), {q.dim(0), q.dim(1), q.dim(2)}, MemCategory::kActivation, "attention.dq");
  grad.dkv =
      device_.allocate(kv.dtype(), {2, kv.dim(1), kv.dim(2), kv.dim(3)}, MemCategory::kActivation, "attention.dkv");
  Tensor own =
      device_.allocate(kv.dtype(), {2, kv.dim(1), kv.dim(2), kv.dim(3)}, MemCategory::kWorkspace, "attention.dkv_own");
  Tensor d = device_.allocate(DType::kF64, {q.dim(0), q.dim(1)}, MemCategory::kWorkspace, "attention.delta");
  kernels::attention_delta(device_, compute, saved.o, d_o, d);
  kernels::fill(device_, compute, "attention.dq_zero", grad.dq, 0);

  Event kv_ready = device_.create_event("ring.kv_ready");
  device_.record(kv_ready, compute);
  std::vector<Event> compute_done;
  Event dkv_arrived;
  Tensor held = kv;
  for (int t = 0; t < size_; ++t) {
    ScopedWhere place(device_, [&](Where& w) { w.ring_step = int16_t(t); });
    nvtx::Range range("ring.step", device_.where(), uint64_t(held.bytes()));
    Event recv_done;
    if (t + 1 < size_) recv_done = exchange_kv(t, held, kv_ready, compute_done);

    // Contribution of the own queries; at step 0 it is the accumulator itself.
    const Tensor& contribution = t == 0 ? accumulator_[0] : own;
    kernels::fill(device_, compute, "attention.dkv_zero", contribution, 0);
    env_.kernels.backward(device_, compute, q, held, d_o, saved.lse, d, batch.shards[rank_], batch.shards[owner(t)],
                          env_.scale, batch.dropout, grad.dq, contribution);
    compute_done.push_back(device_.create_event("ring.compute_done"));
    device_.record(compute_done.back(), compute);
    if (t > 0) {
      device_.wait(compute, dkv_arrived);
      kernels::accumulate(device_, compute, "ring.dkv_add", own, accumulator_[t % 2]);
    }
    device_.order(compute, transfer, "ring.dkv_ready");
    {
      CommGroup group(*env_.cp);
      const bool home = t == size_ - 1;
      env_.cp->recv(transfer, home ? grad.dkv : accumulator_[(t + 1) % 2], previous(), "ring.dkv_recv");
      env_.cp->send(transfer, accumulator_[t % 2], next(), "ring.dkv_send");
    }
    dkv_arrived = device_.create_event("ring.dkv_arrived");
    device_.record(dkv_arrived, transfer);
    if (t + 1 < size_) {
      wait_for_block(recv_done, t);
      held = ring_[t % 2];
    }
  }
  device_.wait(compute, dkv_arrived);
  record_plan(size_);
  return grad;
}

}  // namespace

std::unique_ptr<Attention> make_ring_attention(const AttentionEnv& env) { return std::make_unique<RingAttention>(env); }

}  // namespace ringscope
