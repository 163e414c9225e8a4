#include "runtime/train/rank_job.h"

#include <cmath>

#include "runtime/kernels/kernels.h"
#include "runtime/train/step_values.h"

namespace ringscope {
namespace {

std::string group_name(Axis axis, const std::vector<int>& ranks) {
  std::string text = std::string(name(axis)) + "[";
  for (size_t i = 0; i < ranks.size(); ++i) text += (i ? "," : "") + std::to_string(ranks[i]);
  return text + "]";
}

}  // namespace

RankJob::RankJob(Sched& sched, std::shared_ptr<CommWorld> world, const JobConfig& config, const Mesh& mesh, int rank,
                 SequenceSplit split)
    : config_(config), device_(std::make_unique<Device>(sched, rank, mesh.world())), world_(std::move(world)),
      loader_(ctx_, split) {
  ctx_.config = &config_;
  ctx_.mesh = mesh;
  ctx_.coord = mesh.coord(rank);
  ctx_.device = device_.get();
}

bool RankJob::start(const HostTensors* weights) {
  Device& device = *ctx_.device;
  ctx_.compute = &device.create_stream("compute");
  ctx_.cp_stream = &device.create_stream("cp");
  ctx_.dp_stream = &device.create_stream("dp");
  // One agreed order for all ranks: TP, then CP, then DP (a different order on one rank hangs, as it should).
  std::vector<Axis> axes;
  for (Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp})
    if (ctx_.mesh.size(axis) > 1) axes.push_back(axis);
  for (size_t i = 0; i < axes.size(); ++i) {
    if (ctx_.seam) ctx_.seam->creating(axes, i);
    if (ctx_.seam && ctx_.seam->ended()) return false;
    const Axis axis = axes[i];
    const std::vector<int> ranks = ctx_.mesh.group(axis, device.rank());
    auto comm = comm_init(world_, device, ranks, axis, group_name(axis, ranks).c_str());
    if (!comm) return false;
    if (ctx_.seam) comm = ctx_.seam->wrap(std::move(comm));
    (axis == Axis::kTp ? ctx_.tp : axis == Axis::kCp ? ctx_.cp : ctx_.dp) = std::move(comm);
  }
  const int heads = config_.model.num_attention_heads / ctx_.mesh.size(Axis::kTp);
  ctx_.softmax_log = std::make_unique<SoftmaxLog>(device, ctx_.coord.tp * heads, ctx_.coord.tp);
  model_ = std::make_unique<Model>(ctx_);
  model_->store().allocate();
  if (weights) {
    if (!model_->store().load(*weights)) return false;  // shapes were checked when the checkpoint was read
  } else {
    model_->store().initialise(config_.seed);
  }
  const auto scalar = [&](const char* label, int64_t n) {
    return device.allocate(DType::kF64, {n}, MemCategory::kWorkspace, label);
  };
  divisor_ = scalar("loss.divisor", 1);
  totals_ = scalar("loss.totals", 2);
  loss_ = scalar("loss", 1);
  norm_sq_ = scalar("grad.norm_sq", 1);
  clip_ = scalar("grad.clip", 1);
  return true;
}

void RankJob::set_seam(Seam* seam) {
  ctx_.seam = seam;
  device_->set_hook(seam);
}

void RankJob::clear() {
  model_->store().zero_grads();
  kernels::fill(*ctx_.device, *ctx_.compute, "loss.zero", totals_, 0);
}

// Sums a number that lives on the compute stream over a communicator that runs on `stream`.
void RankJob::reduce_over(Communicator* comm, Stream& stream, const Tensor& tensor, StepQuantity quantity,
                          const char* name) {
  if (!comm) return;
  Device& device = *ctx_.device;
  device.order(*ctx_.compute, stream, name);
  comm->all_reduce(stream, tensor, tensor, RedOp::kSum, name);
  device.order(stream, *ctx_.compute, name);
  record_step_values(ctx_, tensor, {quantity}, comm);
}

void RankJob::set_divisor(int64_t own_count) {
  kernels::upload(*ctx_.device, *ctx_.compute, "loss.count", divisor_, {double(own_count)});
  record_step_values(ctx_, divisor_, {StepQuantity::kDivisor});
  reduce_over(ctx_.cp.get(), *ctx_.cp_stream, divisor_, StepQuantity::kDivisor, "loss.count_cp");
  reduce_over(ctx_.dp.get(), *ctx_.dp_stream, divisor_, StepQuantity::kDivisor, "loss.count_dp");
}

void RankJob::sync_loss() {
  Device& device = *ctx_.device;
  device.launch(*ctx_.compute, "loss.share", {totals_, divisor_}, {loss_},
                [totals = totals_, divisor = divisor_, loss = loss_] {
                  const double by = divisor.data<double>()[0];
                  loss.data<double>()[0] = by > 0 ? totals.data<double>()[0] / by : 0;
                });
  record_step_values(ctx_, loss_, {StepQuantity::kLoss});
  reduce_over(ctx_.cp.get(), *ctx_.cp_stream, loss_, StepQuantity::kLoss, "loss.sum_cp");
  reduce_over(ctx_.dp.get(), *ctx_.dp_stream, loss_, StepQuantity::kLoss, "loss.sum_dp");
}

