#include "runtime/config/fault_mutations.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringscope {
namespace {

class Planter {
 public:
  Planter(const JobConfig& config, const SiteTable& sites) : config_(config), plan_(config.fault), sites_(sites) {}

  std::vector<Mutation> mutations() {
    switch (plan_.id) {
      case FaultId::kNone: break;
      case FaultId::kRingEarlyExit: leave_ring_early(); break;
      case FaultId::kCrossGroupOrder:
      case FaultId::kCrossGroupOrderOne: exchange_groups(); break;
      case FaultId::kOpMismatch: plant("func=broadcast", weight_call(), at_step()); break;
      case FaultId::kSkipAllReduce: plant("drop", weight_call(), at_step()); break;
      case FaultId::kRankExit: plant("exit", "*", at_step() + ",pass=forward"); break;
      case FaultId::kRingBufferReuse: plant("drop", "ring.compute_done", from_step() + ",kind=wait"); break;
      case FaultId::kRingUseBeforeArrival: plant("drop", "ring.recv_done", from_step() + ",kind=wait"); break;
      case FaultId::kNoGlobalMax: plant("drop", "softmax.max_ar", from_step()); break;
      case FaultId::kNoGlobalSum: plant("drop", "softmax.sum_ar", from_step()); break;
      case FaultId::kSumForMax: plant("redop=sum", "softmax.max_ar", from_step()); break;
      case FaultId::kLastPartWins: plant("input", "lse_merge", from_step()); break;
      case FaultId::kPositionRestart: plant("restart", "batch.position", from_step()); break;
      case FaultId::kZigzagOnContiguous: plant("layout=zigzag", "batch.position", from_step()); break;
      case FaultId::kPerRankMean: average_per_rank(); break;
    }
    return std::move(mutations_);
  }

 private:
  void plant(const std::string& op, const std::string& name, const std::string& keys) {
    mutations_.push_back(*parse_mutation(fmt::format("{}@{}:{}", op, name, keys)));
  }

  // The keys that narrow the fault: rank and layer where it sits in one, or where they were written.
  std::string narrowed() const {
    const std::string_view keys = find_fault_row().keys;
    const bool one_place = sits_in_one_place(plan_.id);
    std::string text;
    if (keys.find("rank") != std::string_view::npos && (one_place || plan_.rank_given))
      text += fmt::format(",rank={}", plan_.rank);
    if (keys.find("layer") != std::string_view::npos && (one_place || plan_.layer_given))
      text += fmt::format(",layer={}", plan_.layer);
    if (plan_.ring_step >= 0) text += fmt::format(",ring_step={}", plan_.ring_step);
    return text;
  }
  std::string at_step() const { return fmt::format("step={}", plan_.step) + narrowed(); }
  std::string from_step() const { return fmt::format("step={}-", plan_.step) + narrowed(); }
  const FaultRow& find_fault_row() const {
    const auto rows = fault_rows();
    return *std::find_if(rows.begin(), rows.end(), [&](const FaultRow& r) { return r.id == plan_.id; });
  }

  // The reduction of a layer's weight gradients: over CP, or over DP where there is no CP.
  std::string weight_call() const { return config_.cp > 1 ? "grad.weight_cp" : "grad.weight_dp"; }

  // Hop N-2 is never issued, the block that it would have brought never used.
  void leave_ring_early() {
    const std::string hop = fmt::format("{},pass=forward,ring_step={}", at_step(), config_.cp - 2);
    for (const char* transfer : {"ring.kv_recv", "ring.kv_send", "ring.recv_done"}) plant("drop", transfer, hop);
    plant("drop", "*", fmt::format("{},pass=forward,ring_step={},kind=kernel", at_step(), config_.cp - 1));
  }

  // The last norm reduction over TP changes places with the first weight reduction over CP, which stands behind it.
  void exchange_groups() {
    const Mesh mesh = *Mesh::make(config_.tp, config_.cp, config_.dp, config_.pp, config_.order);
    for (const auto& of_rank : sites_) {
      if (of_rank.empty()) continue;
      const int rank = of_rank[0].rank;
      const Coord at = mesh.coord(rank);
      if (plan_.id == FaultId::kCrossGroupOrder ? at.tp != at.cp : rank != plan_.rank) continue;
      const auto calls = std::count_if(of_rank.begin(), of_rank.end(), [&](const Site& site) {
        return site.kind == SiteKind::kCall && site.where.step == plan_.step &&
               std::string_view(site.name) == "grad.norm_tp";
      });
      plant("swap", "grad.norm_tp", fmt::format("rank={},step={},n={}", rank, plan_.step, calls - 1));
    }
  }

  // Every rank divides by its own count, and the means are averaged.
  void average_per_rank() {
    for (const char* count : {"loss.count_cp", "loss.count_dp"})
      if ((config_.cp > 1 && count == std::string_view("loss.count_cp")) ||
          (config_.dp > 1 && count == std::string_view("loss.count_dp")))
        plant("drop", count, from_step());
    const double share = 1.0 / (config_.cp * config_.dp);
    for (const char* kernel : {"loss.share", "loss.backward"})
      plant(fmt::format("scale={}", share), kernel, from_step());
  }

  const JobConfig& config_;
  const FaultPlan& plan_;
  const SiteTable& sites_;
  std::vector<Mutation> mutations_;
};

}  // namespace

std::vector<Mutation> fault_mutations(const JobConfig& config, const SiteTable& sites) {
  return Planter(config, sites).mutations();
}

}  // namespace ringscope
