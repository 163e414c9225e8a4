// The formulas; g = reduced gradient, c = clip factor, all per step:
//   own norm   the rank's squared norm is that of its gradients, with or without those that TP replicates
//   over TP    its sum over TP counts those once
//   clip       c = min(1, clip_grad / (norm + 1e-6))
//   update     m' = b1 m + (1 - b1) c g,  v' = b2 v + (1 - b2) (c g)^2,
//              w' = w (1 - lr decay) - lr m'/(1 - b1^t) / (sqrt(v'/(1 - b2^t)) + eps)      (AdamW)
// Bounds are those of fp32 arithmetic, constants rounded to fp32 included; sums of squares are fp64.
#include "tools/analyze/numeric/update.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace ringscope {
namespace {

using Q = StepQuantity;

constexpr double kUnit = 0x1p-24;    // of fp32
constexpr double kLeast = 0x1p-120;  // what underflows counts for less
constexpr double kNumber = 0x1p-44;  // of a few fp64 operations
constexpr double kClipEps = 1e-6;    // as the formula of the clip factor has it

class Updates {
 public:
  Updates(const TraceIndex& index, const StepNumbers& numbers)
      : index_(index), view_(index.view), numbers_(numbers), groups_(index), ranks_(known_ranks(index)) {
    for (const TensorStatRow& r : view_.tensor_stats) {
      if (r.role > TensorRole::kLocalGradient && r.role < TensorRole::kGradientOverTp) continue;
      names_.insert(r.name);
      if (r.role != TensorRole::kGradient) continue;
      Squares& s = squares_[{r.where.step, r.rank}];
      ++s.tensors;
      (r.part < 0 ? s.replicated : s.sliced) += r.norm * r.norm;
      s.elements += double(r.count);
      s.known = s.known && !r.bad && std::isfinite(r.norm);
    }
    for (const TrainStepRow& r : view_.train_steps) rates_[{r.where.step, r.rank}] = r.lr;
  }

  std::optional<UpdateBreak> first() {
    for (const int step : numbers_.steps()) {
      step_ = step;
      for (const auto check : {&Updates::own_norms, &Updates::norms_over_tp, &Updates::clips})
        if (std::optional<UpdateBreak> b = (this->*check)()) return b;
      if (std::optional<UpdateBreak> b = updates()) return b;
    }
    return std::nullopt;
  }

 private:
  struct Squares {
    double sliced = 0, replicated = 0, elements = 0;
    size_t tensors = 0;
    bool known = true;
  };

  // Collects ranks that break one formula; the first of them is shown.
  struct Collect {
    UpdateBreak b;
    size_t right = 0;
    void add(int rank, std::vector<size_t> rows, const std::string& sentence) {
      if (b.ranks.empty()) b.rows = std::move(rows), b.sentence = sentence;
      b.ranks.push_back(rank);
    }
    std::optional<UpdateBreak> done() {
      if (b.ranks.empty()) return std::nullopt;
      b.observations = b.ranks.size();
      sort_unique(b.ranks);
      b.everybody = right == 0;
      return b;
    }
  };
  Collect collect(UpdateBreak::Stage stage, const char* table) const {
    Collect c;
    c.b.stage = stage, c.b.step = step_, c.b.table = table;
    c.b.where.step = step_;
    c.b.where.pass = Pass::kOptimizer;
    return c;
  }

  const Squares* squares(int rank) const {
    const auto found = squares_.find({step_, rank});
    // A tensor whose row is missing would be missing in the norm.
    const bool known = found != squares_.end() && found->second.known && found->second.tensors == names_.size();
    return known && view_.lossless(rank) ? &found->second : nullptr;
  }
  static std::string shown(int rank, const char* what, double value, double right) {
    return "rank " + std::to_string(rank) + " has " + what + " " + number_text(value) + ", " + number_text(right) +
           " would be consistent";
  }

