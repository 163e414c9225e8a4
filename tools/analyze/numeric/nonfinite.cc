// numeric.nonfinite and softmax.nan_rows: where the first NaN or infinity of a run was, and whether what went into it
// was finite.
//
// A NaN spreads: along the layers of its rank, through attention to the ranks that see its keys, through a reduction
// to everybody. So the first observation counts, in the order in which a step computes: forward by layer (inputs of
// attention, then its log-sum-exp), the loss sum, backward by falling layer, the rank's own gradients, the reduced
// ones, the parameters, the reported loss. Where attention shows it first and its inputs were finite, it was born there
// (softmax.nan_rows), unless they were so large that a score overflows: that is a run that diverged.
//
// A kernel may lose a NaN on its way: a maximum over keys of which none compares leaves -infinity, as if no key were
// visible. Such a part counts where the positions say that keys were visible, and only in the step in which something
// else holds a NaN: alone it proves nothing.
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/numeric/step_numbers.h"
#include "tools/analyze/position/shards.h"
#include "tools/analyze/softmax/attention_rows.h"
#include "tools/analyze/softmax/samples.h"

namespace ringscope {
namespace {

enum Kind {
  kInput,          // of attention
  kLse,            // rows of the log-sum-exp of one attention call
  kPart,           // one part of a sampled row
  kOutput,         // of attention
  kLossSum,        // the rank's own
  kNumber,         // of a step, on its way: the rank's own, or reduced
  kLocalGradient,  // before it is reduced
  kGradient,
  kGradNorm,
  kParameter,
  kLoss
};

constexpr int kLast = std::numeric_limits<int>::max();

// Order within a step: microbatch, pass (0 forward, 1 backward, 2 end), layer in the order of the pass, stage.
using Order = std::tuple<int, int, int, int>;

struct Seen {
  Kind kind = kInput;
  int rank = 0;
  size_t row = 0;  // in the table of its kind
  Where where;
  Order order;
};

bool attention_role(TensorRole role) {
  return role == TensorRole::kAttentionInput || role == TensorRole::kAttentionOutput;
}

class Nonfinite {
 public:
  explicit Nonfinite(const TraceIndex& index) : index_(index), view_(index.view), groups_(index) {}

  std::vector<Finding> run() {
    find_recorded_columns();
    step_ = kLast;
    each([&](const Seen& seen) { step_ = std::min(step_, seen.where.step); });
    if (step_ == kLast) return {};
    each([&](const Seen& seen) {
      if (seen.where.step == step_) seen_.push_back(seen);
    });
    find_hidden_parts();
    place_loss_sums();
    Order first = seen_[0].order;
    for (const Seen& seen : seen_) first = std::min(first, seen.order);
    std::erase_if(seen_, [&](const Seen& seen) { return seen.order != first; });
    return {finding()};
  }

 private:
  // A column without a single number was not recorded: its NaN says nothing. Runs of ours record all of them.
  void find_recorded_columns() {
    has_loss_ = has_norm_ = has_sum_ = view_.meta.contains(meta_key::kToolVersion);
    for (const TrainStepRow& r : view_.train_steps) {
      has_loss_ = has_loss_ || !std::isnan(r.loss);
      has_norm_ = has_norm_ || !std::isnan(r.grad_norm);
      has_sum_ = has_sum_ || !std::isnan(r.loss_sum);
    }
    for (const SoftmaxRow& r : view_.softmax_rows) {
      has_part_ = has_part_ || (r.kv_owner != kResultOwner && !std::isnan(r.m_own));
      has_result_ = has_result_ || (r.kv_owner == kResultOwner && !std::isnan(r.lse_result));
    }
  }

  static bool bad(double value) { return std::isnan(value) || value == INFINITY; }  // -infinity: no key is visible

