// The relations, in the order in which a step computes; d = divisor, n = labels of a rank as the host counted them,
// s = loss sum, p = probability of the label, both of the rank's counted tokens:
//   sum       s and the kernel's count are those of the rows, computed again; the host counted as many labels
//   copies    TP ranks hold the same n, s and counts: bit for bit
//   count     d is the sum of n over CP, then over DP (whole numbers: exact)
//   backward  the gradient of one logit a token, the label's if it lies on the rank, is (p - [label]) / d
//   share     a rank's part of the loss is s / d
//   reported  the loss is the sum of the parts over CP, then over DP, in ascending rank
// Between count and reported another convention may be consistent as a whole: only a loss that is not the token mean,
// or a gradient that is not its gradient, makes a broken relation a mistake.
#include "tools/analyze/loss/chain.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tools/analyze/confidence.h"
#include "tools/analyze/loss/shards.h"
#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

using Q = StepQuantity;

constexpr double kRounding = 0x1p-52;  // of a few fp64 operations
// Of an fp32 kernel, relative: exp(x) errs by |x| u and its own error, u = 2^-24; a label's 1 - p by that of 1 and p.
constexpr double kLabelNoise = 4e-6, kOtherNoise = 3e-5;
constexpr double kNamedFactor = 1e-5;  // how far a ratio may be from a product of sizes to bear its name

struct Break {
  enum Stage { kSum, kCounted, kCopies, kCount, kBackward, kShare, kReported } stage = kSum;
  int step = -1, microbatch = -1;
  Axis axis = Axis::kUnknown;  // of the reduction
  std::vector<int> ranks;      // whose numbers show it
  int shown = -1;              // one of them
  double value = 0, expected = 0;
  bool left_out = false;  // everybody kept what it had
  bool equal = false;     // of a reduction: all inputs were equal
  bool alike = false;     // of a reduction: all results are equal
  bool uniform = true;    // all are off by the same factor, and nobody else could show it
  bool majority = true;   // of copies
  bool counts = false;    // of sums: of the count, not of the loss
  std::vector<size_t> rows;

  double ratio() const { return expected != 0 ? value / expected : 0; }
};

class Chain {
 public:
  Chain(const TraceIndex& index, const StepNumbers& numbers)
      : index_(index), numbers_(numbers), groups_(index), ranks_(known_ranks(index)) {
    std::set<int> seen;
    for (const auto& [rank, shard] : shards_of_ranks(index))
      if (seen.insert(shard).second) shards_.push_back(rank);
  }

  std::optional<Finding> run() {
    std::optional<Break> first;
    size_t steps = 0;
    for (const int step : numbers_.steps()) {
      std::optional<Break> broken = judge(step);
      if (!broken) continue;
      if (!first) first = broken;
      if (broken->stage != first->stage || broken->axis != first->axis) continue;
      ++steps;
      first->ranks.insert(first->ranks.end(), broken->ranks.begin(), broken->ranks.end());
    }
    if (!first) return std::nullopt;
    sort_unique(first->ranks);
    return finding(*first, steps);
  }

 private:
  std::optional<Break> judge(int step) {
    step_ = step;
    if (auto b = sums()) return b;
    if (auto b = counted()) return b;
    if (auto b = copies(Q::kDivisor, -1)) return b;
    for (const int microbatch : numbers_.microbatches())
      for (const Q quantity : {Q::kCounted, Q::kLossSum})
        if (auto b = copies(quantity, microbatch)) return b;
    if (!came_out_wrong()) return std::nullopt;
    if (auto b = reduction(Break::kCount, Q::kDivisor)) return b;
    if (auto b = backward()) return b;
    if (auto b = share()) return b;
    return reduction(Break::kReported, Q::kLoss);
  }

  const StepNumber* own(int rank, Q quantity) const { return numbers_.find(step_, rank, quantity); }
  const StepNumber* divisor(int rank) const { return numbers_.last(step_, rank, Q::kDivisor); }

