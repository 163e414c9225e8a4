#include "runtime/train/train.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numbers>

#include "probes/nvtx/emit.h"
#include "probes/recorder/emit.h"
#include "runtime/config/fault_mutations.h"
#include "runtime/train/job_setup.h"
#include "runtime/train/step_values.h"
#include "runtime/train/tensor_stats.h"
#include "runtime/train/text_data.h"

namespace ringscope {
namespace {

// Linear warm-up to lr over `warmup` steps, then half a cosine down to min_lr at the last step.
double learning_rate(const JobConfig& c, int step) {
  if (step < c.lr_warmup_iters) return c.lr * (step + 1) / c.lr_warmup_iters;
  const int decay_steps = c.train_iters - c.lr_warmup_iters;
  if (decay_steps <= 0) return c.lr;
  const double t = double(step - (c.lr_warmup_iters - 1)) / decay_steps;
  return c.min_lr + (c.lr - c.min_lr) * (1 + std::cos(std::numbers::pi * t)) / 2;
}

// One rank's training loop.
class Trainer {
 public:
  Trainer(const JobSetup& setup, const TextData& data, RankJob& job, std::vector<std::atomic<int64_t>>& peaks,
          const TrainOptions& options, AttentionCall& call, RankValues& values)
      : setup_(setup), config_(setup.config), data_(data), job_(job), ctx_(job.context()), tensor_stats_(ctx_),
        call_(call), values_(values), peaks_(peaks) {
    if (options.dump_attention) capture_.emplace(ctx_, *options.dump_attention);
  }

  RankEnd run(int steps, const TrainHooks& hooks, std::vector<StepReport>& reports) {
    if (!job_.start(setup_.start_weights())) return job_.stopped();
    ctx_.attention_watch = capture_ ? &*capture_ : nullptr;
    tensor_stats_.start(job_.model().store());
    for (int step = 0; step < steps; ++step) {
      ScopedWhere place(*ctx_.device, [&](Where& w) { w.step = step; });
      const nvtx::Range range("train.step", ctx_.device->where());
      train_step(step);
      StepReport report;
      if (!finish_step(step, report)) return job_.stopped();
      values_.losses.push_back(report.loss);
      values_.grad_norms.push_back(report.grad_norm);
      if (ctx_.device->rank() == 0) {
        reports.push_back(report);
        if (hooks.on_progress) hooks.on_progress(report);
      }
    }
    return {0, "completed", ctx_.device->where()};
  }

 private:
  int microbatches() const { return config_.global_batch_size / (config_.micro_batch_size * config_.dp); }

  // Sample i of the step belongs to microbatch i / (micro*dp), then to the DP ranks in turn.
  std::vector<Sequence> sequences(int step, int microbatch) const {
    std::vector<Sequence> out;
    for (int i = 0; i < config_.micro_batch_size; ++i) {
      const int index = (microbatch * config_.dp + ctx_.coord.dp) * config_.micro_batch_size + i;
      TextData::Sample sample = data_.sample(int64_t(step) * config_.global_batch_size + index, config_.seq_length);
      if (!config_.labels_kept.empty()) {
        const int keep = config_.labels_kept[(index + step) % config_.labels_kept.size()];
        for (size_t t = std::max(keep, 0); t < sample.labels.size(); ++t) sample.labels[t] = kNoLabel;
      }
      out.push_back({std::move(sample.tokens), std::move(sample.labels), plain_sequence(setup_.split), index});
    }
    return out;
  }

  void train_step(int step) {
    started_ns_ = ctx_.device->sched().now();
    job_.clear();
    std::vector<std::vector<Sequence>> all;
    int64_t own_count = 0;
    for (int mb = 0; mb < microbatches(); ++mb) {
      all.push_back(sequences(step, mb));
      own_count += job_.loader().counted(all.back());
    }
    job_.set_divisor(own_count);
    for (int mb = 0; mb < microbatches(); ++mb) {
      ScopedWhere place(*ctx_.device, [&](Where& w) { w.microbatch = int16_t(mb); });
      ModelBatch batch = job_.loader().load(all[mb]);
      batch.divisor = job_.divisor();
      ModelSaved saved;
      job_.model().forward(batch, job_.totals(), saved);
      record_step_values(ctx_, job_.totals(), {StepQuantity::kLossSum, StepQuantity::kCounted});
      job_.model().backward(batch, saved);
    }
    tensor_stats_.take_local(job_.model().store());
    job_.sync_gradients(&tensor_stats_);
    job_.sync_loss();
    job_.optimizer_step(step + 1, learning_rate(config_, step));
    tensor_stats_.take(job_.model().store());
  }