  bool bad_row(const SoftmaxRow& r) const {
    if (r.kv_owner == kResultOwner) return has_result_ && bad(r.lse_result);
    // A part's own log-sum-exp can be unknown; its maximum is read where it was made.
    return has_part_ && (bad(r.m_own) || (r.method == SoftmaxMethod::kLseMerge && bad(r.lse_own)));
  }

  // Calls `visit` with everything that is no number.
  template <class F>
  void each(F&& visit) const {
    for (size_t i = 0; i < view_.tensor_stats.size(); ++i)
      if (view_.tensor_stats[i].bad) visit(of_tensor(i));
    for (size_t i = 0; i < view_.softmax_stats.size(); ++i)
      if (const SoftmaxStatRow& r = view_.softmax_stats[i]; r.bad)
        visit(Seen{kLse, r.rank, i, r.where, in_pass(r.where, 1)});
    for (size_t i = 0; i < view_.softmax_rows.size(); ++i)
      if (const SoftmaxRow& r = view_.softmax_rows[i]; bad_row(r))
        visit(Seen{kPart, r.rank, i, r.where, in_pass(r.where, 1)});
    for (size_t i = 0; i < view_.step_values.size(); ++i)
      if (const StepValueRow& r = view_.step_values[i]; !std::isfinite(r.value)) visit(of_number(i));
    for (size_t i = 0; i < view_.train_steps.size(); ++i) {
      const TrainStepRow& r = view_.train_steps[i];
      const auto of_step = [&](Kind kind, int stage) { visit(Seen{kind, r.rank, i, r.where, {kLast, 2, stage, 2}}); };
      if (has_sum_ && !std::isfinite(r.loss_sum)) of_step(kLossSum, -1);
      if (has_norm_ && !std::isfinite(r.grad_norm)) of_step(kGradNorm, 1);
      if (has_loss_ && !std::isfinite(r.loss)) of_step(kLoss, 3);
    }
  }

  static Order in_pass(const Where& w, int stage) {
    const bool backward = w.pass == Pass::kBackward;
    return {w.microbatch, backward ? 1 : 0, backward ? -w.layer : w.layer, stage};
  }

  // Numbers come about at the start of a step (divisor), behind the forward pass of a microbatch (sums), in front of its
  // backward pass (the gradient of the loss), and at the end: each in front of what is made of it.
  Seen of_number(size_t i) const {
    const StepValueRow& r = view_.step_values[i];
    const int stage = r.axis == Axis::kUnknown ? 0 : 1 + int(r.axis);
    Order order{kLast, 2, 1, stage};
    switch (r.quantity) {
      case StepQuantity::kDivisor: order = {-1, 0, 0, stage}; break;
      case StepQuantity::kRowsLoss:
      case StepQuantity::kRowsCounted: order = {r.where.microbatch, 0, kLast, 0}; break;
      case StepQuantity::kLossSum:
      case StepQuantity::kCounted: order = {r.where.microbatch, 0, kLast, 1}; break;
      case StepQuantity::kRowsMiss:
      case StepQuantity::kRowsLabels: order = {r.where.microbatch, 1, -kLast, 0}; break;
      case StepQuantity::kLossGradient: order = {r.where.microbatch, 1, -kLast, 1}; break;
      case StepQuantity::kClip: order = {kLast, 2, 2, 0}; break;
      default: break;
    }
    return {kNumber, r.rank, i, r.where, order};
  }
  bool own_number(const Seen& seen) const {
    return seen.kind == kNumber && view_.step_values[seen.row].axis == Axis::kUnknown;
  }