  std::optional<Break> copies(Q quantity, int microbatch) const {
    for (const std::vector<int>* members : groups_.all(Axis::kTp)) {
      const std::vector<int>& group = *members;
      std::map<double, std::vector<int>> sides;
      Break b{Break::kCopies, step_, microbatch};
      for (const int rank : group) {
        const StepNumber* number = numbers_.find(step_, rank, quantity, Axis::kUnknown, microbatch);
        if (!number || !std::isfinite(number->value)) continue;
        sides[number->value].push_back(rank);
        b.rows.push_back(number->row);
      }
      if (sides.size() < 2) continue;
      const auto most = std::max_element(
          sides.begin(), sides.end(), [](const auto& x, const auto& y) { return x.second.size() < y.second.size(); });
      b.majority = most->second.size() * 2 > group.size();
      b.expected = most->first;
      for (const auto& [value, side] : sides)
        if (value != most->first) {
          b.value = value, b.shown = side[0];
          if (b.majority) b.ranks.insert(b.ranks.end(), side.begin(), side.end());
        }
      return b;
    }
    return std::nullopt;
  }

  // What each microbatch added, against its rows.
  std::optional<Break> sums() const {
    for (const auto& [made, rows] : {std::pair(Q::kCounted, Q::kRowsCounted), std::pair(Q::kLossSum, Q::kRowsLoss)}) {
      Break b{Break::kSum, step_};
      for (const int rank : ranks_) {
        double right = 0;
        for (const int microbatch : numbers_.microbatches()) {
          const StepNumber* sum = numbers_.find(step_, rank, made, Axis::kUnknown, microbatch);
          const StepNumber* part = numbers_.find(step_, rank, rows, Axis::kUnknown, microbatch);
          if (!part || !std::isfinite(part->value)) break;
          right += part->value;
          if (!sum) continue;  // a later one holds it too
          if (!std::isfinite(sum->value)) break;
          if (std::fabs(sum->value - right) <= 0x1p-40 * std::fabs(right)) continue;
          if (b.microbatch < 0) b.microbatch = microbatch, b.counts = made == Q::kCounted;
          show(b, rank, sum->value, right, {sum->row, part->row});
          break;
        }
      }
      if (b.shown >= 0) return b;
    }
    return std::nullopt;
  }

  std::optional<Break> counted() const {
    Break b{Break::kCounted, step_};
    for (const int rank : ranks_) {
      const StepNumber *host = own(rank, Q::kDivisor), *kernel = numbers_.of_step(step_, rank, Q::kCounted);
      if (!host || !kernel || !std::isfinite(host->value - kernel->value) || host->value == kernel->value) continue;
      show(b, rank, kernel->value, host->value, {host->row, kernel->row});
    }
    return shown(b);
  }

  // Is what the step came to something else than the mean over all counted tokens? Unknown = no.
  bool came_out_wrong() const {
    if (shards_.empty()) return false;
    double total = 0, sum = 0, size = 0;
    bool sums = true;
    for (const int rank : shards_) {
      const StepNumber *n = own(rank, Q::kDivisor), *s = numbers_.of_step(step_, rank, Q::kLossSum);
      if (!n || !std::isfinite(n->value)) return false;
      total += n->value;
      sums = sums && s && std::isfinite(s->value);
      if (sums) sum += s->value, size += std::fabs(s->value);
    }
    if (!(total > 0)) return false;
    for (const int rank : ranks_) {
      if (const StepNumber* loss = numbers_.last(step_, rank, Q::kLoss);
          sums && loss && std::isfinite(loss->value) &&
          std::fabs(loss->value * total - sum) > 64 * kRounding * size * double(ranks_.size()))
        return true;
      for (const int microbatch : numbers_.microbatches())
        if (gradient_is_off(rank, microbatch, total)) return true;
    }
    return false;
  }

