#include "runtime/train/job_setup.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "probes/recorder/emit.h"
#include "runtime/config/keys.h"
#include "runtime/config/split.h"
#include "runtime/model/names.h"
#include "tracedb/model/trace_view.h"

namespace ringscope {
namespace {

void record_meta(const char* key, const std::string& value) {
  MetaRecord record{};
  record.key = rs_intern(key);
  record.value = rs_intern(value.c_str());
  emit(RecordKind::kMeta, record);
}

void record_job(const JobSetup& job) {
  if (!rs_enabled()) return;
  record_meta(meta_key::kConfig, to_trace_json(job.config));
  record_meta(meta_key::kWorldSize, std::to_string(job.mesh.world()));
  record_meta(meta_key::kAxisOrder, job.mesh.order());
  record_meta(meta_key::kCpLayout, name(job.config.cp_layout));
  record_meta(meta_key::kCpSize, std::to_string(job.config.cp));
  record_meta(meta_key::kSeqLength, std::to_string(job.split.length()));
  record_meta(meta_key::kPaddedLength, std::to_string(job.split.padded()));
}

// The checkpoint says what the model is; dropout alone may be chosen anew.
Status check_model_keys(const JobConfig& given, const JobConfig& loaded) {
  for (const config::Key& key : config::keys()) {
    if (key.group != "Model" || !is_named(given, key.name)) continue;
    if (key.name == "checkpoint" || key.name == "hidden_dropout" || key.name == "attention_dropout") continue;
    auto said = key.get(given), is = key.get(loaded);
    if (key.name == "head_dim") {  // 0 on either side: hidden size / heads
      is = head_dim(loaded.model);
      if (said == 0) said = loaded.model.hidden_size / loaded.model.num_attention_heads;
    }
    if (said != is)
      return usage_error(fmt::format("{} {}: the checkpoint '{}' has {}; leave the key out", key.name, said.dump(),
                                     given.checkpoint, is.dump()));
  }
  return {};
}

// A dropout that nobody asked for is the checkpoint's.
Status choose_dropout(JobConfig& config, const JobConfig& given, const Checkpoint& checkpoint) {
  const auto chosen = [&](const char* key, double asked, double of_checkpoint) {
    return is_named(given, key) || asked > 0 ? asked : of_checkpoint;
  };
  ModelConfig& m = config.model;
  m.hidden_dropout = chosen("hidden_dropout", given.model.hidden_dropout, checkpoint.model.hidden_dropout);
  m.attention_dropout = chosen("attention_dropout", given.model.attention_dropout, checkpoint.model.attention_dropout);
  if (is_named(given, "hidden_dropout") || checkpoint.embedding_dropout == m.hidden_dropout) return {};
  return usage_error(
      fmt::format("the checkpoint '{}' trains with embd_pdrop {} and resid_pdrop {}, this version has one dropout for "
                  "both: choose it with --hidden-dropout",
                  given.checkpoint, checkpoint.embedding_dropout, checkpoint.model.hidden_dropout));
}

Result<HostTensors> load_checkpoint(JobConfig& config, Purpose purpose) {
  auto checkpoint = read_checkpoint(config.checkpoint);
  if (!checkpoint) return tl::unexpected(checkpoint.error());
  const JobConfig given = config;
  config.model = checkpoint->model;
  if (auto status = check_model_keys(given, config); !status) return tl::unexpected(status.error());
  if (purpose == Purpose::kTraining) {
    if (auto status = choose_dropout(config, given, *checkpoint); !status) return tl::unexpected(status.error());
  } else {
    config.model.hidden_dropout = given.model.hidden_dropout;
    config.model.attention_dropout = given.model.attention_dropout;
  }
  return std::move(checkpoint->tensors);
}

}  // namespace

Result<std::unique_ptr<JobSetup>> set_up(JobConfig config, Purpose purpose) {
  auto job = std::make_unique<JobSetup>();
  if (!config.checkpoint.empty()) {
    auto weights = load_checkpoint(config, purpose);
    if (!weights) return tl::unexpected(weights.error());
    job->weights = std::move(*weights);
  }
  if (config.model.max_position_embeddings == 0) config.model.max_position_embeddings = config.seq_length;
  if (auto status = validate(config); !status) return tl::unexpected(status.error());
  auto mesh = Mesh::make(config.tp, config.cp, config.dp, config.pp, config.order);
  if (!mesh) return tl::unexpected(mesh.error());
  auto split = sequence_split(config);
  if (!split) return tl::unexpected(split.error());
  job->config = config;
  job->mesh = *mesh;
  job->split = *split;
  job->sched = config.turns ? Sched::turns(config.turns_seed) : Sched::free_threads();
  job->world = make_comm_world(*job->sched, config.comm);
  for (int rank = 0; rank < mesh->world(); ++rank)
    job->ranks.push_back(std::make_unique<RankJob>(*job->sched, job->world, job->config, *mesh, rank, *split));
  record_job(*job);
  return job;
}

void set_adversaries(JobSetup& job) {
  for (size_t rank = 0; rank < job.ranks.size(); ++rank) {
    const RankPlan* plan = job.plan ? &job.plan->ranks[rank] : nullptr;
    job.adversaries.push_back(std::make_unique<RankAdversary>(*job.ranks[rank]->context().device, plan));
    job.ranks[rank]->set_seam(job.adversaries.back().get());
  }
}

RunEnd run_ranks(JobSetup& job, const std::function<RankEnd(RankJob&, int rank)>& body, const TrainHooks& hooks) {
  LaunchHooks launch;
  launch.on_stall = hooks.on_stall;
  launch.interrupted = hooks.interrupted;
  launch.stall_timeout_ns = int64_t(job.config.hang_timeout_s * 1e9);
  return launch_ranks(
      *job.sched, job.mesh, [&](int rank) { return body(*job.ranks[rank], rank); }, launch);
}

}  // namespace ringscope
