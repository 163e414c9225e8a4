#include "runtime/adversary/upload.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

namespace ringscope {
namespace {

// The rows of a CP rank under the other way to cut, as many as it has; that way may pad further.
std::vector<int32_t> rows_of(const std::string& layout, const SequenceSplit& split, int cp) {
  const CpLayout other = layout == "zigzag" ? CpLayout::kZigzag : CpLayout::kContiguous;
  std::vector<int32_t> rows = SequenceSplit::make(split.padded(), split.cp(), other)->rows(cp);
  rows.resize(size_t(split.shard()));
  return rows;
}

}  // namespace

Status check_upload(const Mutation& mutation, const SequenceSplit& split) {
  if (mutation.op == MutationOp::kNextRank && split.cp() < 2)
    return usage_error("there is no next rank: it needs --cp 2 or more");
  if (mutation.op == MutationOp::kLayout && mutation.value == name(split.layout()))
    return usage_error(fmt::format("the layout is {} already", mutation.value));
  if (mutation.op == MutationOp::kOffset && mutation.value == "0") return usage_error("an offset of 0 changes nothing");
  return {};
}

void change_upload(Upload& upload, const Mutation& mutation, const SequenceSplit& split) {
  std::vector<int32_t>& rows = upload.rows;
  switch (mutation.op) {
    case MutationOp::kOffset:
      std::from_chars(mutation.value.data(), mutation.value.data() + mutation.value.size(), upload.shift);
      break;
    case MutationOp::kNextRank: rows = split.rows((upload.cp + 1) % split.cp()); break;
    case MutationOp::kRestart: std::iota(rows.begin(), rows.end(), 0); break;
    case MutationOp::kHalves:
      std::rotate(rows.begin(), rows.begin() + std::ptrdiff_t(rows.size() / 2), rows.end());
      break;
    case MutationOp::kLayout: rows = rows_of(mutation.value, split, upload.cp); break;
    case MutationOp::kDuplicate:
      if (rows.size() > 1) rows[rows.size() / 2] = rows[rows.size() / 2 - 1];
      break;
    default: break;
  }
}

}  // namespace ringscope