  // Is there a second slice of anything, or may there be one on a rank that recorded nothing?
  bool sliced() const {
    std::set<int> seen;
    for (const TensorStatRow& r : view_.tensor_stats) {
      if (r.part > 0) return true;
      seen.insert(r.rank);
    }
    const auto world = view_.meta.find(meta_key::kWorldSize);
    return world == view_.meta.end() || size_t(std::max(0, std::atoi(world->second.c_str()))) != seen.size();
  }

  std::optional<UpdateBreak> own_norms() {
    const bool may_slice = sliced();
    Collect c = collect(UpdateBreak::kOwnNorm, "step_value");
    for (const int rank : ranks_) {
      const StepNumber* own = numbers_.find(step_, rank, Q::kGradNormSq);
      const Squares* s = squares(rank);
      if (!own || !s || !std::isfinite(own->value)) continue;
      const double all = s->sliced + s->replicated, bound = (kNumber + 0x1p-52 * s->elements) * all;
      const bool slices_only = may_slice && std::fabs(own->value - s->sliced) <= bound;  // TP rank 0 counts the rest
      if (slices_only || std::fabs(own->value - all) <= bound) ++c.right;
      else c.add(rank, {own->row}, shown(rank, "a squared gradient norm of", own->value, all));
    }
    return c.done();
  }

  std::optional<UpdateBreak> norms_over_tp() {
    Collect c = collect(UpdateBreak::kNormOverTp, "step_value");
    for (const std::vector<int>* group : groups_.all(Axis::kTp)) {
      double sum = 0, once = 0, replicated = 0, elements = 0;
      bool known = true;
      for (const int rank : *group) {
        const StepNumber* own = numbers_.find(step_, rank, Q::kGradNormSq);
        const Squares* s = squares(rank);
        known = known && own && std::isfinite(own->value);
        if (known) sum += own->value;
        once = s ? once + s->sliced : NAN;
        replicated = s ? s->replicated : NAN;
        elements += s ? s->elements : 0;
      }
      once += replicated;
      const bool counted_once = std::isnan(once) || std::fabs(sum - once) <= (kNumber + 0x1p-52 * elements) * once;
      for (const int rank : *group) {
        const StepNumber* all = numbers_.find(step_, rank, Q::kGradNormSq, Axis::kTp);
        if (!known || !all || !std::isfinite(all->value)) continue;
        if (!counted_once)
          c.add(rank, {all->row},
                shown(rank, "a squared gradient norm over tp of", all->value, once) +
                    ", with what tp replicates counted once");
        else if (std::fabs(all->value - sum) <= kNumber * sum) ++c.right;
        else c.add(rank, {all->row}, shown(rank, "a squared gradient norm over tp of", all->value, sum) + calls(rank));
      }
    }
    return c.done();
  }
  std::string calls(int rank) const {
    Where where;
    where.step = step_;
    const std::string text = calls_text(index_, rank, Axis::kTp, where, "grad.norm_sq");
    return text.empty() ? "" : " (" + text + ")";
  }

  std::optional<UpdateBreak> clips() {
    Collect c = collect(UpdateBreak::kClip, "step_value");
    const std::optional<double> most = config_number(view_, "clip_grad");
    for (const int rank : ranks_) {
      const StepNumber *clip = numbers_.find(step_, rank, Q::kClip), *norm = numbers_.last(step_, rank, Q::kGradNormSq);
      if (!most || !clip || !norm || !std::isfinite(clip->value) || !std::isfinite(norm->value)) continue;
      const double room = *most / (std::sqrt(norm->value) + kClipEps);
      const double right = *most <= 0 || room >= 1 ? 1 : room;
      if (std::fabs(clip->value - right) <= kNumber) ++c.right;
      else c.add(rank, {clip->row, norm->row}, shown(rank, "the clip factor", clip->value, right));
    }
    return c.done();
  }

