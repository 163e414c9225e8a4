// softmax.lse_merge: the recorded result of a merged row is not the log-sum-exp of the recorded parts, or the parts are
// not one of every member.
#include <set>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/softmax/samples.h"

namespace ringscope {
namespace {

double merged(const std::vector<double>& parts) {
  double lse = kSeesNothing;
  for (double part : parts) lse = log_sum_exp(lse, part);
  return lse;
}

// What a wrong result is, if it is something known.
std::string equals(double result, const std::vector<double>& parts) {
  double last = kSeesNothing;
  for (double part : parts)
    if (std::isfinite(part)) last = part;
  if (close(result, parts.back()) || close(result, last)) return "it equals the last part alone (last part wins)";
  if (close(result, parts.front())) return "it equals the first part alone";
  for (size_t i = 0; i < parts.size(); ++i) {
    std::vector<double> other = parts;
    other.erase(other.begin() + long(i));
    if (close(result, merged(other))) return "part " + std::to_string(i) + " is missing from it";
    other = parts;
    other.push_back(parts[i]);
    if (close(result, merged(other))) return "part " + std::to_string(i) + " is counted twice in it";
  }
  const double lse = merged(parts);
  if (close(result, lse / std::log(2.0)) || close(result, lse * std::log(2.0)))
    return "it is off by the factor ln 2 (base 2 read as natural, or the other way round)";
  std::vector<double> base2 = parts;
  for (double& part : base2) part /= std::log(2.0);
  if (close(result, merged(base2))) return "the parts were taken as base-2 logarithms";
  if (close(result, *std::max_element(parts.begin(), parts.end()))) return "it equals the largest part alone";
  return "it is no known combination of them";
}

class LseMerge {
 public:
  explicit LseMerge(const TraceIndex& index) : index_(index), rows_(index.view.softmax_rows) {}

  DataFindings run() {
    const SoftmaxSamples all = collect_samples(index_, SoftmaxMethod::kLseMerge);
    const SoftmaxSample* first = nullptr;
    std::vector<int> accused;
    size_t wrong = 0, complete = 0;
    for (const SoftmaxSample& sample : all.samples) {
      if (sample.result == SIZE_MAX || sample.parts.size() < 2 || !sample.complete || !numbers(sample)) continue;
      ++complete;
      if (!repeated(sample) && close(rows_[sample.result].lse_result, merged(parts(sample)))) continue;
      ++wrong;
      accused.push_back(rows_[sample.result].rank);
      if (!first || earlier(rows_[sample.result].where, rows_[first->result].where)) first = &sample;
    }
    DataFindings out;
    if (first) {
      sort_unique(accused);
      Finding f = finding(*first, accused, wrong);
      f.confidence = confidence({.coverage = double(complete) / double(all.samples.size()),
                                 .agree = double(accused.size()),
                                 .observations = double(wrong)});
      out.findings.push_back(std::move(f));
    }
    count_contradictions(out, "softmax.contradictory_merge_rows", all.contradictory,
                         "sampled rows of merges with part numbers or log-sum-exps that cannot be");
    return out;
  }

 private:
  bool numbers(const SoftmaxSample& sample) const {
    return !std::isnan(rows_[sample.result].lse_result) &&
           std::none_of(sample.parts.begin(), sample.parts.end(),
                        [&](size_t i) { return std::isnan(rows_[i].lse_own); });
  }

  std::vector<double> parts(const SoftmaxSample& sample) const {
    std::vector<double> values;
    for (size_t i : sample.parts) values.push_back(rows_[i].lse_own);
    return values;
  }

  // Keys of one member merged twice, so those of another never.
  bool repeated(const SoftmaxSample& sample) const {
    std::set<int> owners;
    for (size_t i : sample.parts) owners.insert(rows_[i].kv_owner);
    return owners.size() < sample.parts.size();
  }

  Finding finding(const SoftmaxSample& sample, const std::vector<int>& accused, size_t wrong) const {
    const SoftmaxRow& result = rows_[sample.result];
    Finding f = make_finding("softmax.lse_merge");
    f.ranks = accused;
    f.group = index_.cp_group(result.rank);
    f.would_raise_confidence = "the tensors of this call (train --dump-attention LAYER,STEP), held against an oracle";
    f.where = result.where;
    f.where.ring_step = -1;
    f.first_ns = index_.step_ns(result.rank, result.where.step);
    const std::vector<double> values = parts(sample);
    f.sentence = ranks_text(accused) + " merged attention parts wrongly from " + place_text(f.where) +
                 " on: query row " + std::to_string(result.position) + ", head " + std::to_string(result.head) +
                 " has the merged lse " + number_text(result.lse_result) + ", the log-sum-exp of its " +
                 std::to_string(values.size()) + " parts is " + number_text(merged(values)) + "; " +
                 (repeated(sample) ? "the keys of one member are among them twice, those of another never"
                                   : equals(result.lse_result, values)) +
                 " (" + std::to_string(wrong) + " sampled rows)";
    for (size_t i : sample.parts)
      f.evidence.push_back(cite(index_.view, "softmax_row", i, "part lse " + number_text(rows_[i].lse_own)));
    f.evidence.push_back(
        cite(index_.view, "softmax_row", sample.result, "merged lse " + number_text(result.lse_result)));
    return f;
  }

  const TraceIndex& index_;
  const std::vector<SoftmaxRow>& rows_;
};

}  // namespace

DataFindings lse_merge(const TraceIndex& index) { return LseMerge(index).run(); }

}  // namespace ringscope
