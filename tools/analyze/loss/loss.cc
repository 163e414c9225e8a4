// loss.per_rank_mean and loss.unexplained: what every rank of a step counted, divided by and reported. Where the trace
// holds the numbers between the stages, chain.cc tells at which of them it went wrong; what follows needs the ends only.
//
// Over the shards of a step (what differs over data and context parallelism; TP ranks hold copies) with loss sums s_i,
// counts n_i and divisors d_i, one relation must hold: the loss reported is the token mean, sum s_i / sum n_i. A rank
// that divides by its own count where counts differ averages means instead (loss.per_rank_mean). Another convention
// for the divisor that comes to the token mean contradicts nothing. Copies of a shard must have the same sums.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tools/analyze/confidence.h"
#include "tools/analyze/loss/chain.h"
#include "tools/analyze/loss/shards.h"
#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

// Sums over shards are added in fp64 or fp32; a wrong divisor or count is off by far more.
bool near(double a, double b) { return std::fabs(a - b) <= 1e-4 * std::max(std::fabs(a), std::fabs(b)); }

struct Step {
  int number = -1;
  std::vector<size_t> rows;                 // of every rank
  std::vector<std::vector<size_t>> copies;  // of them those of one shard
  std::vector<size_t> shards;               // the first of each
  double total = 0, sum = 0;                // over the shards: counted tokens, loss
  double mean() const { return total > 0 ? sum / total : 0; }
};

class Losses {
 public:
  explicit Losses(const TraceIndex& index) : index_(index), rows_(index.view.train_steps) {}

  DataFindings run() {
    DataFindings out;
    const std::vector<Step> steps = complete_steps();
    if (auto f = broken_loss_chain(index_, StepNumbers(index_))) {
      out.findings.push_back(std::move(*f));
    } else {
      if (auto g = per_rank_mean(steps)) out.findings.push_back(std::move(*g));
      if (auto g = copies_differ(steps)) out.findings.push_back(std::move(*g));
      else if (auto h = unexplained(steps)) out.findings.push_back(std::move(*h));
    }
    count_contradictions(out, "loss.contradictory_steps", contradictory_,
                         "steps that counted more tokens than there are");
    return out;
  }

