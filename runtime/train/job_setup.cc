#include "runtime/train/job_setup.h"

#include "probes/recorder/emit.h"
#include "runtime/config/split.h"
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
  record_meta(meta_key::kWorldSize, std::to_string(job.mesh.world()));
  record_meta(meta_key::kAxisOrder, job.mesh.order());
  record_meta(meta_key::kCpLayout, name(job.config.cp_layout));
  record_meta(meta_key::kCpSize, std::to_string(job.config.cp));
  record_meta(meta_key::kSeqLength, std::to_string(job.split.length()));
  record_meta(meta_key::kPaddedLength, std::to_string(job.split.padded()));
}

}  // namespace

Result<std::unique_ptr<JobSetup>> set_up(JobConfig config) {
  auto job = std::make_unique<JobSetup>();
  if (!config.checkpoint.empty()) {
    auto checkpoint = read_checkpoint(config.checkpoint);
    if (!checkpoint) return tl::unexpected(checkpoint.error());
    const double hidden = config.model.hidden_dropout, attention = config.model.attention_dropout;
    config.model = checkpoint->model;
    config.model.hidden_dropout = hidden;
    config.model.attention_dropout = attention;
    job->weights = std::move(checkpoint->tensors);
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

RunEnd run_ranks(JobSetup& job, const std::function<RankEnd(RankJob&, int rank)>& body, const TrainHooks& hooks) {
  LaunchHooks launch;
  launch.on_stall = hooks.on_stall;
  launch.interrupted = hooks.interrupted;
  launch.stall_timeout_ns = int64_t(job.config.hang_timeout_s * 1e9);
  return launch_ranks(
      *job.sched, job.mesh, [&](int rank) { return body(*job.ranks[rank], rank); }, launch);
}

}  // namespace ringscope