  std::optional<UpdateBreak> updates() {
    if (!read_constants()) return std::nullopt;
    Collect c = collect(UpdateBreak::kUpdate, "update_sample");
    if (samples_.empty())
      for (size_t i = 0; i < view_.update_samples.size(); ++i)
        samples_[view_.update_samples[i].where.step].push_back(i);
    for (const size_t i : samples_[step_]) {
      const UpdateSampleRow& r = view_.update_samples[i];
      const std::string wrong = contradiction(r);
      if (wrong.empty()) {
        ++c.right;
        continue;
      }
      if (c.b.ranks.empty()) c.b.where = r.where;
      c.add(r.rank, {i},
            "element " + std::to_string(r.element) + " of " + std::string(view_.text(r.name)) + " on rank " +
                std::to_string(r.rank) + ": " + wrong);
    }
    if (std::optional<UpdateBreak> b = c.done()) {
      b->everybody = everybody(*b);
      return b;
    }
    return std::nullopt;
  }
  // Who could show it recorded the same elements.
  bool everybody(const UpdateBreak& b) const {
    std::vector<int> ranks;
    for (const size_t i : samples_.at(step_)) ranks.push_back(view_.update_samples[i].rank);
    sort_unique(ranks);
    return ranks.size() == b.ranks.size();
  }

  bool read_constants() {
    const auto read = [&](const char* key, double& to) {
      const std::optional<double> value = config_number(view_, key);
      if (value) to = *value;
      return value.has_value();
    };
    return read("adam_beta1", b1_) && read("adam_beta2", b2_) && read("adam_eps", eps_) && read("weight_decay", decay_);
  }

  // "" = the update follows, or something that it needs is not known.
  std::string contradiction(const UpdateSampleRow& r) const {
    const StepNumber* clip = numbers_.find(step_, r.rank, Q::kClip);
    if (!clip || !std::isfinite(r.gradient + clip->value + r.value_before + r.m_before + r.v_before + r.value_after +
                                r.m_after + r.v_after))
      return "";
    const auto differs = [](const char* what, double value, double right, double bound) {
      return std::fabs(value - right) <= bound
                 ? std::string()
                 : std::string(what) + " is " + number_text(value) + ", " + number_text(right) + " would be consistent";
    };
    const double g = r.gradient * clip->value;
    const double m = b1_ * r.m_before + (1 - b1_) * g;
    const double v = b2_ * r.v_before + (1 - b2_) * g * g;
    const double m_bound = 8 * kUnit * (std::fabs(r.m_before) + std::fabs(g) * (2 - b1_)) + kLeast;
    if (std::string text = differs("the first moment", r.m_after, m, m_bound); !text.empty()) return text;
    const double v_bound = 8 * kUnit * (std::fabs(r.v_before) + g * g * (2 - b2_)) + kLeast;
    if (std::string text = differs("the second moment", r.v_after, v, v_bound); !text.empty()) return text;
    const auto rate = rates_.find({step_, r.rank});
    if (rate == rates_.end() || !std::isfinite(rate->second)) return "";
    const double lr = rate->second, t = step_ + 1;
    const double move =
        lr / (1 - std::pow(b1_, t)) * r.m_after / (std::sqrt(r.v_after / (1 - std::pow(b2_, t))) + eps_);
    const double bound = 8 * kUnit * (std::fabs(r.value_before) * (1 + lr * decay_) + 4 * std::fabs(move)) + kLeast;
    const double decayed = r.value_before * (1 - lr * decay_) - move, kept = r.value_before - move;
    if (std::fabs(r.value_after - kept) <= bound) return "";  // a tensor without decay
    return differs("the value", r.value_after, decayed, bound);
  }

  const TraceIndex& index_;
  const TraceView& view_;
  const StepNumbers& numbers_;
  const Groups groups_;
  const std::vector<int> ranks_;
  std::map<std::pair<int, int>, Squares> squares_;  // by step, rank
  std::set<uint32_t> names_;                        // of parameters
  std::map<std::pair<int, int>, double> rates_;     // by step, rank
  std::map<int, std::vector<size_t>> samples_;      // by step
  double b1_ = 0, b2_ = 0, eps_ = 0, decay_ = 0;
  int step_ = -1;
};

}  // namespace

std::optional<UpdateBreak> first_update_break(const TraceIndex& index, const StepNumbers& numbers) {
  return Updates(index, numbers).first();
}

}  // namespace ringscope
