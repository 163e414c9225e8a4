#include "tools/analyze/position/explanations.h"

#include <algorithm>
#include <optional>

namespace ringscope {
namespace {

constexpr const char* kLayouts[] = {"contiguous", "zigzag", "striped"};

// Rows first, first + step, ...
struct DealtRows {
  int64_t first = 0, count = 0, step = 1;
};

// Rows of CP rank r of cp when `tokens` rows a rank are dealt in a layout. Zigzag chunks that are not whole would be padded
// further: of those the first `tokens` rows.
std::vector<DealtRows> dealt(std::string_view layout, int64_t tokens, int64_t cp, int64_t r) {
  if (layout == "contiguous") return {{r * tokens, tokens, 1}};
  if (layout == "striped") return {{r, tokens, cp}};
  const int64_t chunk = (tokens + 1) / 2;
  return {{r * chunk, chunk, 1}, {(2 * cp - 1 - r) * chunk, tokens - chunk, 1}};
}

std::vector<DealtRows> dealt_to(const TraceIndex& index, const AppliedShard& shard, std::string_view layout) {
  const std::vector<int> owners = shard_owners(index, *shard.sample, shard.data->rank);
  const auto self = std::find(owners.begin(), owners.end(), shard.data->rank);
  if (self == owners.end() || owners.size() < 2) return {};
  return dealt(layout, int64_t(shard.data->tokens), int64_t(owners.size()), self - owners.begin());
}

// Are the rows of the shard exactly the dealt ones?
bool holds(const PositionRuns& runs, const PositionBlock& data, const std::vector<DealtRows>& rows) {
  size_t piece = 0;
  int64_t in_piece = 0;
  return !rows.empty() && walk(runs, data, data, [&](const Stretch& s) {
    for (int64_t done = 0; done < int64_t(s.count);) {
      if (piece == rows.size()) return false;
      const DealtRows& at = rows[piece];
      const int64_t n = std::min(int64_t(s.count) - done, at.count - in_piece);
      if (at.first + in_piece * at.step != s.row_a() + done || (n > 1 && at.step != 1)) return false;
      done += n;
      if ((in_piece += n) == at.count) in_piece = 0, ++piece;
    }
    return true;
  });
}

// Walks what the positions of dealt rows would be, as stretches in storage order: (count, position, stride). A row
// that nobody recorded is padding (position 0), or its rank's record is missing and its position is its row.
class DealtPositions {
 public:
  DealtPositions(const std::vector<const PositionRunRow*>& global, std::vector<DealtRows> rows)
      : global_(global), rows_(std::move(rows)) {}

  // Does the stretch hold the next s.count positions? Padding of the data only passes by.
  bool next(const Stretch& s) {
    for (int64_t done = 0; done < int64_t(s.count);) {
      if (piece_ == rows_.size()) return false;
      const DealtRows& at = rows_[piece_];
      const int64_t row = at.first + in_piece_ * at.step;
      const auto [run, rows_left] = find(row);
      const int64_t n = std::min({int64_t(s.count) - done, at.count - in_piece_, (rows_left + at.step - 1) / at.step});
      Stretch part = s;
      part.in_a += uint64_t(done), part.in_b += uint64_t(done);
      part.count = uint64_t(n);
      if (!s.padding() && !same(part, run, row, at.step)) return false;
      done += n;
      if ((in_piece_ += n) == at.count) in_piece_ = 0, ++piece_;
    }
    return true;
  }

 private:
  // The run that holds a row, or null, and how many rows from it on that stays so.
  std::pair<const PositionRunRow*, int64_t> find(int64_t row) const {
    auto next = std::upper_bound(global_.begin(), global_.end(), row,
                                 [](int64_t r, const PositionRunRow* run) { return r < int64_t(run->token_start); });
    if (next != global_.begin()) {
      const PositionRunRow* run = *(next - 1);
      if (const int64_t end = int64_t(run->token_start) + run->count; row < end) return {run, end - row};
    }
    return {nullptr, next == global_.end() ? INT64_MAX / 2 : int64_t((*next)->token_start) - row};
  }
  static bool same(const Stretch& part, const PositionRunRow* run, int64_t row, int64_t step) {
    if (!run) return part.b_is(0, 0) || part.b_is(row, step);
    return part.b_is(first_position(*run) + (row - int64_t(run->token_start)) * run->stride, run->stride * step);
  }

