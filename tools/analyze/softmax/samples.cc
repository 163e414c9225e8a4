#include "tools/analyze/softmax/samples.h"

#include <tuple>
#include <unordered_map>

namespace ringscope {
namespace {

// The most keys that any row of the job can see, as a logarithm.
double log_of_keys(const TraceView& view) {
  const auto padded = view.meta.find(meta_key::kPaddedLength);
  const double length = padded == view.meta.end() ? 0 : std::strtod(padded->second.c_str(), nullptr);
  return std::log(length >= 1 ? length : 2147483648.0);
}

bool contradicts_itself(const SoftmaxRow& r, double log_keys) {
  if (r.parts < 1 || r.head < 0) return true;
  if (r.kv_owner == kResultOwner) return false;
  if (r.kv_owner < 0 || r.kv_owner >= r.parts || r.where.ring_step >= r.parts) return true;
  if (std::isnan(r.m_own) || std::isnan(r.lse_own) || r.m_own == INFINITY || r.lse_own == INFINITY) return false;
  if (std::isinf(r.m_own) || std::isinf(r.lse_own)) return r.m_own != r.lse_own;
  // fp32 keeps seven digits of either.
  const double noise = 1e-3 + 1e-6 * std::fabs(r.m_own);
  return r.lse_own < r.m_own - noise || r.lse_own > r.m_own + log_keys + noise;
}

}  // namespace

SoftmaxSamples collect_samples(const TraceIndex& index, SoftmaxMethod method) {
  const auto& rows = index.view.softmax_rows;
  const double log_keys = log_of_keys(index.view);
  std::unordered_map<int, int> groups;
  // Who put the row together: the rank itself, or its group (-1 where that is not known).
  const auto maker = [&](int rank) {
    if (method == SoftmaxMethod::kLseMerge) return rank;
    const auto [it, fresh] = groups.try_emplace(rank, -1);
    if (fresh)
      if (const std::vector<int> members = index.cp_members(rank); members.size() > 1) it->second = members.front();
    return it->second;
  };
  struct Entry {
    int maker = 0;
    size_t row = 0;
  };
  std::vector<Entry> entries;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].method == method) entries.push_back({maker(rows[i].rank), i});
  const auto key = [&](const Entry& e) {
    const SoftmaxRow& r = rows[e.row];
    return std::tuple(r.where.step, r.where.microbatch, r.where.pass, r.where.layer, e.maker, r.sample, r.position,
                      r.head);
  };
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) { return key(a) < key(b); });

  SoftmaxSamples found;
  for (size_t i = 0; i < entries.size();) {
    SoftmaxSample sample;
    bool sound = true;
    const size_t first = i;
    for (; i < entries.size() && key(entries[i]) == key(entries[first]); ++i) {
      const SoftmaxRow& r = rows[entries[i].row];
      sound = sound && !contradicts_itself(r, log_keys) && r.parts == rows[entries[first].row].parts;
      if (r.kv_owner != kResultOwner) sample.parts.push_back(entries[i].row);
      else if (sample.result == SIZE_MAX) sample.result = entries[i].row;
      else sound = false;
    }
    const auto number = [&](size_t row) {
      return method == SoftmaxMethod::kLseMerge ? int(rows[row].where.ring_step) : rows[row].kv_owner;
    };
    std::stable_sort(sample.parts.begin(), sample.parts.end(),
                     [&](size_t a, size_t b) { return number(a) < number(b); });
    for (size_t k = 1; k < sample.parts.size(); ++k)
      sound = sound && number(sample.parts[k]) != number(sample.parts[k - 1]);
    sample.complete = !sample.parts.empty() && int(sample.parts.size()) == rows[sample.parts[0]].parts;
    if (sound) found.samples.push_back(std::move(sample));
    else found.contradictory += int64_t(i - first);
  }
  return found;
}

GroupRef sample_group(const TraceIndex& index, const SoftmaxSample& sample) {
  const auto& rows = index.view.softmax_rows;
  if (auto group = index.cp_group(rows[sample.parts[0]].rank)) return std::move(*group);
  GroupRef group{"cp", {}};
  for (size_t part : sample.parts) group.ranks.push_back(rows[part].rank);
  return group;
}

}  // namespace ringscope