  Seen of_tensor(size_t i) const {
    const TensorStatRow& r = view_.tensor_stats[i];
    switch (r.role) {
      case TensorRole::kAttentionInput: return {kInput, r.rank, i, r.where, in_pass(r.where, 0)};
      case TensorRole::kAttentionOutput: {
        // dQ stays with its rank, dK and dV have been around the ring: what was recorded first tells more.
        const bool behind = i > 0 && view_.tensor_stats[i - 1].role == r.role &&
                            view_.tensor_stats[i - 1].rank == r.rank && view_.tensor_stats[i - 1].where == r.where;
        return {kOutput, r.rank, i, r.where, in_pass(r.where, behind ? 3 : 2)};
      }
      case TensorRole::kLocalGradient:
        return {kLocalGradient, r.rank, i, r.where, {kLast, 1, r.where.layer < 0 ? 0 : -1 - r.where.layer, 0}};
      case TensorRole::kParameter:
      case TensorRole::kMoments: return {kParameter, r.rank, i, r.where, {kLast, 2, 2, 1}};
      case TensorRole::kGradientOverTp: return {kGradient, r.rank, i, r.where, {kLast, 2, -2, 0}};
      case TensorRole::kGradientOverCp: return {kGradient, r.rank, i, r.where, {kLast, 2, -1, 0}};
      default: return {kGradient, r.rank, i, r.where, {kLast, 2, 0, 0}};
    }
  }

  // Parts that see no key although the positions of the step say that keys are visible.
  void find_hidden_parts() {
    const PositionSamples positions = collect_positions(view_);
    std::map<uint32_t, const PositionSample*> samples;
    for (const PositionSample& sample : positions.samples)
      if (sample.step == step_) samples[sample.sample] = &sample;
    std::map<int, std::vector<int>> members;
    for (size_t i = 0; i < view_.softmax_rows.size(); ++i) {
      const SoftmaxRow& r = view_.softmax_rows[i];
      if (r.where.step != step_ || r.kv_owner == kResultOwner || r.lse_own != kSeesNothing) continue;
      const auto sample = samples.find(r.sample);
      if (sample == samples.end()) continue;
      const auto [group, fresh] = members.try_emplace(r.rank);
      if (fresh) group->second = index_.cp_members(r.rank);
      if (r.kv_owner < 0 || size_t(r.kv_owner) >= group->second.size()) continue;
      if (visible(*sample->second, r.position, group->second[size_t(r.kv_owner)]))
        seen_.push_back({kPart, r.rank, i, r.where, in_pass(r.where, 1)});
    }
  }

  // Does the owner hold a row of the query's document that is not behind it?
  bool visible(const PositionSample& sample, uint32_t row, int owner) const {
    const PositionBlock* keys = sample.data_of(owner);
    if (!keys) return false;
    uint32_t document = kPaddingDocument;
    for (const PositionBlock& block : sample.blocks)
      for (const size_t i : block.runs) {
        const PositionRunRow& run = view_.position_runs[i];
        if (document == kPaddingDocument && block.role == PositionRole::kData && run.token_start <= row &&
            row - run.token_start < run.count)
          document = run.document;
      }
    if (document == kPaddingDocument) return false;
    for (const size_t i : keys->runs)
      if (view_.position_runs[i].document == document && view_.position_runs[i].token_start <= row) return true;
    return false;
  }

  // A loss sum is of all microbatches; it belongs behind the forward pass of the first in which its rank shows a NaN.
  void place_loss_sums() {
    std::map<int, int> microbatch;
    for (const Seen& seen : seen_)
      if (const int mb = std::get<0>(seen.order); mb != kLast) {
        const auto [it, fresh] = microbatch.try_emplace(seen.rank, mb);
        it->second = std::min(it->second, mb);
      }
    for (Seen& seen : seen_)
      if (seen.kind == kLossSum) {
        const auto found = microbatch.find(seen.rank);
        seen.order = {found == microbatch.end() ? kLast : found->second, 0, kLast, 0};
      }
  }

