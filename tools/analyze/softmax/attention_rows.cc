#include "tools/analyze/softmax/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <unordered_map>

#include "tools/analyze/softmax/samples.h"

namespace ringscope {
namespace {

constexpr double kSpread = 16;  // standard deviations
// Scores that are unsure by more say nothing about weights.
constexpr double kMostScoreError = 0.25;

double unit_roundoff(DType dtype) {
  switch (dtype) {
    case DType::kF64: return 0x1p-53;
    case DType::kF32: return 0x1p-24;
    default: return 0x1p-8;  // bf16
  }
}

bool contradicts_itself(const AttentionRow& r) {
  if (r.parts < 1 || r.head < 0) return true;
  const bool whole = r.kv_owner == kResultOwner;
  if (!whole && (r.kv_owner < 0 || r.kv_owner >= r.parts)) return true;
  if (r.maker != RowMaker::kRecomputed) return false;
  // A log-sum-exp lies between the maximum and that plus the logarithm of the keys; a size is no less than its value.
  if (whole || (r.keys == 0) != (r.lse == kSeesNothing)) return !std::isnan(r.lse);
  if (r.keys == 0 || !std::isfinite(r.m) || !std::isfinite(r.lse) || !std::isfinite(r.out)) return false;
  const double noise = 1e-9 * std::max({1.0, std::fabs(r.m), r.out_size});
  return r.lse < r.m - noise || r.lse > r.m + std::log(double(r.keys)) + noise ||
         std::fabs(r.out) > r.out_size + noise || r.score_noise < 0;
}

}  // namespace

AttentionCallRows collect_attention_rows(const TraceIndex& index) {
  const auto& rows = index.view.attention_rows;
  std::unordered_map<int, int> groups;
  // Blocks of three steps lie with the owners of the keys: all of a group belong together (-1 = not known).
  const auto maker = [&](const AttentionRow& r) {
    if (r.method == SoftmaxMethod::kLseMerge) return r.rank;
    const auto [it, fresh] = groups.try_emplace(r.rank, -1);
    if (fresh)
      if (const std::vector<int> members = index.cp_members(r.rank); members.size() > 1) it->second = members.front();
    return it->second;
  };
  using Key = std::tuple<int, int, Pass, int, SoftmaxMethod, int, uint32_t, uint32_t, int>;
  std::vector<std::pair<Key, size_t>> entries;
  for (size_t i = 0; i < rows.size(); ++i) {
    const AttentionRow& r = rows[i];
    entries.emplace_back(Key(r.where.step, r.where.microbatch, r.where.pass, r.where.layer, r.method, maker(r),
                             r.sample, r.position, r.head),
                         i);
  }
  std::sort(entries.begin(), entries.end());
  AttentionCallRows found;
  for (size_t i = 0; i < entries.size();) {
    const size_t first = i;
    AttentionCallRow row;
    row.parts = rows[entries[i].second].parts;
    bool sound = std::get<5>(entries[i].first) >= 0;
    for (; i < entries.size() && entries[i].first == entries[first].first; ++i) {
      const size_t at = entries[i].second;
      const AttentionRow& r = rows[at];
      sound = sound && !contradicts_itself(r) && r.parts == row.parts;
      if (r.kv_owner == kResultOwner) {
        sound = sound && row.result == SIZE_MAX;
        row.result = at;
        continue;
      }
      auto& blocks = r.maker == RowMaker::kRecomputed ? row.recomputed : row.put_out;
      sound = blocks.try_emplace(r.kv_owner, at).second && sound;
    }
    if (sound) found.rows.push_back(std::move(row));
    else if (std::get<5>(entries[first].first) >= 0) found.contradictory += int64_t(i - first);
  }
  return found;
}

std::vector<int> ranks_with_numbers(const TraceIndex& index, const Where& place) {
  std::map<int, bool> numbers;  // by rank: in all of its shares
  for (const AttentionRow& r : index.view.attention_rows) {
    Where where = r.where;
    where.ring_step = place.ring_step;
    if (!(where == place) || r.method != SoftmaxMethod::kGlobalThreeStep || r.maker != RowMaker::kKernel ||
        r.kv_owner == kResultOwner)
      continue;
    bool& all = numbers.try_emplace(r.rank, true).first->second;
    all = all && !std::isnan(r.out) && !std::isnan(r.lse) && r.lse != INFINITY;
  }
  std::vector<int> ranks;
  for (const auto& [rank, all] : numbers)
    if (all) ranks.push_back(rank);
  return ranks;
}

RowBounds row_bounds(const AttentionRow& r) {
  const double u = unit_roundoff(r.dtype), infinite = std::numeric_limits<double>::infinity();
  const double score = kSpread * u * r.score_noise + 4 * u * std::fabs(std::isfinite(r.m) ? r.m : 0);
  if (!(score < kMostScoreError)) return {infinite, infinite, infinite};
  const double sum = u * (kSpread * std::sqrt(double(r.keys)) + 32);
  const double lse = 2 * score + sum + 4 * u * std::fabs(std::isfinite(r.lse) ? r.lse : 0);
  return {score, lse, 2 * (2 * score + sum) * r.out_size};
}

WholeRow whole_row(const std::vector<AttentionRow>& rows, const AttentionCallRow& row) {
  WholeRow whole{kSeesNothing, 0, {}, true};
  for (const auto& [owner, at] : row.recomputed) {
    if (std::isnan(rows[at].lse) || rows[at].lse == INFINITY) whole.known = false;
    whole.lse = log_sum_exp(whole.lse, rows[at].lse);
  }
  if (!whole.known || whole.lse == kSeesNothing) return whole;
  double size = 0, u = 0;
  for (const auto& [owner, at] : row.recomputed) {
    const AttentionRow& r = rows[at];
    u = unit_roundoff(r.dtype);
    if (r.keys == 0) continue;
    const RowBounds part = row_bounds(r);
    const double weight = std::exp(r.lse - whole.lse);
    whole.out += weight * r.out;
    size += weight * r.out_size;
    whole.bounds.lse = std::max(whole.bounds.lse, part.lse);
    // What a part is off by moves its weight as well.
    whole.bounds.out += weight * (part.out + 2 * part.lse * r.out_size);
  }
  const double merges = 4 * u * double(row.recomputed.size());
  whole.bounds.lse += merges;
  whole.bounds.out += merges * size;
  whole.known = std::isfinite(whole.bounds.lse);
  return whole;
}

}  // namespace ringscope
