// numeric.replica: ranks that must hold the same bits of a tensor do not. Reduced gradients and updated parameters with
// equal step, name, role and slice are replicas of each other (over CP and DP, and over TP where it splits nothing).
// The first step, and in it the first tensor in the order of the record; gradients before parameters. A majority
// of all ranks of the job that may hold the tensor accuses the odd ones; without one nobody is accused. Tensors that hold a NaN are left to numeric.nonfinite.
#include <algorithm>
#include <map>
#include <tuple>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

class Replicas {
 public:
  explicit Replicas(const TraceIndex& index) : index_(index), rows_(index.view.tensor_stats) {}

  std::vector<Finding> run() {
    std::vector<size_t> order;
    for (size_t i = 0; i < rows_.size(); ++i)
      if (rows_[i].role == TensorRole::kGradient || rows_[i].role == TensorRole::kParameter) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
    for (size_t i = 0; i < order.size();) {
      size_t end = i;
      while (end < order.size() && key(order[end]) == key(order[i])) ++end;
      look({order.begin() + long(i), order.begin() + long(end)});
      i = end;
    }
    if (differing_.empty()) return {};
    return {finding()};
  }

 private:
  std::tuple<int, TensorRole, std::string_view, int> key(size_t row) const {
    const TensorStatRow& r = rows_[row];
    return {r.where.step, r.role, index_.view.text(r.name), r.part};
  }

  // All rows of one tensor of one step: do they agree?
  void look(std::vector<size_t> rows) {
    const TensorStatRow& first = rows_[rows[0]];
    const auto other = [&](size_t row) { return rows_[row].checksum != first.checksum; };
    const auto bad = [&](size_t row) { return rows_[row].bad > 0; };
    if (rows.size() < 2) return;
    if (std::none_of(rows.begin(), rows.end(), other) || std::any_of(rows.begin(), rows.end(), bad)) return;
    std::vector<int> ranks;
    for (size_t row : rows) ranks.push_back(rows_[row].rank);
    sort_unique(ranks);
    if (ranks.size() < rows.size()) return;  // one rank recorded it twice: which of the two counts is not known
    ++count_;
    // Names sort alphabetically; the order of the record is that of the model.
    if (!differing_.empty()) {
      const TensorStatRow& held = rows_[differing_[0]];
      if (std::tuple(first.where.step, first.role, rows[0]) > std::tuple(held.where.step, held.role, differing_[0]))
        return;
    }
    differing_ = std::move(rows);
  }

  Finding finding() const {
    const TensorStatRow& shown = rows_[differing_[0]];
    std::map<uint64_t, std::vector<int>> sides;  // by checksum
    for (size_t row : differing_) sides[rows_[row].checksum].push_back(rows_[row].rank);
    const std::vector<int>* most = nullptr;
    for (const auto& [checksum, ranks] : sides)
      if (!most || ranks.size() > most->size()) most = &ranks;
    // Members that the trace does not show may hold the bits of the smaller side.
    const bool majority = most->size() * 2 > differing_.size() + unheard();

    Finding f = make_finding("numeric.replica");
    if (majority)
      for (const auto& [checksum, ranks] : sides)
        if (&ranks != most) f.ranks.insert(f.ranks.end(), ranks.begin(), ranks.end());
    sort_unique(f.ranks);
    f.where = shown.where;
    f.first_ns = index_.step_ns(shown.rank, shown.where.step);
    f.confidence = confidence({.coverage = known_ranks(),
                               .agree = double(majority ? most->size() : 1),
                               .against = majority ? 0.0 : 1.0,
                               .observations = double(count_)});
    const std::string tensor = std::string(name(shown.role)) + " of " + std::string(index_.view.text(shown.name)) +
                               (shown.part >= 0 ? " (slice " + std::to_string(shown.part) + ")" : "");
    std::string sides_text;
    for (const auto& [checksum, ranks] : sides) sides_text += (sides_text.empty() ? "" : " | ") + ranks_text(ranks);
    f.sentence = "replicas differ since the end of step " + std::to_string(shown.where.step) + ": the " + tensor +
                 (majority ? " of " + ranks_text(f.ranks) + " is not that of " + ranks_text(*most)
                           : " has different bits (" + sides_text + "); without a majority nobody is accused") +
                 " (" + std::to_string(count_) + " tensors of all steps differ)";
    for (size_t row : differing_)
      f.evidence.push_back(cite(index_.view, "tensor_stat", row,
                                "rank " + std::to_string(rows_[row].rank) + ": checksum " +
                                    std::to_string(rows_[row].checksum) + ", norm " + number_text(rows_[row].norm)));
    if (!majority)
      f.would_raise_confidence =
          "a third replica, the ranks that the trace lacks, or the parameters of a run that is known to be right";
    return f;
  }

  // Ranks of the job, and those of them that recorded tensors in the step.
  std::pair<size_t, size_t> heard() const {
    const int step = rows_[differing_[0]].where.step;
    std::vector<int> ranks, all;
    size_t size = 0;  // of the largest group: it may not say who its members are
    for (const TensorStatRow& r : rows_) {
      all.push_back(r.rank);
      if (r.where.step == step) ranks.push_back(r.rank);
    }
    for (const RankRow& r : index_.view.ranks) all.push_back(r.rank);
    for (const CommRow& comm : index_.view.comms) {
      size = std::max(size, comm.ranks.size());
      for (int rank : comm.ranks)
        if (rank >= 0) all.push_back(rank);
    }
    sort_unique(ranks);
    sort_unique(all);
    return {std::max(all.size(), size), ranks.size()};
  }
  size_t unheard() const { return heard().first - heard().second; }
  double known_ranks() const { return double(heard().second) / double(heard().first); }

  const TraceIndex& index_;
  const std::vector<TensorStatRow>& rows_;
  std::vector<size_t> differing_;
  size_t count_ = 0;
};

}  // namespace

std::vector<Finding> replica_differences(const TraceIndex& index) { return Replicas(index).run(); }

}  // namespace ringscope
