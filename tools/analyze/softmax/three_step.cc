// softmax.no_global_max, softmax.no_global_sum, softmax.sum_for_max: what the three-step global softmax used,
// against what its members had. For one query row of one context-parallel group, every member i recorded the
// maximum m_i and log-sum-exp l_i over its own keys, and what came out of the reductions:
//   m_used must be max_i m_i            (own m_i: no global max; sum_i m_i: SUM for MAX)
//   sum_used must be sum_i exp(l_i - m) (own exp(l_i - m): no global sum)
#include <algorithm>
#include <tuple>

#include "tools/analyze/softmax/samples.h"

namespace ringscope {
namespace {

enum Fault { kNoMax = 0, kSumForMax = 1, kNoSum = 2, kFaults = 3 };
constexpr const char* kIds[] = {"softmax.no_global_max", "softmax.sum_for_max", "softmax.no_global_sum"};

struct Tally {
  std::vector<int> ranks;
  size_t count = 0;
  std::vector<size_t> first;  // the parts of the row that is shown
  double expected = 0;
};

class ThreeStep {
 public:
  explicit ThreeStep(const TraceIndex& index) : index_(index), rows_(index.view.softmax_rows) {}

  std::vector<Finding> run() {
    // Key: group (its first rank), place, sample, query row, head.
    using Key = std::tuple<int, int, int, int, int, uint32_t, uint32_t, int>;
    std::map<Key, std::vector<size_t>> samples;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const SoftmaxRow& r = rows_[i];
      if (r.method != SoftmaxMethod::kGlobalThreeStep || r.kv_owner == kResultOwner) continue;
      samples[{r.where.step, r.where.microbatch, int(r.where.pass), r.where.layer, group_of(r.rank), r.sample,
               r.position, r.head}]
          .push_back(i);
    }
    for (const auto& [key, parts] : samples) check(parts);
    std::vector<Finding> found;
    for (int fault = 0; fault < kFaults; ++fault)
      if (tallies_[fault].count) found.push_back(finding(Fault(fault)));
    return found;
  }

 private:
  int group_of(int rank) {
    const auto [it, fresh] = groups_.try_emplace(rank, rank);
    if (fresh)
      if (const std::vector<int> members = index_.cp_members(rank); !members.empty()) it->second = members.front();
    return it->second;
  }

  void check(const std::vector<size_t>& parts) {
    if (parts.size() < 2 || int(parts.size()) != rows_[parts[0]].parts) return;  // a member did not record it
    double max = kSeesNothing, sum_of_max = 0;
    for (size_t i : parts) {
      if (std::isnan(rows_[i].m_own)) return;
      max = std::max(max, rows_[i].m_own);
      sum_of_max += rows_[i].m_own;
    }
    const auto all = [&](auto test) { return std::all_of(parts.begin(), parts.end(), test); };
    const auto used_max = [&](size_t i) { return close(rows_[i].m_used, max); };
    const auto used_own = [&](size_t i) { return close(rows_[i].m_used, rows_[i].m_own); };
    if (all(used_max)) return check_sum(parts, max);
    if (all(used_own)) return note(kNoMax, parts, parts, max);
    if (all([&](size_t i) { return close(rows_[i].m_used, sum_of_max); })) return note(kSumForMax, parts, parts, max);
    std::vector<size_t> wrong;
    for (size_t i : parts)
      if (!used_max(i) && used_own(i)) wrong.push_back(i);
    if (!wrong.empty()) note(kNoMax, parts, wrong, max);
  }

  void check_sum(const std::vector<size_t>& parts, double max) {
    if (std::isinf(max)) return;
    double total = 0;
    std::vector<double> own;
    for (size_t i : parts) {
      if (std::isnan(rows_[i].lse_own) || std::isnan(rows_[i].sum_used)) return;
      own.push_back(std::exp(rows_[i].lse_own - max));
      total += own.back();
    }
    std::vector<size_t> showing, consistent;
    for (size_t k = 0; k < parts.size(); ++k) {
      if (!close(rows_[parts[k]].sum_used, own[k])) continue;
      consistent.push_back(parts[k]);
      if (!close(own[k], total)) showing.push_back(parts[k]);
    }
    // Where no member has more than its own part, the whole group left the reduction out.
    if (!showing.empty()) note(kNoSum, parts, consistent.size() == parts.size() ? parts : showing, total);
  }

  void note(Fault fault, const std::vector<size_t>& parts, const std::vector<size_t>& accused, double expected) {
    Tally& tally = tallies_[fault];
    ++tally.count;
    for (size_t i : accused) tally.ranks.push_back(rows_[i].rank);
    if (!tally.first.empty() && !earlier(rows_[parts[0]].where, rows_[tally.first[0]].where)) return;
    tally.first = parts;
    tally.expected = expected;
  }

  Finding finding(Fault fault) {
    Tally& tally = tallies_[fault];
    sort_unique(tally.ranks);
    const SoftmaxRow& shown = rows_[tally.first[0]];
    Finding f = make_finding(kIds[fault]);
    f.ranks = tally.ranks;
    f.group = index_.cp_group(shown.rank);
    f.where = shown.where;
    f.where.ring_step = -1;
    f.first_ns = index_.step_ns(shown.rank, shown.where.step);
    f.op = "all_reduce";
    f.confidence = tally.count > 1 ? 0.98 : 0.9;
    std::string values;
    for (size_t i : tally.first) {
      const SoftmaxRow& r = rows_[i];
      const std::string text =
          "rank " + std::to_string(r.rank) +
          (fault == kNoSum ? ": denominator used " + number_text(r.sum_used)
                           : ": own maximum " + number_text(r.m_own) + ", used " + number_text(r.m_used));
      values += (values.empty() ? "" : "; ") + text;
      f.evidence.push_back(cite(index_.view, "softmax_row", size_t(i), text));
    }
    const std::string row = " from " + place_text(f.where) + " on (query row " + std::to_string(shown.position) +
                            ", head " + std::to_string(shown.head) + ": " + values + "; ";
    const std::string tail = number_text(tally.expected) + "; " + std::to_string(tally.count) + " sampled rows)";
    const std::string who = ranks_text(f.ranks);
    switch (fault) {
      case kNoMax:
        f.sentence = who + " normalised attention against the maximum of the own keys" + row +
                     "the maximum over the group is " + tail;
        break;
      case kSumForMax:
        f.sentence =
            who + " reduced the row maxima with SUM instead of MAX" + row + "the maximum over the group is " + tail;
        break;
      default:
        f.sentence = who + " divided attention by the denominator of the own keys only" + row +
                     "the sum over the group is " + tail;
    }
    return f;
  }

  const TraceIndex& index_;
  const std::vector<SoftmaxRow>& rows_;
  std::unordered_map<int, int> groups_;
  Tally tallies_[kFaults];
};

}  // namespace

std::vector<Finding> three_step_softmax(const TraceIndex& index) { return ThreeStep(index).run(); }

}  // namespace ringscope
