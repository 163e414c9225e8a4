// loss.per_rank_mean: a rank divided its loss by its own token count although other ranks of the same step
// counted tokens too, in other number: the mean of means weighs tokens by the shard they lie in.
#include <algorithm>
#include <cmath>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

// The rows of one step, one per data- and context-parallel coordinate (TP ranks hold copies).
struct Step {
  std::map<std::pair<int, int>, size_t> shards;  // (dp, cp) -> row
  std::vector<size_t> rows;
};

}  // namespace

std::vector<Finding> per_rank_mean(const TraceIndex& index) {
  const auto& rows = index.view.train_steps;
  std::map<int, Step> steps;
  std::set<std::pair<int, int>> coordinates;
  std::map<int, std::pair<int, int>> at;
  for (const RankRow& rank : index.view.ranks) {
    coordinates.insert({rank.dp, rank.cp});
    at[rank.rank] = {rank.dp, rank.cp};
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto place = at.find(rows[i].rank);
    if (place == at.end()) continue;
    Step& step = steps[rows[i].where.step];
    step.shards.try_emplace(place->second, i);
    step.rows.push_back(i);
  }
  Finding f;
  size_t count = 0;
  std::vector<int> accused;
  for (const auto& [number, step] : steps) {
    if (step.shards.size() < 2 || step.shards.size() != coordinates.size()) continue;  // a rank did not get here
    double total = 0, sum = 0;
    std::vector<double> counts;
    for (const auto& [place, row] : step.shards) {
      total += double(rows[row].valid_tokens);
      sum += rows[row].loss_sum;
      counts.push_back(double(rows[row].valid_tokens));
    }
    if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end()) continue;
    std::vector<size_t> wrong;
    for (size_t row : step.rows)
      if (rows[row].divisor == double(rows[row].valid_tokens) && rows[row].divisor != total) wrong.push_back(row);
    if (wrong.empty()) continue;
    ++count;
    for (size_t row : wrong) accused.push_back(rows[row].rank);
    if (count > 1) continue;
    f = make_finding("loss.per_rank_mean");
    f.where.step = number;
    f.first_ns = index.step_ns(rows[wrong[0]].rank, number);
    const TrainStepRow& shown = rows[wrong[0]];
    const double right = total > 0 ? sum / total : 0;
    f.sentence = " divided the loss by the own token count from step " + std::to_string(number) + " on (rank " +
                 std::to_string(shown.rank) + " by " + number_text(shown.divisor) + ", the global count is " +
                 number_text(total) + ") and averaged the means: reported loss " + number_text(shown.loss) +
                 ", token mean " + number_text(right);
    if (right != 0) f.sentence += " (off by " + number_text(100 * (shown.loss - right) / right) + " %)";
    for (const auto& [place, row] : step.shards)
      f.evidence.push_back(cite(index.view, "train_step", size_t(row),
                                "rank " + std::to_string(rows[row].rank) + " counted " +
                                    std::to_string(rows[row].valid_tokens) + " tokens, divided by " +
                                    number_text(rows[row].divisor)));
  }
  if (!count) return {};
  sort_unique(accused);
  f.ranks = accused;
  f.sentence = ranks_text(accused) + f.sentence;
  f.confidence = count > 1 ? 0.98 : 0.9;
  return {f};
}

}  // namespace ringscope
