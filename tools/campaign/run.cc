#include "tools/campaign/run.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

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
// Of every set of copies that are not all alike, those beside the largest camp are odd, when that is more than half.
void compare_copies(const JobConfig& config, const std::vector<RankValues>& values, Measured& out) {
  const auto mesh = Mesh::make(config.tp, config.cp, config.dp, config.pp, config.order);
  const auto compare = [&](const std::vector<int>& ranks, const auto& same) {
    std::vector<int> largest;
    for (const int one : ranks) {
      std::vector<int> camp;
      for (const int other : ranks)
        if (same(values[size_t(one)], values[size_t(other)])) camp.push_back(other);
      if (camp.size() > largest.size()) largest = camp;
    }
    if (largest.size() == ranks.size()) return;
    out.copies_disagree = true;
    if (2 * largest.size() <= ranks.size()) return;
    for (const int rank : ranks)
      if (std::find(largest.begin(), largest.end(), rank) == largest.end()) out.odd.push_back(rank);
  };
  std::vector<int> all;
  std::map<int, std::vector<int>> slices;
  for (int rank = 0; rank < int(values.size()); ++rank) {
    all.push_back(rank);
    slices[mesh->coord(rank).tp].push_back(rank);
  }
  compare(all, [](RankValues a, const RankValues& b) {
    a.split = b.split;
    return a == b;
  });
  for (const auto& [slice, ranks] : slices)
    compare(ranks, [](const RankValues& a, const RankValues& b) { return a.split == b.split; });
  std::sort(out.odd.begin(), out.odd.end());
  out.odd.erase(std::unique(out.odd.begin(), out.odd.end()), out.odd.end());
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
  if (keep == Keep::kStream) options.ring_bytes = 1 << 20;  // drained while it fills: large ones cost time to map
  options.threads_expected = config.world() * 5 + 2;        // host, streams, transfer workers: as `train` asks
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
  compare_copies(config, mutant.values, out);
  out.nonfinite = !all_finite(mutant.values) && all_finite(twin.values);
  return out;
}

}  // namespace ringscope::campaign
