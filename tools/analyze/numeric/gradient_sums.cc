// The bound. Element e of a sum of k numbers in fp32, added one after another, is off by at most (k - 1) u sum |g_r,e|,
// u = 2^-24; factors of a projection are at most 1, so that a projection is off by at most
//   (k - 1) u sqrt(n) sum_r |g_r|_2,   n elements (Cauchy-Schwarz)
// plus what underflows, and the same norm of the result times the rounding of the projection itself. It holds for fp64 too.
#include "tools/analyze/numeric/gradient_sums.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

constexpr double kUnit = 0x1p-24, kLeast = 0x1p-149;  // of fp32
constexpr double kNamedFactor = 1e-3;                 // how far a ratio may be from a product of sizes

// A tensor of one step: name and slice.
using TensorKey = std::tuple<int, std::string_view, int>;

class Sums {
 public:
  explicit Sums(const TraceIndex& index) : index_(index), groups_(index), rows_(index.view.tensor_stats) {
    for (size_t i = 0; i < rows_.size(); ++i) {
      const TensorStatRow& r = rows_[i];
      if (!gradient(r.role) || std::isnan(r.projection)) continue;
      over_tp_ = over_tp_ || r.role == TensorRole::kGradientOverTp;
      over_cp_ = over_cp_ || r.role == TensorRole::kGradientOverCp;
      const auto [it, fresh] = at_[{r.where.step, index.view.text(r.name), r.part}].try_emplace({r.rank, r.role}, i);
      if (!fresh) it->second = SIZE_MAX;  // two of them: which counts is not known
    }
  }

  std::optional<SumBreak> first() {
    std::optional<SumBreak> found;
    for (const Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp}) {
      std::optional<SumBreak> here = first_over(axis);
      if (here && (!found || here->step < found->step)) found = here;
    }
    return found;
  }

 private:
  using Members = std::map<std::pair<int, TensorRole>, size_t>;

  static bool gradient(TensorRole role) {
    return role == TensorRole::kLocalGradient || role == TensorRole::kGradient || role == TensorRole::kGradientOverTp ||
           role == TensorRole::kGradientOverCp;
  }

  std::optional<SumBreak> first_over(Axis axis) const {
    std::optional<SumBreak> found;
    std::set<int> again;
    for (const auto& [key, members] : at_) {
      const int step = std::get<0>(key);
      std::set<const std::vector<int>*> groups;
      for (const auto& [of, row] : members)
        if (const std::vector<int>* group = groups_.along(of.first, axis)) groups.insert(group);
      for (const std::vector<int>* group : groups) {
        std::optional<SumBreak> b = look(members, *group, axis);
        if (!b) continue;
        b->step = step;
        again.insert(step);
        if (!found) found = std::move(b);
        else if (found->step == step) add(*found, *b);
      }
    }
    if (!found) return found;
    sort_unique(found->ranks);
    found->steps = again.size();
    return found;
  }

  // Which row a rank put into its reduction over the axis, and which it got out. SIZE_MAX = not recorded.
  static size_t find(const Members& members, int rank, TensorRole role) {
    const auto found = members.find({rank, role});
    return found == members.end() ? SIZE_MAX : found->second;
  }
  size_t input(const Members& members, int rank, Axis axis) const {
    size_t row = SIZE_MAX;
    if (axis == Axis::kDp) row = find(members, rank, TensorRole::kGradientOverCp);
    if (axis == Axis::kDp && row == SIZE_MAX && (over_cp_ || groups_.along(rank, Axis::kCp))) return SIZE_MAX;
    if (axis != Axis::kTp && row == SIZE_MAX) row = find(members, rank, TensorRole::kGradientOverTp);
    if (row != SIZE_MAX) return row;
    row = find(members, rank, TensorRole::kLocalGradient);
    // What TP replicates is summed over it first, unless its ranks hold copies (they have a checksum then).
    const bool summed = row != SIZE_MAX && axis != Axis::kTp && rows_[row].part < 0 && !rows_[row].checksum &&
                        (over_tp_ || groups_.along(rank, Axis::kTp));
    return summed ? SIZE_MAX : row;
  }
  size_t output(const Members& members, int rank, Axis axis) const {
    if (axis == Axis::kTp) return find(members, rank, TensorRole::kGradientOverTp);
    if (axis == Axis::kCp && (over_cp_ || groups_.along(rank, Axis::kDp)))
      return find(members, rank, TensorRole::kGradientOverCp);
    return find(members, rank, TensorRole::kGradient);
  }

  std::optional<SumBreak> look(const Members& members, const std::vector<int>& group, Axis axis) const {
    std::vector<size_t> in, out;
    double sum = 0, size = 0;
    for (const int rank : group) {
      in.push_back(input(members, rank, axis));
      out.push_back(output(members, rank, axis));
      if (in.back() == SIZE_MAX || out.back() == SIZE_MAX) return std::nullopt;
      const TensorStatRow &from = rows_[in.back()], &to = rows_[out.back()];
      if (from.bad || to.bad || !std::isfinite(from.projection + to.projection + from.norm + to.norm))
        return std::nullopt;  // left to numeric.nonfinite
      if (from.count != to.count || from.count != rows_[in[0]].count) return std::nullopt;
      sum += from.projection;
      size += from.norm;
    }
    SumBreak b;
    b.axis = axis;
    const double elements = double(rows_[in[0]].count);
    double most = 0, ratio = 0;
    bool same_ratio = true;
    for (size_t i = 0; i < group.size(); ++i) {
      const TensorStatRow &from = rows_[in[i]], &to = rows_[out[i]];
      b.alike = b.alike && to.checksum == rows_[out[0]].checksum;
      const double bound = double(group.size()) * (kUnit * std::sqrt(elements) * size + kLeast * elements) +
                           0x1p-50 * std::sqrt(elements) * (size + to.norm);
      const double off = std::fabs(to.projection - sum);
      if (off <= bound) continue;
      b.ranks.push_back(group[i]);
      ++b.tensors;
      const bool kept = from.norm == to.norm && from.projection == to.projection;
      b.left_out = b.left_out && kept;
      const double here = std::fabs(sum) > 100 * bound ? to.projection / sum : 0;
      if (b.ranks.size() > 1) same_ratio = same_ratio && std::fabs(here - ratio) <= kNamedFactor * std::fabs(ratio);
      ratio = here;
      if (off / bound <= most) continue;
      most = off / bound;
      b.value = to.projection, b.expected = sum, b.bound = bound;
      b.rows = {out[i]};
      b.rows.insert(b.rows.end(), in.begin(), in.end());
    }
    if (b.ranks.empty()) return std::nullopt;
    b.ratio = same_ratio ? ratio : 0;
    return b;
  }

  // Another group or tensor of the same step.
  static void add(SumBreak& to, const SumBreak& from) {
    to.ranks.insert(to.ranks.end(), from.ranks.begin(), from.ranks.end());
    to.left_out = to.left_out && from.left_out;
    to.alike = to.alike && from.alike;
    to.tensors += from.tensors;
    if (std::fabs(to.ratio - from.ratio) > kNamedFactor * std::fabs(to.ratio)) to.ratio = 0;
    const auto excess = [](const SumBreak& b) { return std::fabs(b.value - b.expected) / b.bound; };
    if (excess(from) <= excess(to)) return;
    to.value = from.value, to.expected = from.expected, to.bound = from.bound;
    to.rows = from.rows;
  }

  const TraceIndex& index_;
  const Groups groups_;
  const std::vector<TensorStatRow>& rows_;
  std::map<TensorKey, Members> at_;
  bool over_tp_ = false, over_cp_ = false;  // does the job have gradients that are reduced in part?
};

}  // namespace

