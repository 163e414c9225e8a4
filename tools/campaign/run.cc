#include "tools/campaign/run.h"

#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "probes/recorder/recorder.h"
#include "tracedb/import/registry.h"

namespace ringscope::campaign {
namespace {

namespace fs = std::filesystem;

// A spool of its own, gone with the object.
class SpoolFolder {
 public:
  SpoolFolder() {
    static int counter = 0;
    top_ = fs::temp_directory_path() /
           ("ringscope-campaign-" + std::to_string(getpid()) + "-" + std::to_string(counter++));
    fs::create_directories(top_);
  }
  ~SpoolFolder() {
    std::error_code ignored;
    fs::remove_all(top_, ignored);
  }
  SpoolFolder(const SpoolFolder&) = delete;
  std::string path() const { return (top_ / "run.spool").string(); }

 private:
  fs::path top_;
};

bool finite(const std::vector<double>& values) {
  for (const double value : values)
    if (!std::isfinite(value)) return false;
  return true;
}

bool all_finite(const std::vector<RankValues>& values) {
  for (const RankValues& of_rank : values)
    if (!finite(of_rank.losses) || !finite(of_rank.grad_norms)) return false;
  return true;
}

// Loss, gradient norm and replicated parameters are every rank's; a TP slice is that of all ranks with its coordinate.
bool copies_disagree(const JobConfig& config, const std::vector<RankValues>& values) {
  const auto mesh = Mesh::make(config.tp, config.cp, config.dp, config.pp, config.order);
  for (size_t rank = 1; rank < values.size(); ++rank) {
    const RankValues& first_slice = values[size_t(mesh->rank({mesh->coord(int(rank)).tp, 0, 0, 0}))];
    RankValues expected = values[0];
    expected.split = first_slice.split;
    if (!(values[rank] == expected)) return true;
  }
  return false;
}

bool ends_a_rank(MutationOp op) { return op == MutationOp::kExit || op == MutationOp::kKill; }

}  // namespace

Result<Run> record(const JobConfig& config, Keep keep, const Diagnose& diagnose,
                   const std::function<bool()>& interrupted) {
  const SpoolFolder folder;
  const std::string spool = folder.path();
  rs_options options{};
  options.spool_dir = spool.c_str();
  options.mode = keep == Keep::kStream ? RS_MODE_STREAM : RS_MODE_FLIGHT;
  options.threads_expected = config.world() * 5 + 2;  // host, streams, transfer workers: as `train` asks
  if (rs_open(&options) != 0) return data_error(std::string("cannot record: ") + rs_last_error());
  TrainHooks hooks;
  hooks.interrupted = interrupted;
  TrainOptions train_options;
  train_options.keep_values = true;
  auto result = train(config, hooks, train_options);
  rs_close();
  if (!result) return tl::unexpected(result.error());
  Run run;
  run.end = result->end;
  run.values = std::move(result->values);
  if (run.end == RunEnd::kStopped) return run;
  auto view = load_paths({spool});
  if (!view) return tl::unexpected(view.error());
  run.view = std::move(*view);
  run.report = diagnose(run.view);
  return run;
}

Measured measure(const Mutation& mutation, const JobConfig& config, const Run& mutant, const Run& twin) {
  Measured out;
  if (mutant.end == RunEnd::kStalled) {
    out.effect = Effect::kHang;
    return out;
  }
  if (ends_a_rank(mutation.op)) {
    out.effect = Effect::kExit;
    return out;
  }
  if (mutant.values == twin.values) return out;
  out.effect = Effect::kCorrupt;
  out.copies_disagree = copies_disagree(config, mutant.values);
  out.nonfinite = !all_finite(mutant.values) && all_finite(twin.values);
  return out;
}

}  // namespace ringscope::campaign
