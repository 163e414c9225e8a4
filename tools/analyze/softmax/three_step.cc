// softmax.no_global_max, no_global_sum, sum_for_max, wrong_reduction and unexplained: what the three-step global
// softmax used, against what its members had. For one query row of one context-parallel group, every member i recorded
// the maximum m_i and log-sum-exp l_i over its own keys, and what came out of the reductions:
//   m_used must be max_i m_i            (own m_i: no global max; sum_i m_i: SUM for MAX; min, mean: wrong reduction)
//   sum_used must be sum_i exp(l_i - m) (own exp(l_i - m): no global sum; max, min, mean: wrong reduction)
//   lse_result must be m + log(sum)
// A quantity is wrong in one way in the whole trace, or it is unexplained. The calls are asked first: a reduction that was
// recorded with the call that carried the quantity and is not the one it needs is what a finding names, and those who
// called it are accused. Otherwise it is the first that gives what every wrong row used, and where calls were recorded it
// is among them.
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/softmax/samples.h"

namespace ringscope {
namespace {

enum Quantity { kMaximum, kSum, kResult, kQuantities };
enum Reduction {
  kOwn,
  kAdded,
  kLeast,
  kMean,
  kMost,
  kReductions,
  kOther
};  // what a wrong value can be of the members'

struct Wrong {
  const SoftmaxSample* sample = nullptr;
  std::vector<size_t> rows;  // that show it
  std::set<Reduction> fits;  // reductions that give what was used
  double expected = 0;
};

class ThreeStep {
 public:
  explicit ThreeStep(const TraceIndex& index) : index_(index), rows_(index.view.softmax_rows) {}

  DataFindings run() {
    const SoftmaxSamples all = collect_samples(index_, SoftmaxMethod::kGlobalThreeStep);
    samples_ = all.samples.size();
    for (const SoftmaxSample& sample : all.samples) check(sample);
    DataFindings out;
    for (int quantity = 0; quantity < kQuantities; ++quantity)
      if (!wrong_[quantity].empty()) out.findings.push_back(finding(Quantity(quantity)));
    count_contradictions(out, "softmax.contradictory_three_step_rows", all.contradictory,
                         "sampled rows of three steps with part numbers or log-sum-exps that cannot be");
    return out;
  }

 private:
  void check(const SoftmaxSample& sample) {
    if (sample.parts.size() < 2 || !sample.complete) return;  // a member did not record it
    double max = kSeesNothing;
    std::vector<double> own, used;
    for (size_t i : sample.parts) {
      if (std::isnan(rows_[i].m_own) || std::isnan(rows_[i].m_used)) return;
      own.push_back(rows_[i].m_own);
      used.push_back(rows_[i].m_used);
      max = std::max(max, own.back());
    }
    ++complete_;
    if (!note(kMaximum, sample, own, used, max)) check_sum(sample, max);
  }

  void check_sum(const SoftmaxSample& sample, double max) {
    // Where doubles lie wider apart than the tolerance, a sum cannot be told from its logarithm.
    if (std::isinf(max) || std::fabs(max) * std::numeric_limits<double>::epsilon() > 1e-5) return;
    double total = 0;
    std::vector<double> own, used;
    for (size_t i : sample.parts) {
      const SoftmaxRow& r = rows_[i];
      // A part so far below the maximum adds nothing, known or not.
      const double lse = std::isnan(r.lse_own) && r.m_own < max - kNegligible ? kSeesNothing : r.lse_own;
      if (std::isnan(lse) || std::isnan(r.sum_used)) return;
      own.push_back(std::exp(lse - max));
      used.push_back(r.sum_used);
      total += own.back();
    }
    if (note(kSum, sample, own, used, total) || sample.result == SIZE_MAX) return;
    const double result = rows_[sample.result].lse_result, expected = max + std::log(total);
    if (!std::isnan(result) && !close(result, expected))
      wrong_[kResult].push_back({&sample, {sample.result}, {}, expected});
  }

  // Notes a sample whose members used something else than what is right. False = all is right.
  bool note(Quantity quantity, const SoftmaxSample& sample, const std::vector<double>& own,
            const std::vector<double>& used, double right) {
    std::vector<size_t> off;
    bool own_only = true;  // those that are wrong show their own value
    for (size_t k = 0; k < own.size(); ++k) {
      if (close(used[k], right)) continue;
      off.push_back(sample.parts[k]);
      own_only = own_only && close(used[k], own[k]);
    }
    if (off.empty()) return false;
    Wrong wrong{&sample, off, {}, right};
    for (int r = kAdded; r < kReductions; ++r) {
      const double value = reduced(Reduction(r), own);
      if (std::all_of(used.begin(), used.end(), [&](double u) { return close(u, value); }))
        wrong.fits.insert(Reduction(r));
    }
    bool all_own = true;
    for (size_t k = 0; k < own.size(); ++k) all_own = all_own && close(used[k], own[k]);
    if (own_only && (all_own || wrong.fits.empty())) wrong.fits.insert(kOwn);
    // Where no member has more than its own value, the whole group left the reduction out.
    if (all_own) wrong.rows = sample.parts;
    // One value everywhere, and a wrong one: it came out of the group's reduction.
    if (!wrong.fits.contains(kOwn) && !wrong.fits.empty()) wrong.rows = sample.parts;
    wrong_[quantity].push_back(std::move(wrong));
    return true;
  }