  // Read-back points and records at the end of a step.
  bool finish_step(int step, StepReport& report) {
    RankJob::StepValues values;
    if (!job_.read_step(values)) return false;
    if (capture_ && !capture_->read_back(config_.micro_batch_size, call_)) return false;
    const double seconds = double(ctx_.device->sched().now() - started_ns_) * 1e-9;
    const int64_t tokens = int64_t(config_.global_batch_size) * config_.seq_length;
    const int64_t peak = ctx_.device->memory_total().peak;
    peaks_[ctx_.device->rank()].store(peak, std::memory_order_relaxed);
    record_step(values, seconds, tokens, learning_rate(config_, step), peak);
    report.step = step;
    report.loss = values.loss;
    report.grad_norm = values.grad_norm;
    report.lr = learning_rate(config_, step);
    report.tokens_per_s = seconds > 0 ? double(tokens) / seconds : 0;
    report.valid_tokens = int64_t(values.divisor);
    for (auto& other : peaks_) report.peak_bytes = std::max(report.peak_bytes, other.load(std::memory_order_relaxed));
    return true;
  }

  void record_step(const RankJob::StepValues& v, double seconds, int64_t tokens, double lr, int64_t peak) {
    if (!rs_enabled()) return;
    TrainStepRecord record{};
    record.where = ctx_.device->where().pack();
    record.loss_sum = v.loss_sum;
    record.valid_tokens = uint64_t(v.valid_tokens);
    record.divisor = v.divisor;
    record.loss = v.loss;
    record.tokens = uint64_t(tokens);
    record.seconds = seconds;
    record.grad_norm = v.grad_norm;
    record.lr = lr;
    record.peak_bytes = uint64_t(peak);
    emit(RecordKind::kTrainStep, record);
    for (int c = 0; c < int(MemCategory::kCount); ++c) {
      const MemoryCounter& counter = ctx_.device->memory(MemCategory(c));
      if (counter.peak == 0) continue;
      MemorySampleRecord sample{};
      sample.where = record.where;
      sample.category = uint32_t(c);
      sample.bytes = uint64_t(counter.live);
      sample.peak_bytes = uint64_t(counter.peak);
      emit(RecordKind::kMemorySample, sample);
    }
  }