  bool gradient_is_off(int rank, int microbatch, double by) const {
    const StepNumber* gradient = numbers_.find(step_, rank, Q::kLossGradient, Axis::kUnknown, microbatch);
    const StepNumber* miss = numbers_.find(step_, rank, Q::kRowsMiss, Axis::kUnknown, microbatch);
    const StepNumber* labels = numbers_.find(step_, rank, Q::kRowsLabels, Axis::kUnknown, microbatch);
    if (!labels || !gradient || !miss || !std::isfinite(gradient->value * by) || !std::isfinite(miss->value))
      return false;
    return std::fabs(gradient->value * by - miss->value) > kLabelNoise * labels->value + kOtherNoise * miss->value;
  }

  std::optional<Break> backward() const {
    Break b{Break::kBackward, step_};
    bool others = false;
    for (const int microbatch : numbers_.microbatches())
      for (const int rank : ranks_) {
        const StepNumber* d = divisor(rank);
        const StepNumber* miss = numbers_.find(step_, rank, Q::kRowsMiss, Axis::kUnknown, microbatch);
        if (!d || !miss || !(d->value > 0)) continue;
        if (!gradient_is_off(rank, microbatch, d->value)) {
          others = others || miss->value > 0;
          continue;
        }
        const StepNumber* gradient = numbers_.find(step_, rank, Q::kLossGradient, Axis::kUnknown, microbatch);
        if (b.microbatch < 0) b.microbatch = microbatch;
        show(b, rank, gradient->value, miss->value / d->value, {gradient->row, miss->row, d->row}, 1e-3);
      }
    b.uniform = b.uniform && !others;
    return shown(b);
  }

  std::optional<Break> share() const {
    Break b{Break::kShare, step_};
    bool others = false;
    for (const int rank : ranks_) {
      const StepNumber *d = divisor(rank), *s = numbers_.of_step(step_, rank, Q::kLossSum), *part = own(rank, Q::kLoss);
      if (!d || !s || !part || !std::isfinite(s->value + d->value + part->value)) continue;
      const double right = d->value > 0 ? s->value / d->value : 0;
      if (std::fabs(part->value - right) <= 8 * kRounding * std::fabs(right)) others = others || right != 0;
      else show(b, rank, part->value, right, {part->row, s->row, d->row}, kNamedFactor);
    }
    b.uniform = b.uniform && !others;
    return shown(b);
  }

  // What a reduction over CP, then over DP, made of a number.
  std::optional<Break> reduction(Break::Stage stage, Q quantity) const {
    for (const Axis axis : {Axis::kCp, Axis::kDp}) {
      Break b{stage, step_};
      b.axis = axis;
      b.left_out = b.equal = b.alike = true;
      for (const std::vector<int>* group : groups_.all(axis)) add_group(b, *group, quantity);
      if (!shown(b)) continue;
      if (b.left_out && stage == Break::kCount) add_own_counts(b);
      return b;
    }
    return std::nullopt;
  }

  void add_group(Break& b, const std::vector<int>& group, Q quantity) const {
    std::vector<const StepNumber*> in, out;
    double sum = 0, size = 0;
    for (const int rank : group) {
      const bool behind_cp = b.axis == Axis::kDp && numbers_.reduced_over(quantity, Axis::kCp);
      in.push_back(numbers_.find(step_, rank, quantity, behind_cp ? Axis::kCp : Axis::kUnknown));
      out.push_back(numbers_.find(step_, rank, quantity, b.axis));
      if (!in.back() || !out.back() || !std::isfinite(in.back()->value + out.back()->value)) return;
      sum += in.back()->value;
      size += std::fabs(in.back()->value);
    }
    bool broken = false, left_out = true;
    for (size_t i = 0; i < group.size(); ++i) {
      if (std::fabs(out[i]->value - sum) <= kRounding * size * double(group.size())) continue;
      broken = true;
      show(b, group[i], out[i]->value, sum, {in[i]->row, out[i]->row}, kNamedFactor);
    }
    if (!broken) return;
    for (size_t i = 0; i < group.size(); ++i) {
      left_out = left_out && out[i]->value == in[i]->value;
      b.equal = b.equal && in[i]->value == in[0]->value;
      b.alike = b.alike && out[i]->value == out[0]->value;
    }
    b.left_out = b.left_out && left_out;
    if (left_out) b.ranks.insert(b.ranks.end(), group.begin(), group.end());
  }