 private:
  // Steps in which every rank of the job has a row. Where ranks or what they hold is unknown, there is none.
  std::vector<Step> complete_steps() {
    const auto& view = index_.view;
    const std::map<int, int> at = shards_of_ranks(index_);
    std::set<int> shards;
    for (const auto& [rank, shard] : at) shards.insert(shard);
    std::set<int> known;
    for (const CommRow& comm : view.comms) known.insert(comm.ranks.begin(), comm.ranks.end());
    const auto world = view.meta.find(meta_key::kWorldSize);
    const size_t size = std::max(known.size(), world == view.meta.end() ? 0 : size_t(std::atoi(world->second.c_str())));
    if (at.empty() || at.size() < size) return {};

    std::map<int, Step> steps;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (!at.contains(rows_[i].rank)) continue;
      if (rows_[i].tokens && rows_[i].valid_tokens > rows_[i].tokens) {
        ++contradictory_;
        continue;
      }
      Step& step = steps[rows_[i].where.step];
      step.number = rows_[i].where.step;
      step.rows.push_back(i);
    }
    std::vector<Step> complete;
    for (auto& [number, step] : steps) {
      std::map<int, std::vector<size_t>> copies;
      std::set<int> ranks;
      for (size_t row : step.rows) {
        ranks.insert(rows_[row].rank);
        copies[at.at(rows_[row].rank)].push_back(row);
      }
      // A rank did not get here, or a step came twice: sums would be wrong.
      if (copies.size() != shards.size() || ranks.size() != step.rows.size()) continue;
      for (auto& [shard, rows] : copies) {
        step.shards.push_back(rows[0]);
        step.total += double(rows_[rows[0]].valid_tokens);
        step.sum += rows_[rows[0]].loss_sum;
        step.copies.push_back(std::move(rows));
      }
      complete.push_back(std::move(step));
    }
    return complete;
  }

  // Ranks that divided by their own count. Where one shard holds all that is counted, its rank's own count is the
  // global one as well: it did what the others did.
  std::vector<size_t> own_counts(const Step& step) const {
    std::vector<size_t> own;
    bool wrong = false;
    for (size_t row : step.rows) {
      if (rows_[row].divisor != double(rows_[row].valid_tokens)) continue;
      own.push_back(row);
      wrong = wrong || rows_[row].divisor != step.total;
    }
    if (!wrong) own.clear();
    return own;
  }

  bool equal_counts(const Step& step) const {
    return std::all_of(step.shards.begin(), step.shards.end(),
                       [&](size_t row) { return rows_[row].valid_tokens == rows_[step.shards[0]].valid_tokens; });
  }

  // Completes a finding that was made from its first step with all who showed it, in so many steps.
  static std::optional<Finding> accuse(std::optional<Finding> found, std::vector<int> accused, size_t steps) {
    if (!found) return found;
    sort_unique(accused);
    found->ranks = accused;
    found->sentence = ranks_text(accused) + found->sentence;
    found->confidence = confidence({.agree = double(accused.size()), .observations = double(steps)});
    return found;
  }

  std::optional<Finding> per_rank_mean(const std::vector<Step>& steps) const {
    std::optional<Finding> found;
    std::vector<int> accused;
    size_t count = 0;
    for (const Step& step : steps) {
      if (step.shards.size() < 2 || equal_counts(step)) continue;
      const std::vector<size_t> own = own_counts(step);
      if (own.empty()) continue;
      ++count;
      for (size_t row : own) accused.push_back(rows_[row].rank);
      if (!found) found = per_rank_mean_finding(step, own);
    }
    return accuse(std::move(found), std::move(accused), count);
  }

  Finding per_rank_mean_finding(const Step& step, const std::vector<size_t>& own) const {
    const auto differs = [&](size_t row) { return rows_[row].divisor != step.total; };
    const TrainStepRow& shown = rows_[*std::find_if(own.begin(), own.end(), differs)];
    const double right = step.mean();
    Finding f = at_step("loss.per_rank_mean", shown);
    f.sentence = " divided the loss by the own token count from step " + std::to_string(step.number) + " on (rank " +
                 std::to_string(shown.rank) + " by " + number_text(shown.divisor) + ", the global count is " +
                 number_text(step.total) + ") and averaged the means: reported loss " + number_text(shown.loss) +
                 ", token mean " + number_text(right);
    if (right != 0) f.sentence += " (off by " + number_text(100 * (shown.loss - right) / right) + " %)";
    cite_shards(f, step);
    return f;
  }

  // Ranks that hold copies of one shard summed it differently: the first step. Without a majority nobody is accused.
  std::optional<Finding> copies_differ(const std::vector<Step>& steps) const {
    for (const Step& step : steps)
      for (const std::vector<size_t>& copies : step.copies) {
        const auto same = [&](size_t a, size_t b) {
          const TrainStepRow &x = rows_[a], &y = rows_[b];
          return x.valid_tokens == y.valid_tokens &&
                 (near(x.loss_sum, y.loss_sum) || !std::isfinite(x.loss_sum - y.loss_sum));
        };
        std::vector<int> odd;
        for (size_t row : copies) {
          const auto agree =
              std::count_if(copies.begin(), copies.end(), [&](size_t other) { return same(row, other); });
          if (size_t(agree) * 2 <= copies.size()) odd.push_back(rows_[row].rank);
        }
        if (odd.empty()) continue;
        const bool majority = odd.size() * 2 < copies.size();
        Finding f = at_step("loss.unexplained", rows_[copies[0]]);
        if (majority) f.ranks = odd;
        f.confidence = confidence({.agree = double(copies.size() - (majority ? odd.size() : 0)),
                                   .against = majority ? 0.0 : double(odd.size()) / 2});
        f.sentence = "ranks that hold the same tokens summed their loss differently from step " +
                     std::to_string(step.number) + " on (";
        for (size_t row : copies)
          f.sentence += (row == copies[0] ? "rank " : "; rank ") + std::to_string(rows_[row].rank) + ": " +
                        number_text(rows_[row].loss_sum) + " over " + std::to_string(rows_[row].valid_tokens) +
                        " tokens";
        f.sentence +=
            majority ? "); " + ranks_text(odd) + " departed from the others" : "); equal sums would be consistent";
        for (size_t row : copies)
          f.evidence.push_back(cite(index_.view, "train_step", row, "rank " + std::to_string(rows_[row].rank)));
        return f;
      }
    return std::nullopt;
  }

  // A step whose reported loss is not the token mean, for a reason that has no name.
  std::optional<Finding> unexplained(const std::vector<Step>& steps) const {
    std::optional<Finding> found;
    std::vector<int> accused;
    size_t count = 0;
    for (const Step& step : steps) {
      const auto number = [&](size_t row) {
        return std::isfinite(rows_[row].loss) && std::isfinite(rows_[row].divisor);
      };
      if (step.total <= 0 || !std::isfinite(step.sum) || !std::all_of(step.rows.begin(), step.rows.end(), number))
        continue;
      if (!equal_counts(step) && !own_counts(step).empty()) continue;  // has a name
      const std::vector<size_t> off = where(step, [&](size_t row) { return !near(rows_[row].loss, step.mean()); });
      if (off.empty()) continue;
      const std::vector<size_t> wrong = contradicting(step, off);
      ++count;
      for (size_t row : wrong) accused.push_back(rows_[row].rank);
      if (!found) found = unexplained_finding(step, rows_[wrong[0]]);
    }
    return accuse(std::move(found), std::move(accused), count);
  }

  template <class Test>
  std::vector<size_t> where(const Step& step, Test&& test) const {
    std::vector<size_t> rows;
    std::copy_if(step.rows.begin(), step.rows.end(), std::back_inserter(rows), test);
    return rows;
  }

  // Who is behind a loss that is wrong: who divides by something else than the global count, or whose share of the loss
  // entered twice or not at all; otherwise who reported it.
  std::vector<size_t> contradicting(const Step& step, const std::vector<size_t>& off) const {
    if (auto rows = where(step, [&](size_t row) { return !near(rows_[row].divisor, step.total); }); !rows.empty())
      return rows;
    const auto odd = std::find_if(step.copies.begin(), step.copies.end(), [&](const std::vector<size_t>& copies) {
      return share_counts(step, off, copies[0]);
    });
    return odd == step.copies.end() ? off : *odd;
  }

  // Do all reported losses lie one share beside the mean? Shares are alike, so that fp32 would not tell them apart.
  bool share_counts(const Step& step, const std::vector<size_t>& off, size_t shard) const {
    const double share = rows_[shard].loss_sum / step.total;
    return off.size() == step.rows.size() && std::all_of(off.begin(), off.end(), [&](size_t row) {
             const double apart = std::fabs(rows_[row].loss - step.mean());
             return std::fabs(apart - std::fabs(share)) <= 1e-7 * std::fabs(step.mean());
           });
  }

  Finding unexplained_finding(const Step& step, const TrainStepRow& shown) const {
    Finding f = at_step("loss.unexplained", shown);
    f.sentence = " contradict the loss from step " + std::to_string(step.number) + " on: rank " +
                 std::to_string(shown.rank) + " reported " + number_text(shown.loss) + " and divided by " +
                 number_text(shown.divisor) + "; the shards counted " + number_text(step.total) +
                 " tokens with a loss sum of " + number_text(step.sum) + ", so the loss " + number_text(step.mean()) +
                 " would be consistent";
    if (!near(shown.divisor, step.total) && step.total > 0)
      f.sentence += " (the divisor is " + number_text(shown.divisor / step.total) + " times the count)";
    cite_shards(f, step);
    return f;
  }

  Finding at_step(std::string_view id, const TrainStepRow& row) const {
    Finding f = make_finding(id);
    f.where.step = row.where.step;
    f.first_ns = index_.step_ns(row.rank, row.where.step);
    return f;
  }

  void cite_shards(Finding& f, const Step& step) const {
    for (size_t row : step.shards)
      f.evidence.push_back(cite(index_.view, "train_step", row,
                                "rank " + std::to_string(rows_[row].rank) + " counted " +
                                    std::to_string(rows_[row].valid_tokens) + " tokens, divided by " +
                                    number_text(rows_[row].divisor)));
  }

  const TraceIndex& index_;
  const std::vector<TrainStepRow>& rows_;
  int64_t contradictory_ = 0;
};

}  // namespace

DataFindings losses(const TraceIndex& index) { return Losses(index).run(); }

}  // namespace ringscope
