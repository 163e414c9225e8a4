// softmax.lse_merge: the recorded result of a merged row is not the log-sum-exp of the recorded parts.
#include <algorithm>
#include <tuple>

#include "tools/analyze/softmax/samples.h"

namespace ringscope {
namespace {

struct Row {
  std::vector<size_t> parts;  // rows in softmax_rows, in the order of the merge
  size_t result = SIZE_MAX;
};

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

}  // namespace

std::vector<Finding> lse_merge(const TraceIndex& index) {
  const auto& rows = index.view.softmax_rows;
  using Key = std::tuple<int, int, int, int, int, uint32_t, uint32_t, int>;
  std::map<Key, Row> samples;
  for (size_t i = 0; i < rows.size(); ++i) {
    const SoftmaxRow& r = rows[i];
    if (r.method != SoftmaxMethod::kLseMerge) continue;
    Row& row = samples[{r.where.step, r.where.microbatch, int(r.where.pass), r.where.layer, r.rank, r.sample,
                        r.position, r.head}];
    if (r.kv_owner == kResultOwner) row.result = i;
    else row.parts.push_back(i);
  }
  std::vector<int> accused;
  size_t count = 0;
  const Row* first = nullptr;
  for (auto& [key, row] : samples) {
    if (row.result == SIZE_MAX || row.parts.size() < 2 || int(row.parts.size()) != rows[row.result].parts) continue;
    const auto unknown = [&](size_t i) { return std::isnan(rows[i].lse_own); };
    if (std::isnan(rows[row.result].lse_result) || std::any_of(row.parts.begin(), row.parts.end(), unknown)) continue;
    std::stable_sort(row.parts.begin(), row.parts.end(),
                     [&](size_t a, size_t b) { return rows[a].where.ring_step < rows[b].where.ring_step; });
    std::vector<double> parts;
    for (size_t i : row.parts) parts.push_back(rows[i].lse_own);
    if (close(rows[row.result].lse_result, merged(parts))) continue;
    ++count;
    accused.push_back(rows[row.result].rank);
    if (!first || earlier(rows[row.result].where, rows[first->result].where)) first = &row;
  }
  if (!first) return {};
  const SoftmaxRow& result = rows[first->result];
  std::vector<double> parts;
  Finding f = make_finding("softmax.lse_merge");
  for (size_t i : first->parts) {
    parts.push_back(rows[i].lse_own);
    f.evidence.push_back(cite(index.view, "softmax_row", size_t(i), "part lse " + number_text(rows[i].lse_own)));
  }
  f.evidence.push_back(
      cite(index.view, "softmax_row", size_t(first->result), "merged lse " + number_text(result.lse_result)));
  sort_unique(accused);
  f.ranks = accused;
  f.group = index.cp_group(result.rank);
  f.where = result.where;
  f.where.ring_step = -1;
  f.first_ns = index.step_ns(result.rank, result.where.step);
  f.confidence = count > 1 ? 0.98 : 0.9;
  f.sentence = ranks_text(accused) + " merged attention parts wrongly from " + place_text(f.where) + " on: query row " +
               std::to_string(result.position) + ", head " + std::to_string(result.head) + " has the merged lse " +
               number_text(result.lse_result) + ", the log-sum-exp of its " + std::to_string(parts.size()) +
               " parts is " + number_text(merged(parts)) + "; " + equals(result.lse_result, parts) + " (" +
               std::to_string(count) + " sampled rows)";
  return {f};
}

}  // namespace ringscope
