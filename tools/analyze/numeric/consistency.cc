// numeric.replica, numeric.unexplained, loss.grad_scale and loss.unexplained of gradients: from a rank's own gradients to
// its updated parameters, what each stage of a step makes of the one before.
//
// Copies, sums and formulas are looked at apart; the first of them that breaks, in the order in which a step computes,
// is where it began, and the others follow. Copies tell that somebody is wrong, and a majority who. A sum or a formula
// tells who is wrong without one: its ranks are the ones whose result does not follow from what went in.
#include <algorithm>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/gradient_sums.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/numeric/replica.h"
#include "tools/analyze/numeric/update.h"

namespace ringscope {
namespace {

// Stages of copies are even, what is in front of each is odd.
std::pair<int, int> place(const CopyBreak& b) { return {b.step, 2 * int(b.stage)}; }
std::pair<int, int> place(const SumBreak& b) {
  const CopyStage behind = b.axis == Axis::kTp   ? CopyStage::kOverTp
                           : b.axis == Axis::kCp ? CopyStage::kOverCp
                                                 : CopyStage::kReduced;
  return {b.step, 2 * int(behind) - 1};
}
std::pair<int, int> place(const UpdateBreak& b) {
  return {b.step, 2 * int(b.stage == UpdateBreak::kUpdate ? CopyStage::kUpdated : CopyStage::kNumbers) - 1};
}

Finding copy_finding(const TraceIndex& index, const CopyBreak& b) {
  Finding f = make_finding("numeric.replica");
  f.ranks = b.odd;
  f.where = b.where;
  f.first_ns = index.step_ns(b.most[0], b.step);
  const bool majority = !b.odd.empty();
  f.confidence = confidence({.coverage = b.coverage,
                             .agree = double(majority ? b.most.size() : 1),
                             .against = majority ? 0.0 : 1.0,
                             .observations = double(b.values)});
  f.sentence = "replicas differ since the end of step " + std::to_string(b.step) + ": the " + b.what +
               (majority ? " of " + ranks_text(b.odd) + " is not that of the others"
                         : " has different bits (" + b.sides + "); without a majority nobody is accused") +
               " (" + std::to_string(b.values) + " values of all steps differ)";
  f.would_raise_confidence =
      "a third replica, the ranks that the trace lacks, or the parameters of a run that is known to be right";
  return f;
}

void cite_copies(const TraceIndex& index, Finding& f, const CopyBreak& b) {
  for (const size_t row : b.rows) {
    if (b.table == "step_value") {
      const StepValueRow& r = index.view.step_values[row];
      f.evidence.push_back(
          cite(index.view, b.table, row, "rank " + std::to_string(r.rank) + ": " + number_text(r.value)));
      continue;
    }
    const TensorStatRow& r = index.view.tensor_stats[row];
    f.evidence.push_back(cite(index.view, b.table, row,
                              "rank " + std::to_string(r.rank) + ": checksum " + std::to_string(r.checksum) +
                                  ", norm " + number_text(r.norm)));
  }
}

Finding update_finding(const TraceIndex& index, const UpdateBreak& b, std::string_view id) {
  Finding f = make_finding(id);
  f.ranks = b.ranks;
  f.where = b.where;
  f.first_ns = index.step_ns(b.ranks[0], b.step);
  f.confidence = confidence({.agree = double(b.ranks.size()), .observations = double(b.observations)});
  static const char* const stages[] = {"took another gradient norm than that of the gradients",
                                       "hold a gradient norm that is not the sum over tp",
                                       "clipped gradients by another factor than their norm gives",
                                       "updated parameters by something else than the optimizer's formula"};
  f.sentence =
      ranks_text(b.ranks) + " " + stages[b.stage] + " from step " + std::to_string(b.step) + " on: " + b.sentence;
  for (const size_t row : b.rows) f.evidence.push_back(cite(index.view, b.table, row, b.sentence));
  f.would_raise_confidence = b.stage == UpdateBreak::kUpdate
                                 ? "another optimizer, schedule or decay than the configuration says"
                                 : "another definition of the norm than the configuration says";
  return f;
}

class Consistency {
 public:
  explicit Consistency(const TraceIndex& index)
      : index_(index), numbers_(index), copies_(first_copy_break(index, numbers_)), sums_(first_sum_break(index)),
        update_(first_update_break(index, numbers_)) {}

  std::vector<Finding> run() {
    const auto first = std::min(
        {copies_ ? place(*copies_) : kNever, sums_ ? place(*sums_) : kNever, update_ ? place(*update_) : kNever});
    if (first == kNever) return {};
    std::vector<Finding> found;
    if (sums_ && place(*sums_) == first) found.push_back(sum_finding(index_, *sums_, sum_id()));
    else if (update_ && place(*update_) == first) found.push_back(update_finding(index_, *update_, update_id()));
    if (copies_ && (found.empty() || found[0].id != "numeric.replica")) {
      found.push_back(copy_finding(index_, *copies_));
      cite_copies(index_, found.back(), *copies_);
    } else if (copies_) {
      found[0].sentence +=
          "; replicas differ since the end of step " + std::to_string(copies_->step) + " (the " + copies_->what + ")";
      cite_copies(index_, found[0], *copies_);
    }
    return found;
  }

 private:
  static constexpr std::pair<int, int> kNever{1 << 30, 0};

  std::string_view sum_id() const {
    if (!sums_->alike) return "numeric.replica";
    return factor_text(index_, sums_->ratio, 1e-3, sums_->axis).empty() ? "loss.unexplained" : "loss.grad_scale";
  }
  std::string_view update_id() const {
    return copies_ && copies_->step == update_->step ? "numeric.replica" : "numeric.unexplained";
  }

  const TraceIndex& index_;
  const StepNumbers numbers_;
  const std::optional<CopyBreak> copies_;
  const std::optional<SumBreak> sums_;
  const std::optional<UpdateBreak> update_;
};

}  // namespace

std::vector<Finding> step_consistency(const TraceIndex& index) { return Consistency(index).run(); }

}  // namespace ringscope
