// Rows of one step, tensor, slice and role are copies of each other over all ranks behind the last reduction; over the
// groups that have reduced it in front of that; own gradients over TP, where a checksum says that the ranks computed
// them from the same rows. A majority of all ranks that may hold a copy tells which are odd. Values with a NaN are left
// to numeric.nonfinite.
#include "tools/analyze/numeric/replica.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

using Q = StepQuantity;

class Copies {
 public:
  Copies(const TraceIndex& index, const StepNumbers& numbers)
      : index_(index), numbers_(numbers), groups_(index), rows_(index.view.tensor_stats) {}

  std::optional<CopyBreak> first() {
    tensors();
    for (const int step : numbers_.steps()) {
      norms(step);
      number(step, Q::kClip, Axis::kUnknown, known_ranks(index_));
    }
    if (found_) found_->values = count_;
    return found_;
  }

 private:
  static std::optional<std::pair<CopyStage, Axis>> stage_of(const TensorStatRow& r) {
    switch (r.role) {
      case TensorRole::kLocalGradient:
        if (!r.checksum) return std::nullopt;  // no copies, or not known to be
        return std::pair(CopyStage::kOwnGradient, Axis::kTp);
      case TensorRole::kGradientOverTp: return std::pair(CopyStage::kOverTp, Axis::kTp);
      case TensorRole::kGradientOverCp: return std::pair(CopyStage::kOverCp, Axis::kCp);
      case TensorRole::kGradient: return std::pair(CopyStage::kReduced, Axis::kUnknown);
      case TensorRole::kParameter:
      case TensorRole::kMoments: return std::pair(CopyStage::kUpdated, Axis::kUnknown);
      default: return std::nullopt;
    }
  }

