#include "runtime/fault/fault.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "runtime/fault/words.h"
#include "tracedb/base/nearest.h"

namespace ringscope {
namespace {

Result<int> number(std::string_view key, std::string_view value) {
  int out = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out);
  if (error != std::errc() || end != value.data() + value.size() || out < 0)
    return usage_error(fmt::format("fault key {}={} is not a number: use 0 or more", key, value));
  return out;
}

}  // namespace

bool sits_in_one_place(FaultId id) {
  switch (id) {
    case FaultId::kRingEarlyExit:
    case FaultId::kOpMismatch:
    case FaultId::kSkipAllReduce:
    case FaultId::kRankExit:
    case FaultId::kCrossGroupOrderOne:
    case FaultId::kRingBufferReuse:
    case FaultId::kRingUseBeforeArrival: return true;
    default: return false;
  }
}

Result<FaultPlan> parse_fault(std::string_view text) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  const FaultRow* row = find_fault(name);
  if (!row) {
    std::vector<std::string_view> names;
    for (const FaultRow& r : fault_rows()) names.push_back(r.name);
    return usage_error(fmt::format("unknown fault '{}'{}", name, did_you_mean(name, names)));
  }
  FaultPlan plan;
  plan.id = row->id;
  if (colon == text.size()) return plan;
  const std::vector<std::string_view> keys = split_words(row->keys, ',');
  std::vector<std::string_view> seen;
  for (std::string_view pair : split_words(text.substr(colon + 1), ',')) {
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view key = pair.substr(0, equals);
    if (std::find(keys.begin(), keys.end(), key) == keys.end())
      return usage_error(
          fmt::format("fault {} has no key '{}': use {}{}", name, key, fmt::join(keys, ", "), did_you_mean(key, keys)));
    if (std::find(seen.begin(), seen.end(), key) != seen.end())
      return usage_error(fmt::format("fault key '{}' is written twice", key));
    seen.push_back(key);
    const auto value = number(key, equals == pair.size() ? "" : pair.substr(equals + 1));
    if (!value) return tl::unexpected(value.error());
    if (key == "rank") plan.rank = *value, plan.rank_given = true;
    if (key == "layer") plan.layer = *value, plan.layer_given = true;
    if (key == "step") plan.step = *value;
    if (key == "ring_step") plan.ring_step = *value;
  }
  return plan;
}

std::string to_text(const FaultPlan& plan) {
  const auto rows = fault_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const FaultRow& r) { return r.id == plan.id; });
  if (row == rows.end()) return "";
  const bool one_place = sits_in_one_place(plan.id);
  std::vector<std::string> written;
  for (std::string_view key : split_words(row->keys, ',')) {
    if (key == "rank" && (one_place || plan.rank_given)) written.push_back(fmt::format("rank={}", plan.rank));
    if (key == "layer" && (one_place || plan.layer_given)) written.push_back(fmt::format("layer={}", plan.layer));
    if (key == "step") written.push_back(fmt::format("step={}", plan.step));
    if (key == "ring_step" && plan.ring_step >= 0) written.push_back(fmt::format("ring_step={}", plan.ring_step));
  }
  return fmt::format("{}:{}", row->name, fmt::join(written, ","));
}

}  // namespace ringscope
