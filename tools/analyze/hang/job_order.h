// In which order the job ran two operations that a circle of waits shows in both orders. No order is declared: the one
// that most ranks follow at this place, or that the ranks followed before, is the job's.
#pragma once

#include <string>
#include <vector>

#include "tools/analyze/confidence.h"
#include "tools/analyze/index.h"

namespace ringscope {

struct JobOrder {
  uint64_t first = 0;        // program digest of the operation that the job runs here; 0 = nothing tells
  std::vector<int> departs;  // ranks whose host ran another of the operations here, sorted
  Support support;
  std::string why;  // "6 of 8 ranks follow it here"
};

// `heads`: op rows in which the ranks of the circle are blocked, one or more a rank.
JobOrder job_order(const TraceIndex&, const std::vector<uint32_t>& heads);

}  // namespace ringscope