  static double reduced(Reduction how, const std::vector<double>& own) {
    double sum = 0;
    for (double value : own) sum += value;
    switch (how) {
      case kAdded: return sum;
      case kMean: return sum / double(own.size());
      case kLeast: return *std::min_element(own.begin(), own.end());
      default: return *std::max_element(own.begin(), own.end());
    }
  }

  // The reductions that ran in the place of a sample on one rank, as they were recorded with the calls.
  std::set<RedOp> recorded(const SoftmaxRow& row) const {
    std::set<RedOp> ran;
    const auto [begin, end] = index_.ops_of(row.rank);
    for (uint32_t op = begin; op < end; ++op) {
      const OpRow& o = index_.view.ops[op];
      Where where = o.where;
      where.ring_step = row.where.ring_step;
      if (o.coll == kNoRow || o.coll >= index_.view.colls.size() || !(where == row.where)) continue;
      if (index_.view.colls[o.coll].func == CollFunc::kAllReduce) ran.insert(index_.view.colls[o.coll].redop);
    }
    return ran;
  }

  // The reduction of the call that carried a quantity on the rank of a row: of the all-reduces in its place the first
  // carried maxima, the second denominators; of one alone its reduction tells. kNone = not recorded.
  RedOp called(Quantity quantity, const SoftmaxRow& row) const {
    std::vector<RedOp> ran;
    const auto [begin, end] = index_.ops_of(row.rank);
    for (uint32_t op = begin; op < end; ++op) {
      const OpRow& o = index_.view.ops[op];
      Where where = o.where;
      where.ring_step = row.where.ring_step;
      if (o.coll == kNoRow || o.coll >= index_.view.colls.size() || !(where == row.where)) continue;
      const CollRow& coll = index_.view.colls[o.coll];
      const CommRow* comm = index_.comm(coll.comm);  // by its members: its label may be wrong
      const bool group = comm && comm->ranks == index_.cp_members(row.rank);
      if (coll.func == CollFunc::kAllReduce && group) ran.push_back(coll.redop);
    }
    if (ran.size() == 2 && quantity != kResult) return ran[quantity == kMaximum ? 0 : 1];
    return RedOp::kNone;
  }

  // Rows on whose rank the call itself had another reduction than the quantity needs.
  struct Miscalled {
    std::vector<size_t> rows;
    RedOp op = RedOp::kNone;
    bool one = true;  // reduction for all of them
  };
  Miscalled miscalled(Quantity quantity) const {
    const RedOp needed = quantity == kMaximum ? RedOp::kMax : RedOp::kSum;
    Miscalled found;
    std::map<std::pair<int, uint64_t>, RedOp> known;  // by rank and place
    for (const Wrong& wrong : wrong_[quantity])
      for (size_t i : wrong.rows) {
        const auto [at, fresh] = known.try_emplace({rows_[i].rank, rows_[i].where.pack()}, RedOp::kNone);
        if (fresh) at->second = called(quantity, rows_[i]);
        if (at->second == RedOp::kNone || at->second == needed) continue;
        found.one = found.one && (found.rows.empty() || found.op == at->second);
        found.op = at->second;
        found.rows.push_back(i);
      }
    return found;
  }
  static Reduction reduction(RedOp op) {
    switch (op) {
      case RedOp::kSum: return kAdded;
      case RedOp::kMin: return kLeast;
      case RedOp::kAvg: return kMean;
      case RedOp::kMax: return kMost;
      default: return kOther;
    }
  }

  // What every wrong sample fits; kReductions = nothing.
  Reduction explanation(const std::vector<Wrong>& all) const {
    std::set<Reduction> fits = all[0].fits;
    for (const Wrong& wrong : all) std::erase_if(fits, [&](Reduction r) { return !wrong.fits.contains(r); });
    const std::set<RedOp> ran = recorded(rows_[all[0].rows[0]]);
    constexpr RedOp kOps[] = {RedOp::kNone, RedOp::kSum, RedOp::kMin, RedOp::kAvg, RedOp::kMax};
    for (Reduction r : fits)
      if (r == kOwn || ran.empty() || ran.contains(kOps[r])) return r;
    return kReductions;
  }