  Finding finding() const {
    const Seen& first = seen_[0];
    const bool attention = first.kind == kLse || first.kind == kPart || first.kind == kOutput;
    const Inputs inputs = attention ? attention_inputs() : kUnknown;
    Finding f = make_finding(attention && inputs == kFinite ? "softmax.nan_rows" : "numeric.nonfinite");
    f.ranks = ranks(inputs);
    f.where = first.where;
    f.where.ring_step = -1;
    if (first.kind == kLossSum) f.where.pass = Pass::kForward;
    if (attention || first.kind == kInput) f.group = index_.cp_group(f.ranks.empty() ? first.rank : f.ranks[0]);
    f.first_ns = index_.step_ns(first.rank, step_);
    f.confidence = confidence({.coverage = coverage(),
                               .agree = double(std::max<size_t>(1, f.ranks.size())),
                               .observations = double(seen_.size())});
    f.sentence = (f.ranks.empty() ? "the run" : ranks_text(f.ranks)) +
                 std::string(" held the first NaN or infinity at ") + place_text(f.where) + ": " + what(first) +
                 shards() + "; " + before(inputs);
    if (f.ranks.empty()) {
      f.sentence += "; ranks that share it show it alike, so where it began cannot be told";
      f.would_raise_confidence = "statistics of each rank's own activations and gradients, before they are reduced";
    }
    for (size_t i = 0; i < std::min<size_t>(seen_.size(), 8); ++i)
      f.evidence.push_back(cite(view_, table(seen_[i].kind), seen_[i].row,
                                "rank " + std::to_string(seen_[i].rank) + ": " + what(seen_[i])));
    return f;
  }

  enum Inputs { kFinite, kHuge, kUnknown };

  // Whether what went into the attention calls of the first place was finite, on every rank whose keys can be in it.
  Inputs attention_inputs() const {
    std::set<int> needed;
    for (const Seen& seen : seen_) {
      needed.insert(seen.rank);
      for (int member : index_.cp_members(seen.rank)) needed.insert(member);
    }
    const Where& place = seen_[0].where;
    std::map<int, double> size;  // product of the norms of what went in, by rank
    for (const TensorStatRow& r : view_.tensor_stats)
      if (r.role == TensorRole::kAttentionInput && r.where.step == place.step && r.where.layer == place.layer &&
          r.where.microbatch == place.microbatch)
        size.try_emplace(r.rank, 1).first->second *= std::max(1.0, r.norm);
    double largest = 1;
    for (int rank : needed) {
      const auto found = size.find(rank);
      if (found == size.end()) return kUnknown;
      largest = std::max(largest, found->second);
    }
    return largest < FLT_MAX ? kFinite : kHuge;
  }

  // Who held it. In the rows of attention it is whose keys are bad, if other keys of the same rows are good.
  std::vector<int> ranks(Inputs inputs) const {
    std::vector<int> shown;
    for (const Seen& seen : seen_) shown.push_back(seen.rank);
    sort_unique(shown);
    const Kind kind = seen_[0].kind;
    if (kind == kLse || kind == kPart) {
      if (inputs != kUnknown) {
        // A reduction hands the NaN of one member to all: who put numbers into it is not accused, if somebody is left.
        std::vector<int> left = shown;
        const std::vector<int> numbers = ranks_with_numbers(index_, seen_[0].where);
        std::erase_if(left, [&](int r) { return std::binary_search(numbers.begin(), numbers.end(), r); });
        return left.empty() ? shown : left;
      }
      if (std::vector<int> owners = bad_owners(); !owners.empty()) return owners;
      // A row that sees a bad key is bad on every rank: only one rank alone can be told from the others.
      return shown.size() == 1 ? shown : std::vector<int>();
    }
    const bool reduced = kind == kGradient || kind == kGradNorm || kind == kLoss;
    if (reduced && shown.size() > 1) return {};
    // A reduction gives all of them the same: where one alone is bad, its call met another.
    if (kind == kNumber && !own_number(seen_[0])) return {};
    return own_number(seen_[0]) && computed_alone(seen_[0]) ? shown : without_sharers(shown);
  }

  // Does a rank compute this number from what is recorded to be finite, without others?
  bool computed_alone(const Seen& seen) const {
    const StepQuantity quantity = view_.step_values[seen.row].quantity;
    return quantity != StepQuantity::kRowsLoss && quantity != StepQuantity::kRowsMiss;
  }

