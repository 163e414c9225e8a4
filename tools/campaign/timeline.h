// One rank's recorded program as the judge reads it: operations, records, waits and host waits in the order of their
// issue, and which of them is which site. Built from a run without a mutation.
#pragma once

#include <string>
#include <vector>

#include "runtime/fault/site.h"
#include "tracedb/base/result.h"
#include "tracedb/model/trace_view.h"

namespace ringscope::campaign {

struct Item {
  enum class Kind : uint8_t { kOp, kRecord, kWait, kHostSync, kHostRead };  // kHostRead: of what the host waited for
  Kind kind = Kind::kOp;
  uint32_t row = 0;     // in TraceView::ops, or ::syncs
  uint32_t stream = 0;  // as in ops
  uint64_t key = 0;     // of a record or wait
  uint64_t group = 0;   // of an operation: its group call
  std::string_view name;
};

struct Timeline {
  std::vector<Item> items;
  std::vector<uint32_t> item_of_site;            // by site index; kNoRow = a creation or a loader's column
  std::vector<std::vector<AccessRow>> accesses;  // by item; empty of syncs
  std::vector<std::pair<uint32_t, std::string>> streams;
};

// kInternal: the recorded program and the listed sites are not the same program.
Result<Timeline> timeline_of(const TraceView& view, int rank, const std::vector<Site>& sites);

inline bool is_statistic(std::string_view name) { return name.starts_with("statistics."); }

}  // namespace ringscope::campaign
