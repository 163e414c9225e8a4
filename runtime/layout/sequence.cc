// How a sequence is padded, dealt to the CP ranks and described token by token.
#include <fmt/format.h>

#include <limits>
#include <map>

#include "runtime/layout/layout.h"
#include "tracedb/base/check.h"

namespace ringscope {
namespace {

// Rows are int32 everywhere; the limit leaves room for the padding.
constexpr int64_t kMaxLength = 1 << 30;

int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

const char* name(CpLayout layout) { return layout == CpLayout::kZigzag ? "zigzag" : "contiguous"; }

Result<SequenceSplit> SequenceSplit::make(int64_t length, int cp, CpLayout layout, int multiple) {
  if (length < 1) return usage_error(fmt::format("seq_length is {}: use 1 or more", length));
  if (length > kMaxLength) return usage_error(fmt::format("seq_length is {}: use at most {}", length, kMaxLength));
  if (cp < 1) return usage_error(fmt::format("context_parallel_size is {}: use 1 or more", cp));
  RS_CHECK(multiple >= 1, "the multiple of a shard is positive");
  SequenceSplit split;
  split.length_ = length;
  split.cp_ = cp;
  split.layout_ = layout;
  // One rank holds the sequence in its own order, whatever the layout is called.
  const int chunks = layout == CpLayout::kZigzag && cp > 1 ? 2 * cp : cp;
  split.padded_ = round_up(length, int64_t(chunks) * multiple);
  if (split.padded_ > std::numeric_limits<int32_t>::max())
    return usage_error(
        fmt::format("seq_length {} with context_parallel_size {} is padded to {} rows: lower one of them", length, cp,
                    split.padded_));
  return split;
}

std::vector<Run> SequenceSplit::runs(int cp_rank) const {
  RS_CHECK(cp_rank >= 0 && cp_rank < cp_, "a rank of the CP group");
  const int32_t whole = int32_t(shard());
  if (layout_ == CpLayout::kContiguous || cp_ == 1) return {{cp_rank * whole, whole}};
  const int32_t chunk = whole / 2;
  const Run head{cp_rank * chunk, chunk}, tail{(2 * cp_ - 1 - cp_rank) * chunk, chunk};
  if (head.start + chunk == tail.start) return {{head.start, whole}};  // the last rank's chunks touch
  return {head, tail};
}

std::vector<int32_t> SequenceSplit::rows(int cp_rank) const {
  std::vector<int32_t> out;
  out.reserve(size_t(shard()));
  for (const Run& run : runs(cp_rank))
    for (int32_t i = 0; i < run.count; ++i) out.push_back(run.start + i);
  return out;
}

int SequenceSplit::owner(int64_t row) const {
  RS_CHECK(row >= 0 && row < padded_, "row lies in the padded sequence");
  if (layout_ == CpLayout::kContiguous || cp_ == 1) return int(row / shard());
  const int chunk = int(row / (shard() / 2));
  return chunk < cp_ ? chunk : 2 * cp_ - 1 - chunk;
}

SequenceInfo plain_sequence(const SequenceSplit& split) {
  SequenceInfo info;
  info.position.assign(size_t(split.padded()), 0);
  info.document.assign(size_t(split.padded()), -1);
  for (int64_t row = 0; row < split.length(); ++row) {
    info.position[size_t(row)] = int32_t(row);
    info.document[size_t(row)] = 0;
  }
  return info;
}

namespace {

Status check_ids(const char* what, const std::vector<int64_t>& ids, int64_t length) {
  if (ids.empty()) return {};
  if (int64_t(ids.size()) != length)
    return data_error(
        fmt::format("{} has {} entries for a sequence of {} tokens: give one a token", what, ids.size(), length));
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] > std::numeric_limits<int32_t>::max())
      return data_error(fmt::format("{}[{}] is {}: use 0 to {}", what, i, ids[i], std::numeric_limits<int32_t>::max()));
  return {};
}

}  // namespace

Result<SequenceInfo> explicit_sequence(const SequenceSplit& split, const std::vector<int64_t>& position,
                                       const std::vector<int64_t>& document) {
  if (auto status = check_ids("position_ids", position, split.length()); !status) return tl::unexpected(status.error());
  if (auto status = check_ids("document_ids", document, split.length()); !status) return tl::unexpected(status.error());
  SequenceInfo info = plain_sequence(split);
  std::map<int32_t, int32_t> seen;  // tokens of a document so far
  for (size_t row = 0; row < size_t(split.length()); ++row) {
    if (!document.empty()) {
      info.document[row] = int32_t(document[row]);
      info.position[row] = seen[info.document[row]]++;
    }
    if (!position.empty()) info.position[row] = int32_t(position[row]);
  }
  return info;
}

std::vector<PositionRun> position_runs(const std::vector<int32_t>& rows, const std::vector<int32_t>& position,
                                       const std::vector<int32_t>& document) {
  RS_CHECK(rows.size() == position.size() && rows.size() == document.size(), "one entry a token in each list");
  std::vector<PositionRun> runs;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!runs.empty()) {
      PositionRun& last = runs.back();
      if (rows[i] == last.row + last.count && position[i] == last.position + last.count &&
          document[i] == last.document) {
        ++last.count;
        continue;
      }
    }
    runs.push_back({rows[i], 1, position[i], document[i]});
  }
  return runs;
}

Status check_cover(const SequenceSplit& split) {
  std::vector<int> owner(size_t(split.padded()), -1);
  for (int r = 0; r < split.cp(); ++r)
    for (int32_t row : split.rows(r)) {
      if (row < 0 || row >= split.padded())
        return internal_error(fmt::format("row {} of CP rank {} lies outside the {} rows", row, r, split.padded()));
      if (owner[size_t(row)] >= 0)
        return internal_error(fmt::format("row {} belongs to CP ranks {} and {}", row, owner[size_t(row)], r));
      owner[size_t(row)] = r;
    }
  for (size_t row = 0; row < owner.size(); ++row) {
    if (owner[row] < 0) return internal_error(fmt::format("row {} belongs to no CP rank", row));
    if (owner[row] != split.owner(int64_t(row)))
      return internal_error(
          fmt::format("row {} is held by CP rank {}, and owner() says {}", row, owner[row], split.owner(int64_t(row))));
  }
  return {};
}

int64_t padded_vocab(int64_t vocab, int tp) { return round_up(vocab, tp); }

}  // namespace ringscope