  const JobSetup& setup_;
  const JobConfig& config_;
  const TextData& data_;
  RankJob& job_;
  RankContext& ctx_;
  TensorStats tensor_stats_;
  AttentionCall& call_;
  RankValues& values_;
  std::optional<AttentionCapture> capture_;
  std::vector<std::atomic<int64_t>>& peaks_;
  int64_t started_ns_ = 0;
};

}  // namespace

namespace {

// Nothing of what happens while one lives is recorded.
class RecorderPause {
 public:
  RecorderPause() { rs_pause(); }
  ~RecorderPause() { rs_resume(); }
  RecorderPause(const RecorderPause&) = delete;
};

// The sites of the first `steps` steps.
Result<SiteTable> list_sites(JobConfig config, int steps, const TrainHooks& hooks) {
  const RecorderPause pause;
  config.turns = false;
  config.comm.link = {};
  auto setup = set_up(config, Purpose::kTraining);
  if (!setup) return tl::unexpected(setup.error());
  JobSetup& job = **setup;
  auto data = TextData::open(config.data, config.seq_length);
  if (!data) return tl::unexpected(data.error());
  set_adversaries(job);
  std::vector<std::atomic<int64_t>> peaks(size_t(job.mesh.world()));
  std::vector<StepReport> reports;
  TrainHooks quiet;
  quiet.interrupted = hooks.interrupted;
  const RunEnd end = run_ranks(
      job,
      [&](RankJob& rank_job, int) {
        AttentionCall call;
        RankValues values;
        return Trainer(job, *data, rank_job, peaks, {}, call, values).run(steps, quiet, reports);
      },
      quiet);
  if (end == RunEnd::kStalled) return internal_error("the run that lists sites stalled");
  SiteTable sites;
  for (auto& adversary : job.adversaries) sites.push_back(adversary->take_sites());
  return sites;
}

// How far a run must be looked at for all that is planted in it.
int steps_to_list(const JobConfig& config) {
  if (config.fault.id != FaultId::kNone) return config.train_iters;
  int last = 0;
  for (const Mutation& mutation : config.mutations)
    last = std::max(last, mutation.site.step_to < 0 ? config.train_iters - 1 : mutation.site.step_to);
  return std::min(last + 1, config.train_iters);
}

// Null = nothing is planted.
Result<std::unique_ptr<MutationPlan>> plan_of(const JobSetup& job, const JobConfig& given, const TrainHooks& hooks) {
  if (given.fault.id == FaultId::kNone && given.mutations.empty()) return nullptr;
  if (hooks.on_listing) hooks.on_listing(true);
  auto sites = list_sites(given, steps_to_list(given), hooks);
  if (hooks.on_listing) hooks.on_listing(false);
  if (!sites) return tl::unexpected(sites.error());
  if (hooks.interrupted && hooks.interrupted()) return nullptr;  // the run stops before it begins
  std::vector<Mutation> mutations = fault_mutations(job.config, *sites);
  mutations.insert(mutations.end(), given.mutations.begin(), given.mutations.end());
  return plan_mutations(std::move(mutations), *sites, {job.mesh, job.split});
}

}  // namespace

Result<SiteTable> list_sites(const JobConfig& config) { return list_sites(config, config.train_iters, {}); }

Result<TrainResult> train(const JobConfig& config, const TrainHooks& hooks, const TrainOptions& options) {
  auto setup = set_up(config, Purpose::kTraining);
  if (!setup) return tl::unexpected(setup.error());
  JobSetup& job = **setup;
  if (job.config.model.vocab_size <= kPaddingToken)
    return usage_error("vocab_size " + std::to_string(job.config.model.vocab_size) +
                       " is too small to train on bytes: use " + std::to_string(kPaddingToken + 1) +
                       " or more (256 bytes and the padding id)");
  if (options.dump_attention)
    if (auto ok = check(*options.dump_attention, job.config); !ok) return tl::unexpected(ok.error());
  auto data = TextData::open(config.data, config.seq_length);
  if (!data) return tl::unexpected(data.error());

  auto plan = plan_of(job, config, hooks);
  if (!plan) return tl::unexpected(plan.error());
  job.plan = std::move(*plan);
  if (job.plan) set_adversaries(job);

  TrainResult result;
  std::vector<std::atomic<int64_t>> peaks(job.mesh.world());
  std::vector<std::vector<ParameterStore::Fragment>> fragments(job.mesh.world());
  std::vector<AttentionCall> calls(job.mesh.world());
  std::vector<RankValues> values(job.mesh.world());
  result.end = run_ranks(
      job,
      [&](RankJob& rank_job, int rank) {
        const RankEnd end = Trainer(job, *data, rank_job, peaks, options, calls[rank], values[rank])
                                .run(job.config.train_iters, hooks, result.steps);
        const Coord c = rank_job.context().coord;
        if (end.status == 0 && options.keep_parameters && c.cp == 0 && c.dp == 0 &&
            !rank_job.model().store().export_fragments(&Parameter::value, fragments[rank]))
          return rank_job.stopped();
        return end;
      },
      hooks);
  for (auto& rank_job : job.ranks) {
    result.traffic.push_back(rank_job->traffic());
    Device& device = *rank_job->context().device;
    result.kv_peak_bytes.push_back(device.memory(MemCategory::kKvRing).peak +
                                   device.memory(MemCategory::kKvGathered).peak);
  }
  if (std::none_of(calls.begin(), calls.end(), [](const AttentionCall& call) { return call.q.empty(); }))
    result.attention = std::move(calls);
  if (options.keep_values && result.end == RunEnd::kCompleted) {
    for (size_t rank = 0; rank < values.size(); ++rank)  // a rank that left the job has no parameters to compare
      if (int(values[rank].losses.size()) == config.train_iters)
        hash_parameters(job.ranks[rank]->model().store(), values[rank]);
    result.values = std::move(values);
  }
  for (const auto& of_rank : fragments)
    for (const auto& fragment : of_rank) merge_fragment(fragment, result.final_parameters);
  return result;
}

}  // namespace ringscope
