// From the id of an operation to its row, in 4 bytes an operation: ids are ring << 40 | sequence, so that the ids of one
// ring lie densely.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope {

class OpRows {
 public:
  explicit OpRows(const std::vector<OpRow>& ops);
  uint32_t row_of(uint64_t op) const;  // kNoRow: not there

 private:
  struct Ring {
    uint64_t first = 0, last = 0, count = 0;  // of its sequence numbers
    std::vector<uint32_t> rows;               // from `first`
  };
  std::unordered_map<uint32_t, Ring> rings_;
  std::unordered_map<uint64_t, uint32_t> scattered_;  // of rings whose ids are not dense (damaged ones)
};

// Sets the links between operations and their rows in colls, p2ps and accesses.
void link_operations(TraceView& view);

}  // namespace ringscope