  // Where all that is counted lies with one shard, its rank's own count is the global one; it did what the others did.
  void add_own_counts(Break& b) const {
    double total = 0;
    for (const int rank : shards_)
      if (const StepNumber* n = own(rank, Q::kDivisor)) total += n->value;
    for (const int rank : ranks_) {
      const StepNumber *n = own(rank, Q::kDivisor), *d = divisor(rank);
      if (n && d && n->value == d->value && d->value != total) b.ranks.push_back(rank);
    }
  }

  static void show(Break& b, int rank, double value, double expected, std::vector<size_t> rows,
                   double same_factor = kNamedFactor) {
    if (b.shown < 0) {
      b.shown = rank, b.value = value, b.expected = expected;
    } else if (expected != 0 && std::fabs(value / expected - b.ratio()) > same_factor * std::fabs(b.ratio())) {
      b.uniform = false;
    }
    b.ranks.push_back(rank);
    for (const size_t row : rows)
      if (b.rows.size() < 12) b.rows.push_back(row);
  }
  static std::optional<Break> shown(const Break& b) { return b.shown < 0 ? std::nullopt : std::optional(b); }

  std::string factor(const Break& b) const {
    if (!b.uniform || b.stage <= Break::kCopies) return "";
    return factor_text(index_, b.ratio(), b.stage == Break::kBackward ? 1e-3 : kNamedFactor, b.axis,
                       int(numbers_.microbatches().size()));
  }

  // Rows of the rank's batch in this step that are padding.
  double padded_rows(int rank) const {
    double rows = 0;
    for (const PositionRunRow& run : index_.view.position_runs)
      if (run.rank == rank && run.where.step == step_ && run.role == PositionRole::kData && run.document == 0xFFFFFFFF)
        rows += run.count;
    return rows;
  }

  std::string_view id(const Break& b) {
    step_ = b.step;
    switch (b.stage) {
      case Break::kSum:
      case Break::kCopies: return "loss.unexplained";
      case Break::kCounted:
        return padded_rows(b.shown) > 0 && std::fabs(b.value - b.expected) == padded_rows(b.shown)
                   ? "loss.padding_counted"
                   : "loss.unexplained";
      case Break::kCount:
        if (b.left_out && !b.equal) return "loss.per_rank_mean";
        break;
      case Break::kReported:
        if (!b.alike && !(b.left_out && b.equal)) return "numeric.replica";
        break;
      default: break;
    }
    return factor(b).empty() ? "loss.unexplained" : "loss.grad_scale";
  }

  Finding finding(const Break& b, size_t steps) {
    Finding f = make_finding(id(b));
    f.ranks = b.ranks;
    f.where.step = b.step;
    f.first_ns = index_.step_ns(b.shown, b.step);
    f.confidence = confidence({.agree = double(std::max<size_t>(1, b.ranks.size())),
                               .against = b.majority ? 0.0 : 1.0,
                               .observations = double(steps)});
    f.sentence = what(b) + " from step " + std::to_string(b.step) + " on: " + numbers_text(b);
    if (b.axis != Axis::kUnknown && b.stage != Break::kCount)  // counts belong to CP and DP together
      if (const std::vector<int>* group = groups_.along(b.shown, b.axis)) f.group = GroupRef{name(b.axis), *group};
    for (const size_t row : b.rows) {
      if (row == kNoStepValue) continue;
      const StepValueRow& r = index_.view.step_values[row];
      f.evidence.push_back(cite(index_.view, "step_value", row,
                                "rank " + std::to_string(r.rank) + ": " + name(r.quantity) +
                                    (r.axis == Axis::kUnknown ? "" : std::string(" over ") + name(r.axis)) + " " +
                                    number_text(r.value)));
    }
    f.would_raise_confidence = would_change(b);
    return f;
  }