  // Rows of copies, by step, role, tensor, slice and the group that holds it (null = everybody).
  using Key = std::tuple<int, TensorRole, std::string_view, int, const std::vector<int>*>;
  void tensors() {
    std::map<Key, std::vector<size_t>> copies;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const auto stage = stage_of(rows_[i]);
      if (!stage) continue;
      const std::vector<int>* group =
          stage->second == Axis::kUnknown ? nullptr : groups_.along(rows_[i].rank, stage->second);
      if (stage->second != Axis::kUnknown && !group) continue;
      const TensorStatRow& r = rows_[i];
      copies[{r.where.step, r.role, index_.view.text(r.name), r.part, group}].push_back(i);
    }
    for (const auto& [key, rows] : copies) look(rows, std::get<4>(key));
  }

  void look(const std::vector<size_t>& rows, const std::vector<int>* group) {
    const TensorStatRow& first = rows_[rows[0]];
    std::map<uint64_t, std::vector<int>> sides;
    std::set<int> ranks;
    for (const size_t row : rows) {
      if (rows_[row].bad > 0) return;
      sides[rows_[row].checksum].push_back(rows_[row].rank);
      ranks.insert(rows_[row].rank);
    }
    if (sides.size() < 2 || ranks.size() < rows.size())
      return;  // one rank recorded it twice: which counts is not known
    ++count_;
    CopyBreak b;
    b.step = first.where.step;
    b.stage = stage_of(first)->first;
    b.where = first.where;
    b.table = "tensor_stat";
    b.rows = rows;
    b.what = std::string(name(first.role)) + " of " + std::string(index_.view.text(first.name)) +
             (first.part >= 0 ? " (slice " + std::to_string(first.part) + ")" : "");
    std::vector<std::vector<int>> of;
    for (const auto& [checksum, side] : sides) of.push_back(side);
    tell(b, of, group ? group->size() : ranks.size() + unheard(b.step), ranks.size());
    keep(std::move(b));
  }

  // Ranks in the same place of their TP groups hold the same gradients, and all ranks the same sum of squares.
  void norms(int step) {
    std::map<int, std::vector<int>> by_place;
    std::vector<int> reducing;
    const bool sliced = std::any_of(rows_.begin(), rows_.end(), [](const TensorStatRow& r) { return r.part > 0; });
    for (const int rank : known_ranks(index_)) {
      const std::vector<int>* group = groups_.along(rank, Axis::kTp);
      if (sliced && !group) return;  // who shares what is not known
      by_place[group ? int(std::find(group->begin(), group->end(), rank) - group->begin()) : 0].push_back(rank);
      if (group) reducing.push_back(rank);
    }
    for (const auto& [place, ranks] : by_place) number(step, Q::kGradNormSq, Axis::kUnknown, ranks);
    number(step, Q::kGradNormSq, Axis::kTp, reducing);
  }

  void number(int step, Q quantity, Axis axis, const std::vector<int>& all) {
    std::map<double, std::vector<int>> sides;
    CopyBreak b;
    b.step = step;
    b.stage = CopyStage::kNumbers;
    b.where.step = step;
    b.where.pass = Pass::kOptimizer;
    b.table = "step_value";
    b.what = name(quantity);
    if (axis != Axis::kUnknown) b.what += std::string(" over ") + name(axis);
    size_t heard = 0;
    for (const int rank : all) {
      const StepNumber* value = numbers_.find(step, rank, quantity, axis);
      if (!value) continue;
      if (!std::isfinite(value->value)) return;
      sides[value->value].push_back(rank);
      b.rows.push_back(value->row);
      ++heard;
    }
    if (sides.size() < 2) return;
    ++count_;
    std::vector<std::vector<int>> of;
    for (const auto& [value, side] : sides) of.push_back(side);
    tell(b, of, all.size(), heard);
    const auto odd = [&](int member) { return std::binary_search(b.odd.begin(), b.odd.end(), member); };
    // What went into a reduction is in the results of all its members: a group that is odd as a whole has one culprit.
    for (const std::vector<int>* group : groups_.all(axis))
      if (axis != Axis::kUnknown && std::count_if(group->begin(), group->end(), odd) > 1) {
        b.odd.clear();
        break;
      }
    keep(std::move(b));
  }

  // Members that the trace does not show may hold the bits of the smaller side.
  static void tell(CopyBreak& b, const std::vector<std::vector<int>>& sides, size_t members, size_t heard) {
    const auto most =
        std::max_element(sides.begin(), sides.end(), [](const auto& x, const auto& y) { return x.size() < y.size(); });
    for (const auto& side : sides) {
      b.sides += (b.sides.empty() ? "" : " | ") + ranks_text(side);
      if (&side != &*most && most->size() * 2 > members) b.odd.insert(b.odd.end(), side.begin(), side.end());
    }
    sort_unique(b.odd);
    b.most = *most;
    b.coverage = double(heard) / double(std::max(members, heard));
  }

  // Names sort alphabetically; the order of the record is that of the model. Groups that differ at the same stage of
  // the same step differ together: all their odd ranks, if each group tells its own.
  void keep(CopyBreak b) {
    const auto place = [](const CopyBreak& c) { return std::tuple(c.step, c.stage); };
    if (!found_ || place(b) < place(*found_)) {
      found_ = std::move(b);
      return;
    }
    if (place(*found_) < place(b)) return;
    if (b.stage <= CopyStage::kOverCp) {
      const bool told = !b.odd.empty() && !found_->odd.empty();
      std::vector<int> odd = b.odd;
      odd.insert(odd.end(), found_->odd.begin(), found_->odd.end());
      sort_unique(odd);
      if (order(b) < order(*found_)) found_ = std::move(b);
      found_->odd = told ? odd : std::vector<int>();
      return;
    }
    if (order(b) < order(*found_)) found_ = std::move(b);
  }
  // Within a stage: gradients before parameters before moments, then as recorded.
  std::pair<int, size_t> order(const CopyBreak& b) const {
    return {b.table == "tensor_stat" ? int(rows_[b.rows[0]].role) : 0, b.rows[0]};
  }

  // Ranks of the job without a row of the step: nobody knows what they hold.
  size_t unheard(int step) {
    if (heard_.empty()) {
      std::vector<int> all;
      size_t size = 0;  // of the largest group: it may not say who its members are
      for (const TensorStatRow& r : rows_) {
        all.push_back(r.rank);
        heard_[r.where.step].insert(r.rank);
      }
      for (const CommRow& comm : index_.view.comms) size = std::max(size, comm.ranks.size());
      for (const int rank : known_ranks(index_)) all.push_back(rank);
      sort_unique(all);
      world_ = std::max(all.size(), size);
    }
    return world_ - heard_[step].size();
  }

  const TraceIndex& index_;
  const StepNumbers& numbers_;
  const Groups groups_;
  const std::vector<TensorStatRow>& rows_;
  std::map<int, std::set<int>> heard_;  // by step
  size_t world_ = 0, count_ = 0;
  std::optional<CopyBreak> found_;
};

}  // namespace

std::optional<CopyBreak> first_copy_break(const TraceIndex& index, const StepNumbers& numbers) {
  return Copies(index, numbers).first();
}

}  // namespace ringscope