  static const char* id(Quantity quantity, Reduction how) {
    if (quantity == kResult || how == kReductions) return "softmax.unexplained";
    if (how == kOwn) return quantity == kMaximum ? "softmax.no_global_max" : "softmax.no_global_sum";
    if (quantity == kMaximum && how == kAdded) return "softmax.sum_for_max";
    return "softmax.wrong_reduction";
  }

  Finding finding(Quantity quantity) const {
    const std::vector<Wrong>& all = wrong_[quantity];
    const Miscalled call = quantity == kResult ? Miscalled() : miscalled(quantity);
    const Reduction how = quantity == kResult ? kReductions
                          : call.rows.empty() ? explanation(all)
                          : call.one          ? reduction(call.op)
                                              : kOther;
    const Wrong* first = &all[0];
    Finding f = make_finding(id(quantity, how));
    for (size_t i : call.rows) f.ranks.push_back(rows_[i].rank);
    for (const Wrong& wrong : all) {
      if (call.rows.empty())
        for (size_t i : wrong.rows) f.ranks.push_back(rows_[i].rank);
      if (earlier(place(wrong), place(*first))) first = &wrong;
    }
    sort_unique(f.ranks);
    f.group = sample_group(index_, *first->sample);
    f.where = place(*first);
    f.where.ring_step = -1;
    const SoftmaxRow& shown = rows_[first->sample->parts[0]];
    f.first_ns = index_.step_ns(shown.rank, f.where.step);
    f.op = "all_reduce";
    f.would_raise_confidence =
        "the reduction that ran, recorded with its call on every member, and rows of more layers";
    f.confidence = confidence({.coverage = double(complete_) / double(samples_),
                               .agree = double(f.ranks.size()),
                               .observations = double(all.size())});
    std::string values;
    for (size_t i : quantity == kResult ? std::vector<size_t>{first->sample->result} : first->sample->parts) {
      const std::string text = value_text(quantity, rows_[i]);
      values += (values.empty() ? "" : "; ") + text;
      f.evidence.push_back(cite(index_.view, "softmax_row", i, text));
    }
    f.sentence = ranks_text(f.ranks) + what(quantity, how) + " from " + place_text(f.where) + " on (query row " +
                 std::to_string(shown.position) + ", head " + std::to_string(shown.head) + ": " + values + "; " +
                 right(quantity) + number_text(first->expected) + "; " + std::to_string(all.size()) + " sampled rows)";
    return f;
  }

  Where place(const Wrong& wrong) const { return rows_[wrong.sample->parts[0]].where; }

  static std::string value_text(Quantity quantity, const SoftmaxRow& r) {
    const std::string rank = "rank " + std::to_string(r.rank);
    if (quantity == kSum) return rank + ": denominator used " + number_text(r.sum_used);
    if (quantity == kResult) return rank + ": log-sum-exp " + number_text(r.lse_result);
    return rank + ": own maximum " + number_text(r.m_own) + ", used " + number_text(r.m_used);
  }

  static std::string right(Quantity quantity) {
    if (quantity == kMaximum) return "the maximum over the group is ";
    if (quantity == kSum) return "the sum over the group is ";
    return "the logarithm of the sum that was used, plus its maximum, is ";
  }

  static std::string what(Quantity quantity, Reduction how) {
    constexpr const char* kNames[] = {"none", "SUM", "MIN", "AVG", "MAX"};
    if (quantity == kResult) return " have a log-sum-exp that is not that of the maximum and the denominator they used";
    const std::string of = quantity == kMaximum ? "row maxima" : "denominators";
    switch (how) {
      case kOwn:
        return quantity == kMaximum ? " normalised attention against the maximum of the own keys"
                                    : " divided attention by the denominator of the own keys only";
      case kOther:
        return " reduced the " + of + " with another reduction than " +
               (quantity == kMaximum ? kNames[kMost] : kNames[kAdded]);
      case kReductions: return " used " + of + " that no reduction of the members' values gives";
      default:
        return " reduced the " + of + " with " + kNames[how] + " instead of " +
               (quantity == kMaximum ? kNames[kMost] : kNames[kAdded]);
    }
  }

  // exp(-30) is beyond the tolerance of any sum that holds a one, also times a million keys.
  static constexpr double kNegligible = 30;

  const TraceIndex& index_;
  const std::vector<SoftmaxRow>& rows_;
  std::vector<Wrong> wrong_[kQuantities];
  size_t samples_ = 0, complete_ = 0;
};

}  // namespace

DataFindings three_step_softmax(const TraceIndex& index) { return ThreeStep(index).run(); }

}  // namespace ringscope