  const std::vector<const PositionRunRow*>& global_;
  std::vector<DealtRows> rows_;
  size_t piece_ = 0;
  int64_t in_piece_ = 0;
};

bool of_layout(const TraceIndex& index, const AppliedShard& shard, std::string_view layout) {
  std::vector<DealtRows> rows = dealt_to(index, shard, layout);
  if (rows.empty() || holds(*shard.runs, *shard.data, rows)) return false;
  DealtPositions expected(*shard.global, std::move(rows));
  return walk(*shard.runs, *shard.data, *shard.applied, [&](const Stretch& s) { return expected.next(s); });
}

// Position = index within the shard, or within each of its contiguous chunks.
bool restarts(const AppliedShard& shard) {
  bool in_shard = true, in_chunk = true;
  int64_t chunk = 0, next_row = -1;  // offset where the chunk began; the row that would continue it
  walk(*shard.runs, *shard.data, *shard.applied, [&](const Stretch& s) {
    if (s.row_a() != next_row) chunk = int64_t(s.offset);
    next_row = s.row_a() + int64_t(s.count);
    if (s.padding()) return true;
    in_shard = in_shard && s.b_is(int64_t(s.offset), 1);
    in_chunk = in_chunk && s.b_is(int64_t(s.offset) - chunk, 1);
    return in_shard || in_chunk;
  });
  return in_shard || in_chunk;
}

// The one number that was added to every position of the shard. Below 0 there is none: such positions are 0.
std::optional<int64_t> constant(const AppliedShard& shard) {
  std::optional<int64_t> added;
  walk(*shard.runs, *shard.data, *shard.applied, [&](const Stretch& s) {
    if (!s.padding()) added = s.position_b() - s.position_a();  // of the last: the largest
    return true;
  });
  const bool one = added && walk(*shard.runs, *shard.data, *shard.applied, [&](const Stretch& s) {
                     const int64_t start = s.position_a() + *added;
                     const bool cut = start + int64_t(s.count - 1) * s.a->stride <= 0;
                     return s.padding() || s.b_is(start, s.a->stride) || (cut && s.b_is(0, 0));
                   });
  return one && *added != 0 ? added : std::nullopt;
}

// The other rank whose positions were applied here; -1 = none.
int other_rank(const AppliedShard& shard) {
  for (const PositionBlock& other : shard.sample->blocks) {
    if (other.role != PositionRole::kData || other.rank == shard.data->rank) continue;
    const bool same = walk(*shard.runs, other, *shard.applied,
                           [](const Stretch& s) { return s.padding() || s.b_is(s.position_a(), s.a->stride); });
    if (same) return other.rank;
  }
  return -1;
}

// Half-open ranges of positions of a block's tokens, sorted; nothing where positions do not count up one by one.
// Padding (of the data) is left out.
struct Range {
  int64_t begin, end;
};
std::optional<std::vector<Range>> ranges(const PositionRuns& runs, const PositionBlock& data, const PositionBlock& of) {
  std::vector<Range> found;
  const bool plain = walk(runs, data, of, [&](const Stretch& s) {
    if (!s.padding()) found.push_back({s.position_b(), s.position_b() + int64_t(s.count)});
    return s.padding() || s.count == 1 || s.b->stride == 1;
  });
  if (!plain) return std::nullopt;
  std::sort(found.begin(), found.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return found;
}
int64_t first_twice(const std::vector<Range>& sorted) {
  int64_t covered = INT64_MIN;
  for (const Range& range : sorted) {
    if (range.begin < covered) return range.begin;
    covered = range.end;
  }
  return -1;
}

bool overlaps(const AppliedShard& shard) {
  const auto made = ranges(*shard.runs, *shard.data, *shard.data),
             applied = ranges(*shard.runs, *shard.data, *shard.applied);
  if (!made || !applied || first_twice(*made) >= 0 || first_twice(*applied) < 0) return false;
  std::vector<Range> right;  // of the sample, joined
  for (const PositionRunRow* run : *shard.global) {
    if (run->stride != 1 && run->count > 1) return false;
    right.push_back({first_position(*run), first_position(*run) + int64_t(run->count)});
  }
  std::sort(right.begin(), right.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> joined;
  for (const Range& range : right) {
    if (!joined.empty() && range.begin <= joined.back().end) joined.back().end = std::max(joined.back().end, range.end);
    else joined.push_back(range);
  }
  return std::all_of(applied->begin(), applied->end(), [&](const Range& range) {
    return std::any_of(joined.begin(), joined.end(),
                       [&](const Range& r) { return r.begin <= range.begin && range.end <= r.end; });
  });
}

// The first position that the shard holds twice.
int64_t doubled_position(const AppliedShard& shard) {
  const auto applied = ranges(*shard.runs, *shard.data, *shard.applied);
  return applied ? first_twice(*applied) : -1;
}

// Do the positions of the second half stand in front of those of the first?
bool halves_exchanged(const AppliedShard& shard) {
  const uint64_t half = shard.data->tokens / 2;
  if (half == 0) return false;
  // Token by token would not end for long shards: what was made, cut where the halves meet, the second half first.
  struct Piece {
    uint64_t count;
    int64_t position, stride;
  };
  std::vector<Piece> front, back;
  walk(*shard.runs, *shard.data, *shard.data, [&](const Stretch& s) {
    const uint64_t in_front = s.offset >= half ? 0 : std::min(s.count, half - s.offset);
    if (in_front) front.push_back({in_front, s.position_a(), s.a->stride});
    if (in_front < s.count)
      back.push_back({s.count - in_front, s.position_a() + int64_t(in_front) * s.a->stride, s.a->stride});
    return true;
  });
  back.insert(back.end(), front.begin(), front.end());
  size_t piece = 0;
  uint64_t used = 0;
  return walk(*shard.runs, *shard.data, *shard.applied, [&](const Stretch& s) {
    for (uint64_t done = 0; done < s.count;) {
      const Piece& at = back[piece];
      const uint64_t n = std::min(s.count - done, at.count - used);
      Stretch part = s;
      part.in_b += done;
      part.count = n;
      if (!s.padding() && !part.b_is(at.position + int64_t(used) * at.stride, at.stride)) return false;
      done += n;
      if ((used += n) == at.count) used = 0, ++piece;
    }
    return true;
  });
}

// What an offset is, in words: "the right ones plus 1", "those of rank 2".
std::string offset_text(const AppliedShard& shard) {
  const int other = other_rank(shard);
  std::string text;
  if (const auto added = constant(shard)) {
    text = "the right ones " + std::string(*added < 0 ? "minus " : "plus ") + std::to_string(std::abs(*added));
    if (std::abs(*added) == int64_t(shard.data->tokens)) text += ", the length of a shard";
  }
  if (other >= 0) text += (text.empty() ? "" : ": ") + ("those of rank " + std::to_string(other));
  return text;
}

}  // namespace

bool explains(const TraceIndex& index, PositionFault fault, const AppliedShard& shard) {
  switch (fault) {
    case PositionFault::kRestart: return restarts(shard);
    case PositionFault::kContiguous:
    case PositionFault::kZigzag:
    case PositionFault::kStriped:
      return of_layout(index, shard, kLayouts[int(fault) - int(PositionFault::kContiguous)]);
    case PositionFault::kHalves: return halves_exchanged(shard);
    case PositionFault::kOffset: return constant(shard) || other_rank(shard) >= 0;
    case PositionFault::kOverlap: return overlaps(shard);
    case PositionFault::kCount: break;
  }
  return false;
}

PositionFault best_explanation(const TraceIndex& index, const std::vector<AppliedShard>& shards) {
  for (int fault = 0; fault < int(PositionFault::kCount); ++fault)
    if (std::all_of(shards.begin(), shards.end(),
                    [&](const AppliedShard& shard) { return explains(index, PositionFault(fault), shard); }))
      return PositionFault(fault);
  return PositionFault::kCount;
}

const char* id_of(PositionFault fault) {
  constexpr const char* kIds[] = {"position.restart", "position.layout", "position.layout",  "position.layout",
                                  "position.layout",  "position.offset", "position.overlap", "position.unexplained"};
  return kIds[int(fault)];
}

std::string text_of(const TraceIndex& index, PositionFault fault, const AppliedShard& shard) {
  switch (fault) {
    case PositionFault::kRestart: return " restart at 0 in the shard";
    case PositionFault::kHalves: return " are those of the shard with its second half in front of the first";
    case PositionFault::kOffset: return " are " + offset_text(shard);
    case PositionFault::kOverlap:
      return " cover a position twice (" + std::to_string(doubled_position(shard)) + ") and others never";
    case PositionFault::kCount:
      return " are not those that the loader made, nor a restart, another layout or an offset of them; those of the "
             "loader would be consistent,";
    default: break;
  }
  const std::string own = layout_of(index, shard);
  return std::string(" are those of the ") + kLayouts[int(fault) - int(PositionFault::kContiguous)] +
         " layout, but the data is laid out " + (own.empty() ? "otherwise" : own);
}

std::string layout_of(const TraceIndex& index, const AppliedShard& shard) {
  for (const char* layout : kLayouts)
    if (holds(*shard.runs, *shard.data, dealt_to(index, shard, layout))) return layout;
  return "";
}

}  // namespace ringscope