  std::string what(const Break& b) const {
    const std::string who = ranks_text(b.ranks), by = factor(b);
    const std::string times = by.empty() ? "" : " by a factor of " + by + ",";
    switch (b.stage) {
      case Break::kCopies:
        return "ranks that hold the same tokens " +
               std::string(b.microbatch < 0 ? "counted their labels" : "summed their loss") + " differently" +
               (b.majority ? "; " + who + " departed from the others," : "; without a majority nobody is accused,");
      case Break::kSum:
        return who +
               (b.counts ? " counted other tokens than their rows hold" : " summed another loss than their rows make") +
               " (microbatch " + std::to_string(b.microbatch) + ")";
      case Break::kCounted: return who + " counted other tokens in the loss than there are labels";
      case Break::kCount:
        if (b.left_out)
          return who + " divided the loss by a token count that was not summed over " + name(b.axis) +
                 (b.equal ? times : "") + (b.equal ? "" : ", so that means of unequal counts were added");
        return who + " divided the loss by a token count that is no sum over " + name(b.axis) + times;
      case Break::kBackward: return who + " scaled the gradient of the loss away from the loss itself" + times;
      case Break::kShare: return who + " took another part of the loss than sum / divisor" + times;
      case Break::kReported:
        return who +
               (b.left_out ? " reported a loss that was not summed over " : " reported a loss that is no sum over ") +
               name(b.axis) + times;
    }
    return "";
  }

  static const char* call_name(const Break& b) { return b.stage == Break::kCount ? "loss.count" : "loss.sum"; }

  std::string numbers_text(const Break& b) const {
    std::string text = "rank " + std::to_string(b.shown) + " has " + number_text(b.value) + ", " +
                       number_text(b.expected) + " would be consistent";
    if (b.stage == Break::kCount || b.stage == Break::kReported) {
      Where where;
      where.step = b.step;
      const std::string calls = calls_text(index_, b.shown, b.axis, where, call_name(b));
      if (!calls.empty()) text += " (" + calls + ")";
    }
    if (const std::string loss = loss_text(b); !loss.empty()) text += "; " + loss;
    return text;
  }

  std::string loss_text(const Break& b) const {
    double total = 0, sum = 0;
    for (const int rank : shards_) {
      const StepNumber *n = numbers_.find(b.step, rank, Q::kDivisor), *s = numbers_.of_step(b.step, rank, Q::kLossSum);
      if (!n || !s) return "";
      total += n->value, sum += s->value;
    }
    const StepNumber* loss = numbers_.last(b.step, b.shown, Q::kLoss);
    if (!loss || !(total > 0) || sum == 0) return "";
    return "reported loss " + number_text(loss->value) + ", token mean " + number_text(sum / total) + " (off by " +
           number_text(100 * (loss->value * total - sum) / sum) + " %)";
  }

  static std::string would_change(const Break& b) {
    switch (b.stage) {
      case Break::kCopies: return "a third copy of the shard, or the labels as these ranks' kernels read them";
      case Break::kSum:
        return "the rows of the microbatch as the kernel read them, if they are not those that were recorded";
      case Break::kCounted: return "the labels as the kernel read them: if the host counted others, it is their upload";
      case Break::kCount: return "a factor that the program applies elsewhere on purpose, in loss and gradients alike";
      default: return "a record of what else is applied to the loss between these two numbers";
    }
  }

  const TraceIndex& index_;
  const StepNumbers& numbers_;
  const Groups groups_;
  std::vector<int> ranks_, shards_;  // shards: one rank of each
  int step_ = -1;
};

}  // namespace

std::optional<Finding> broken_loss_chain(const TraceIndex& index, const StepNumbers& numbers) {
  if (numbers.empty()) return std::nullopt;
  return Chain(index, numbers).run();
}

}  // namespace ringscope