std::optional<SumBreak> first_sum_break(const TraceIndex& index) { return Sums(index).first(); }

Finding sum_finding(const TraceIndex& index, const SumBreak& b, std::string_view id) {
  const TensorStatRow& shown = index.view.tensor_stats[b.rows[0]];
  Finding f = make_finding(id);
  f.ranks = b.ranks;
  f.where = shown.where;
  f.where.ring_step = -1;
  f.first_ns = index.step_ns(shown.rank, b.step);
  if (const std::vector<int>* group = Groups(index).along(shown.rank, b.axis)) f.group = GroupRef{name(b.axis), *group};
  f.confidence = confidence({.agree = double(b.ranks.size()), .observations = double(b.tensors)});
  const std::string axis = name(b.axis);
  const std::string factor = b.left_out ? "" : factor_text(index, b.ratio, kNamedFactor, b.axis);
  f.sentence = ranks_text(b.ranks) + " from step " + std::to_string(b.step) + " on: ";
  if (b.left_out) f.sentence += "kept their own gradients where " + axis + " should have summed them";
  else if (!factor.empty()) f.sentence += "hold gradients that are the sum over " + axis + " times " + factor;
  else f.sentence += "hold gradients that are not the sum over " + axis + " of what its members put in";
  f.sentence += " (" + std::string(index.view.text(shown.name)) + " on rank " + std::to_string(shown.rank) +
                ": projection " + number_text(b.value) + ", the sum is " + number_text(b.expected) + " to " +
                number_text(b.bound) + "; " + std::to_string(b.tensors) + " tensors show it";
  const std::string calls = calls_text(index, shown.rank, b.axis, shown.where, "grad.");
  f.sentence += calls.empty() ? ")" : "; " + calls + ")";
  for (size_t i = 0; i < std::min<size_t>(b.rows.size(), 9); ++i) {
    const TensorStatRow& r = index.view.tensor_stats[b.rows[i]];
    f.evidence.push_back(cite(index.view, "tensor_stat", b.rows[i],
                              "rank " + std::to_string(r.rank) + ": " + name(r.role) + ", projection " +
                                  number_text(r.projection) + ", norm " + number_text(r.norm)));
  }
  for (const size_t row : calls_at(index, shown.rank, b.axis, shown.where, "grad."))
    f.evidence.push_back(cite(index.view, "coll", row, "the call of rank " + std::to_string(shown.rank)));
  f.would_raise_confidence = "a record of something else that changes these gradients between the two statistics";
  return f;
}

}  // namespace ringscope