  // What TP ranks compute goes to all of them with the next reduction: where a whole group shows it, any of its members
  // can have been the first. So it is with what CP ranks add to each other's gradients in the backward pass of attention,
  // where more than one shows it.
  std::vector<int> without_sharers(const std::vector<int>& shown) const {
    const bool added = seen_[0].kind == kOutput && seen_[0].where.pass == Pass::kBackward;
    std::vector<int> out;
    for (const int rank : shown) {
      const std::vector<int>*tp = groups_.along(rank, Axis::kTp),
            *cp = added ? groups_.along(rank, Axis::kCp) : nullptr;
      const auto shows = [&](int member) { return std::binary_search(shown.begin(), shown.end(), member); };
      if (tp && std::all_of(tp->begin(), tp->end(), shows)) continue;
      if (cp && std::count_if(cp->begin(), cp->end(), shows) > 1) continue;
      out.push_back(rank);
    }
    return out;
  }

  // Ranks whose keys gave bad parts in rows in which another's did not, and ranks whose rows have only bad parts that
  // those do not explain.
  std::vector<int> bad_owners() const {
    using Row = std::tuple<int, uint32_t, uint32_t, int>;  // rank, sample, position, head
    const Where& place = seen_[0].where;
    std::set<size_t> bad;
    for (const Seen& seen : seen_)
      if (seen.kind == kPart) bad.insert(seen.row);
    std::map<Row, std::pair<std::set<int>, int>> rows;  // bad owners, good parts
    for (size_t i = 0; i < view_.softmax_rows.size(); ++i) {
      const SoftmaxRow& r = view_.softmax_rows[i];
      if (r.where.step != place.step || r.where.layer != place.layer || r.where.microbatch != place.microbatch ||
          r.where.pass != place.pass || r.kv_owner == kResultOwner)
        continue;
      // Rows of three steps lie with the owners of the keys, all of one query row together.
      auto& [owners, good] =
          rows[{r.method == SoftmaxMethod::kGlobalThreeStep ? -1 : r.rank, r.sample, r.position, r.head}];
      const std::vector<int> members = index_.cp_members(r.rank);
      if (bad.contains(i)) {
        if (size_t(r.kv_owner) < members.size()) owners.insert(members[size_t(r.kv_owner)]);
      } else {
        good += std::isfinite(r.lse_own);
      }
    }
    std::set<int> accused;
    for (const auto& [row, parts] : rows)
      if (parts.second > 0) accused.insert(parts.first.begin(), parts.first.end());
    for (const auto& [row, parts] : rows) {
      const bool explained =
          std::any_of(parts.first.begin(), parts.first.end(), [&](int o) { return accused.contains(o); });
      if (parts.second == 0 && !parts.first.empty() && !explained && std::get<0>(row) >= 0)
        accused.insert(std::get<0>(row));
    }
    return {accused.begin(), accused.end()};
  }

  // The share of the job's ranks that recorded statistics of this step.
  double coverage() const {
    std::set<int> all, here;
    for (const RankRow& r : view_.ranks) all.insert(r.rank);
    const auto add = [&](int rank, int step) {
      all.insert(rank);
      if (step == step_) here.insert(rank);
    };
    for (const TensorStatRow& r : view_.tensor_stats) add(r.rank, r.where.step);
    for (const SoftmaxStatRow& r : view_.softmax_stats) add(r.rank, r.where.step);
    for (const TrainStepRow& r : view_.train_steps) add(r.rank, r.where.step);
    for (const Seen& seen : seen_) here.insert(seen.rank);
    return all.empty() ? 1 : double(here.size()) / double(std::max(all.size(), here.size()));
  }

  static const char* table(Kind kind) {
    switch (kind) {
      case kLse: return "softmax_stat";
      case kPart: return "softmax_row";
      case kLossSum:
      case kGradNorm:
      case kLoss: return "train_step";
      case kNumber: return "step_value";
      default: return "tensor_stat";
    }
  }

