#include <algorithm>

#include "runtime/train/job_setup.h"
#include "runtime/train/text_data.h"
#include "runtime/train/train.h"

namespace ringscope {
namespace {

std::string place(const EvalInput& in, size_t i) {
  return "[" + std::to_string(i / size_t(in.length)) + "," + std::to_string(i % size_t(in.length)) + "]";
}

Status check_token(const EvalInput& in, const ModelConfig& model, size_t i) {
  if (in.input_ids[i] < 0 || in.input_ids[i] >= model.vocab_size)
    return data_error("input_ids" + place(in, i) + " is " + std::to_string(in.input_ids[i]) + ", the vocabulary has " +
                      std::to_string(model.vocab_size));
  const int64_t label = in.labels.empty() ? -100 : in.labels[i];
  if (label != -100 && (label < 0 || label >= model.vocab_size))
    return data_error("labels" + place(in, i) + " is " + std::to_string(label) + ", the vocabulary has " +
                      std::to_string(model.vocab_size) + "; use -100 for none");
  const int64_t column = int64_t(i) % in.length;
  if (label != -100 && !in.valid_lengths.empty() && column >= in.valid_lengths[i / size_t(in.length)])
    return data_error("labels" + place(in, i) + " counts a token that valid_lengths calls padding: use -100 there");
  const int64_t position = in.position_ids.empty() ? column : in.position_ids[i];
  if (position < 0)
    return data_error("position_ids" + place(in, i) + " is " + std::to_string(position) + ": use 0 or more");
  if (model.arch == Arch::kGpt && position >= model.max_position_embeddings)
    return data_error("position" + place(in, i) + " is " + std::to_string(position) + ", the model has " +
                      std::to_string(model.max_position_embeddings) + " learned positions");
  // Some frameworks read a restart as a new document, whose tokens do not see those before; others do not.
  if (!in.position_ids.empty() && in.document_ids.empty() && column > 0 && position <= in.position_ids[i - 1])
    return data_error("position_ids" + place(in, i) + " is " + std::to_string(position) + " after " +
                      std::to_string(in.position_ids[i - 1]) +
                      ": give document_ids as well, which say whether the tokens see each other across it");
  return {};
}

Status check_input(const EvalInput& in, const ModelConfig& model) {
  const size_t count = size_t(in.batch * in.length);
  if (in.batch < 1 || in.length < 1 || in.input_ids.size() != count)
    return data_error("input_ids must be a non-empty [batch, length] tensor");
  const auto same = [&](const std::vector<int64_t>& v) { return v.empty() || v.size() == count; };
  if (!same(in.labels) || !same(in.position_ids) || !same(in.document_ids))
    return data_error("labels, position_ids and document_ids must have the shape of input_ids");
  if (!in.valid_lengths.empty() && in.valid_lengths.size() != size_t(in.batch))
    return data_error("valid_lengths must have one entry a sample");
  for (size_t sample = 0; sample < in.valid_lengths.size(); ++sample)
    if (in.valid_lengths[sample] < 0 || in.valid_lengths[sample] > in.length)
      return data_error("valid_lengths[" + std::to_string(sample) + "] is " + std::to_string(in.valid_lengths[sample]) +
                        ": use 0 to " + std::to_string(in.length));
  for (size_t i = 0; i < count; ++i)
    if (auto status = check_token(in, model, i); !status) return status;
  return {};
}

// seq_length and the batch sizes are those of the file; who writes them has to say the same.
Status check_sizes(const JobConfig& given, const JobConfig& config) {
  const struct {
    const char* key;
    int said, is;
  } sizes[] = {{"seq_length", given.seq_length, config.seq_length},
               {"micro_batch_size", given.micro_batch_size, config.micro_batch_size},
               {"global_batch_size", given.global_batch_size, config.global_batch_size}};
  for (const auto& s : sizes)
    if (is_named(given, s.key) && s.said != s.is)
      return usage_error(std::string(s.key) + " " + std::to_string(s.said) + ": the tokens make it " +
                         std::to_string(s.is) + "; leave the key out");
  return {};
}

// The samples of one DP rank; missing ones are idle (padding only).
Result<std::vector<Sequence>> samples_of(const EvalInput& in, const SequenceSplit& split, int dp_rank, int dp) {
  const int64_t per_rank = (in.batch + dp - 1) / dp;
  std::vector<Sequence> out;
  for (int64_t i = 0; i < per_rank; ++i) {
    const int64_t sample = dp_rank * per_rank + i;
    Sequence s;
    s.sample = int32_t(sample);
    if (sample >= in.batch) {
      s.info = plain_sequence(split);
      std::fill(s.info.document.begin(), s.info.document.end(), -1);
      out.push_back(std::move(s));
      continue;
    }
    const auto slice = [&](const std::vector<int64_t>& v) {
      return v.empty() ? std::vector<int64_t>()
                       : std::vector<int64_t>(v.begin() + sample * in.length, v.begin() + (sample + 1) * in.length);
    };
    for (int64_t id : slice(in.input_ids)) s.tokens.push_back(int32_t(id));
    for (int64_t label : slice(in.labels)) s.labels.push_back(label == -100 ? kNoLabel : int32_t(label));
    auto info = explicit_sequence(split, slice(in.position_ids), slice(in.document_ids));
    if (!info) return tl::unexpected(info.error());
    s.info = std::move(*info);
    out.push_back(std::move(s));
  }
  return out;
}

struct RankOutput {
  std::vector<double> logits;  // [T, vocab/TP]
  int64_t columns = 0, first_column = 0, valid_columns = 0;
  std::vector<ParameterStore::Fragment> grads;
  RankJob::StepValues values;
  RankTraffic forward_traffic;
};

RankEnd run_rank(RankJob& job, const JobSetup& setup, const EvalInput& in, const std::vector<Sequence>& sequences,
                 RankOutput& out) {
  if (!job.start(setup.start_weights())) return job.stopped();
  RankContext& ctx = job.context();
  ScopedWhere place(*ctx.device, [](Where& w) { w.step = 0, w.microbatch = 0; });
  job.clear();
  job.set_divisor(job.loader().counted(sequences));
  ModelBatch batch = job.loader().load(sequences);
  batch.divisor = job.divisor();
  if (!ctx.device->synchronize(*ctx.compute)) return job.stopped();
  const RankTraffic before = job.traffic();
  ModelSaved saved;
  job.model().forward(batch, job.totals(), saved);
  out.logits = ctx.device->read_back(*ctx.compute, saved.head.logits, "logits");
  if (out.logits.empty()) return job.stopped();
  const RankTraffic after = job.traffic();
  out.forward_traffic = {after.tp - before.tp, after.cp - before.cp, after.dp - before.dp};
  out.columns = saved.head.logits.dim(1);
  out.first_column = ctx.coord.tp * out.columns;
  out.valid_columns = std::clamp<int64_t>(setup.config.model.vocab_size - out.first_column, 0, out.columns);
  if (in.gradients) {
    job.model().backward(batch, saved);
    job.sync_gradients();
  }
  job.sync_loss();
  if (!job.read_step(out.values) || !ctx.softmax_log->flush(*ctx.compute) ||
      !job.loader().record_applied(batch, sequences))
    return job.stopped();
  if (in.gradients && ctx.coord.cp == 0 && ctx.coord.dp == 0 &&
      !job.model().store().export_fragments(&Parameter::grad, out.grads))
    return job.stopped();
  return {0, "completed", ctx.device->where()};
}

void merge_logits(const RankOutput& rank, const JobSetup& setup, const Coord& coord, int64_t per_rank,
                  HostTensor& full) {
  const std::vector<int32_t> rows = setup.split.rows(coord.cp);
  const int64_t batch = full.shape[0], length = full.shape[1], vocab = full.shape[2];
  for (int64_t b = 0; b < per_rank; ++b)
    for (size_t i = 0; i < rows.size(); ++i) {
      const int64_t sample = coord.dp * per_rank + b;
      if (sample >= batch || rows[i] >= length) continue;
      const double* from = &rank.logits[(b * rows.size() + i) * rank.columns];
      std::copy_n(from, rank.valid_columns, &full.values[(sample * length + rows[i]) * vocab + rank.first_column]);
    }
}

}  // namespace

Result<EvalResult> evaluate(const JobConfig& given, const EvalInput& in, const TrainHooks& hooks) {
  JobConfig config = given;
  if (in.length > INT32_MAX || in.batch > INT32_MAX) return data_error("input_ids is too large");
  config.seq_length = int(in.length);
  // An evaluation has one microbatch: the batch of the file, whatever the training batch keys say.
  config.micro_batch_size = int((in.batch + config.dp - 1) / config.dp);
  config.global_batch_size = config.micro_batch_size * config.dp;
  if (auto status = check_sizes(given, config); !status) return tl::unexpected(status.error());
  auto setup = set_up(config, Purpose::kEvaluation);
  if (!setup) return tl::unexpected(setup.error());
  JobSetup& job = **setup;
  if (auto status = check_input(in, job.config.model); !status) return tl::unexpected(status.error());
  std::vector<std::vector<Sequence>> sequences;
  for (int dp = 0; dp < job.config.dp; ++dp) {
    auto samples = samples_of(in, job.split, dp, job.config.dp);
    if (!samples) return tl::unexpected(samples.error());
    sequences.push_back(std::move(*samples));
  }

  std::vector<RankOutput> outputs(job.mesh.world());
  EvalResult result;
  result.non_finite_weights = non_finite_tensors(job.weights, job.config.dtype);
  result.end = run_ranks(
      job,
      [&](RankJob& rank_job, int rank) {
        return run_rank(rank_job, job, in, sequences[job.mesh.coord(rank).dp], outputs[rank]);
      },
      hooks);
  if (result.end != RunEnd::kCompleted) return result;

  const int64_t vocab = job.config.model.vocab_size;
  HostTensor& logits = result.tensors["logits"];
  logits = {{in.batch, in.length, vocab}, std::vector<double>(in.batch * in.length * vocab, 0.0)};
  for (int rank = 0; rank < job.mesh.world(); ++rank) {
    merge_logits(outputs[rank], job, job.mesh.coord(rank), job.config.micro_batch_size, logits);
    for (auto& fragment : outputs[rank].grads) {
      fragment.piece.name = "grad." + fragment.piece.name;
      merge_fragment(fragment, result.tensors);
    }
    result.traffic_forward.push_back(outputs[rank].forward_traffic);
    result.traffic.push_back(job.ranks[rank]->traffic());
    Device& device = *job.ranks[rank]->context().device;
    result.kv_peak_bytes.push_back(device.memory(MemCategory::kKvRing).peak +
                                   device.memory(MemCategory::kKvGathered).peak);
  }
  if (!in.labels.empty()) result.tensors["loss"] = {{}, {outputs[0].values.loss}};
  if (in.gradients) result.tensors["grad_norm"] = {{}, {outputs[0].values.grad_norm}};
  result.non_finite_out = non_finite_tensors(result.tensors, job.config.dtype);
  return result;
}

}  // namespace ringscope
