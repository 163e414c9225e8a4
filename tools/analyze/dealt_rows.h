// Which rows of which samples the loader gave each rank, in the first step that was recorded: what tells copies from
// shards, and the groups that split a sequence, whatever their labels say.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope {

struct DealtRun {
  uint32_t sample = 0, start = 0, count = 0;  // rows [start, start + count) of the global sequence
  auto operator<=>(const DealtRun&) const = default;
};

using DealtRows = std::map<int, std::vector<DealtRun>>;  // by rank, in storage order; without ranks that recorded none
DealtRows dealt_rows(const TraceView& view);

// The axis whose groups split sequences: CP by its label. Where members of a group of that label hold the same rows,
// while the groups of exactly one other label all hold parts of the same samples, the labels are wrong.
Axis sequence_axis(const TraceView& view, const DealtRows& rows);

}  // namespace ringscope