void RankJob::reduce_bucket(Communicator& comm, Stream& stream, const GradBucket& bucket, const char* name) {
  ScopedWhere place(*ctx_.device, [&](Where& w) { w.layer = int16_t(bucket.layer); });
  comm.all_reduce(stream, bucket.grads, bucket.grads, RedOp::kSum, name);
}

// With sequence parallelism every TP rank saw its own rows only: gradients of what TP replicates are partial.
void RankJob::reduce_norms_over_tp() {
  if (!ctx_.sequence_parallel()) return;
  for (const GradBucket& bucket : model_->store().buckets())
    if (bucket.replicated) reduce_bucket(*ctx_.tp, *ctx_.compute, bucket, "grad.norm_tp");
}

void RankJob::reduce_over_cp(bool replicated) {
  if (!ctx_.cp) return;
  for (const GradBucket& bucket : model_->store().buckets())
    if (bucket.replicated == replicated) reduce_bucket(*ctx_.cp, *ctx_.compute, bucket, "grad.weight_cp");
}

void RankJob::reduce_over_dp() {
  if (!ctx_.dp) return;
  Device& device = *ctx_.device;
  device.order(*ctx_.compute, *ctx_.dp_stream, "grad.ready");
  for (const GradBucket& bucket : model_->store().buckets())
    reduce_bucket(*ctx_.dp, *ctx_.dp_stream, bucket, "grad.weight_dp");
  device.order(*ctx_.dp_stream, *ctx_.compute, "grad.reduced");
}

void RankJob::sync_gradients(TensorStats* stats) {
  ScopedWhere place(*ctx_.device, [](Where& w) { w.pass = Pass::kOptimizer; });
  reduce_norms_over_tp();
  reduce_over_cp(/*replicated=*/false);
  // Behind calls that touch nothing of it, so that no kernel stands between two calls.
  if (stats && ctx_.sequence_parallel()) stats->take_over_tp(model_->store());
  reduce_over_cp(/*replicated=*/true);
  if (stats && ctx_.cp && ctx_.dp) stats->take_over_cp(model_->store());
  reduce_over_dp();

  Device& device = *ctx_.device;
  kernels::fill(device, *ctx_.compute, "grad.norm_zero", norm_sq_, 0);
  for (const GradBucket& bucket : model_->store().buckets())
    if (!bucket.replicated || ctx_.coord.tp == 0)  // what TP replicates counts once
      kernels::sum_of_squares(device, *ctx_.compute, bucket.grads, norm_sq_);
  record_step_values(ctx_, norm_sq_, {StepQuantity::kGradNormSq});
  if (!ctx_.tp) return;
  ctx_.tp->all_reduce(*ctx_.compute, norm_sq_, norm_sq_, RedOp::kSum, "grad.norm_sq_tp");
  record_step_values(ctx_, norm_sq_, {StepQuantity::kGradNormSq}, ctx_.tp.get());
}

void RankJob::optimizer_step(int64_t step_from_1, double lr) {
  ScopedWhere place(*ctx_.device, [](Where& w) { w.pass = Pass::kOptimizer; });
  Device& device = *ctx_.device;
  kernels::clip_factor(device, *ctx_.compute, norm_sq_, config_.clip_grad, clip_);
  record_step_values(ctx_, clip_, {StepQuantity::kClip});
  for (Parameter& p : model_->store().all()) {
    kernels::AdamW adam{
        lr,         config_.adam_beta1, config_.adam_beta2, config_.adam_eps, p.spec.decay ? config_.weight_decay : 0,
        step_from_1};
    kernels::adamw(device, *ctx_.compute, p.value, p.grad, p.m, p.v, clip_, adam);
  }
}

bool RankJob::read_step(StepValues& out) {
  Device& device = *ctx_.device;
  const auto read = [&](const Tensor& t, const char* point) { return device.read_back(*ctx_.compute, t, point); };
  const std::vector<double> loss = read(loss_, "loss"), norm = read(norm_sq_, "gradient norm");
  const std::vector<double> totals = read(totals_, "loss totals"), divisor = read(divisor_, "loss divisor");
  if (loss.empty() || norm.empty() || totals.empty() || divisor.empty()) return false;
  out = {totals[0], divisor[0], loss[0], std::sqrt(norm[0]), int64_t(totals[1])};
  return true;
}

RankTraffic RankJob::traffic() const {
  const auto bytes = [](const std::unique_ptr<Communicator>& c) { return c ? c->traffic().bytes_sent : 0; };
  return {bytes(ctx_.tp), bytes(ctx_.cp), bytes(ctx_.dp)};
}

RankEnd RankJob::stopped() const {
  if (ctx_.seam && ctx_.seam->ended())
    return {1, "the rank's program returned 1", ctx_.seam->ended()->where, ctx_.seam->ended()->witnessed};
  return {-1, "stopped with the run", device_->where()};
}

}  // namespace ringscope
