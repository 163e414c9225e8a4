#include <algorithm>

#include "runtime/layout/layout.h"

namespace ringscope {

const char* name(CpLayout layout) { return layout == CpLayout::kZigzag ? "zigzag" : "contiguous"; }

Result<SequenceSplit> SequenceSplit::make(int64_t length, int cp, CpLayout layout, int multiple) {
  if (length < 1 || length > (int64_t(1) << 30))
    return usage_error("a sequence of " + std::to_string(length) + " tokens cannot be split: use 1 to 2^30");
  if (cp < 1 || multiple < 1) return usage_error("context parallel size and multiple must be at least 1");
  SequenceSplit split;
  split.length_ = length;
  split.cp_ = cp;
  split.layout_ = layout;
  const int64_t unit = int64_t(cp) * (layout == CpLayout::kZigzag && cp > 1 ? 2 : 1) * multiple;
  split.padded_ = (length + unit - 1) / unit * unit;
  return split;
}

std::vector<Run> SequenceSplit::runs(int cp_rank) const {
  if (layout_ == CpLayout::kContiguous || cp_ == 1)
    return {{int32_t(cp_rank * shard()), int32_t(shard())}};
  const int32_t chunk = int32_t(padded_ / (2 * cp_));
  return {{cp_rank * chunk, chunk}, {(2 * cp_ - 1 - cp_rank) * chunk, chunk}};
}

std::vector<int32_t> SequenceSplit::rows(int cp_rank) const {
  std::vector<int32_t> rows;
  for (const Run& run : runs(cp_rank))
    for (int32_t i = 0; i < run.count; ++i) rows.push_back(run.start + i);
  return rows;
}

int SequenceSplit::owner(int64_t row) const {
  if (layout_ == CpLayout::kContiguous || cp_ == 1) return int(row / shard());
  const int64_t chunk = row / (padded_ / (2 * cp_));
  return int(std::min<int64_t>(chunk, 2 * cp_ - 1 - chunk));
}

SequenceInfo plain_sequence(const SequenceSplit& split) {
  SequenceInfo info;
  for (int64_t row = 0; row < split.padded(); ++row) {
    info.position.push_back(int32_t(row));
    info.document.push_back(row < split.length() ? 0 : -1);
  }
  return info;
}

Result<SequenceInfo> explicit_sequence(const SequenceSplit& split, const std::vector<int64_t>& position,
                                       const std::vector<int64_t>& document) {
  SequenceInfo info = plain_sequence(split);
  const auto fits = [&](const std::vector<int64_t>& v) { return v.empty() || int64_t(v.size()) == split.length(); };
  if (!fits(position) || !fits(document))
    return data_error("position_ids and document_ids need one value for each of the " + std::to_string(split.length()) + " tokens");
  for (int64_t row = 0; row < split.length(); ++row) {
    if (!position.empty()) {
      if (position[row] < 0 || position[row] > INT32_MAX)
        return data_error("position_ids[" + std::to_string(row) + "] = " + std::to_string(position[row]) + " is out of range");
      info.position[row] = int32_t(position[row]);
    }
    if (document.empty()) continue;
    if (document[row] < 0 || document[row] > INT32_MAX)
      return data_error("document_ids[" + std::to_string(row) + "] = " + std::to_string(document[row]) + " is out of range");
    if (row > 0 && document[row] < document[row - 1])
      return data_error("document_ids must not decrease: packed documents follow one another");
    info.document[row] = int32_t(document[row]);
  }
  return info;
}

std::vector<PositionRun> position_runs(const std::vector<int32_t>& rows, const std::vector<int32_t>& position,
                                       const std::vector<int32_t>& document) {
  std::vector<PositionRun> runs;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!runs.empty()) {
      PositionRun& last = runs.back();
      const bool padding = document[i] < 0;  // positions of padding mean nothing
      if (rows[i] == last.row + last.count && document[i] == last.document &&
          (padding || position[i] == last.position + last.count)) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({rows[i], 1, position[i], document[i]});
  }
  return runs;
}

Status check_cover(const SequenceSplit& split) {
  std::vector<int> owners(split.padded(), -1);
  for (int cp = 0; cp < split.cp(); ++cp)
    for (int32_t row : split.rows(cp)) {
      if (row < 0 || row >= split.padded() || owners[row] != -1)
        return internal_error("row " + std::to_string(row) + " is outside the sequence or owned twice");
      owners[row] = cp;
    }
  for (int64_t row = 0; row < split.padded(); ++row)
    if (owners[row] != split.owner(row)) return internal_error("row " + std::to_string(row) + " has no owner or two answers");
  return {};
}

int64_t padded_vocab(int64_t vocab, int tp) { return (vocab + tp - 1) / tp * tp; }

}  // namespace ringscope