  std::string what(const Seen& seen) const {
    const auto tensor = [&](const char* of) {
      const TensorStatRow& r = view_.tensor_stats[seen.row];
      return std::string(of) + std::string(view_.text(r.name)) + " (" + std::to_string(r.bad) + " of " +
             std::to_string(r.count) + " elements)";
    };
    switch (seen.kind) {
      case kInput: return tensor("the input of attention ");
      case kOutput: return tensor("the output of attention ");
      case kLocalGradient: return tensor("the rank's own gradient of ");
      case kGradient: return tensor("the reduced gradient of ");
      case kParameter: return tensor("the updated ");
      case kLse: {
        const SoftmaxStatRow& r = view_.softmax_stats[seen.row];
        return "the log-sum-exp of attention (" + std::to_string(r.bad) + " of " + std::to_string(r.rows) + " rows)";
      }
      case kPart: {
        const SoftmaxRow& r = view_.softmax_rows[seen.row];
        if (r.kv_owner == kResultOwner) return "the log-sum-exp of query row " + std::to_string(r.position);
        const double value = bad(r.m_own) ? r.m_own : r.lse_own;
        return "the scores of query row " + std::to_string(r.position) + " against the keys of member " +
               std::to_string(r.kv_owner) + " (" + number_text(value) +
               (value == kSeesNothing ? " where keys are visible)" : ")");
      }
      case kLossSum: return "the loss sum";
      case kNumber: {
        const StepValueRow& r = view_.step_values[seen.row];
        return std::string(r.axis == Axis::kUnknown ? "the rank's own " : "the ") + name(r.quantity) +
               (r.axis == Axis::kUnknown ? "" : std::string(" over ") + name(r.axis));
      }
      case kGradNorm: return "the gradient norm";
      case kLoss: return "the reported loss";
    }
    return "";
  }

  // The shards whose keys show it, where parts were recorded.
  std::string shards() const {
    std::vector<int> owners;
    for (const Seen& seen : seen_)
      if (seen.kind == kPart && view_.softmax_rows[seen.row].kv_owner != kResultOwner)
        owners.push_back(view_.softmax_rows[seen.row].kv_owner);
    sort_unique(owners);
    if (owners.empty()) return "";
    std::string text;
    for (int owner : owners) text += (text.empty() ? "" : ", ") + std::to_string(owner);
    return ", in the parts of members " + text;
  }

  std::string before(Inputs inputs) const {
    if (inputs == kFinite) return "its inputs were finite";
    if (inputs == kHuge) return "its inputs were finite, but so large that a score overflows: the run diverged";
    const Seen& first = seen_[0];
    bool weights = false, activations = false;
    for (const TensorStatRow& r : view_.tensor_stats) {
      if (r.rank != first.rank) continue;
      weights = weights || (r.role == TensorRole::kParameter && r.where.step == step_ - 1);
      activations = activations || (attention_role(r.role) && r.where.step == step_ && !r.bad);
    }
    for (const SoftmaxStatRow& r : view_.softmax_stats)
      activations = activations || (r.rank == first.rank && r.where.step == step_ && in_pass(r.where, 1) < first.order);
    if (!weights && !activations) return "whether its inputs were finite is not recorded";
    return std::string("what was recorded before it was finite (") + (weights ? "the weights" : "") +
           (weights && activations ? ", " : "") + (activations ? "earlier layers of the step" : "") + ")";
  }

  const TraceIndex& index_;
  const TraceView& view_;
  const Groups groups_;
  bool has_loss_ = false, has_norm_ = false, has_sum_ = false, has_part_ = false, has_result_ = false;
  int step_ = kLast;
  std::vector<Seen> seen_;  // in step_, in the end those of the first place
};

}  // namespace

std::vector<Finding> nonfinite_values(const TraceIndex& index) { return Nonfinite(index).run(); }

}  // namespace ringscope
