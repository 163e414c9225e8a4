// Circles of waits: strongly connected parts of what a replay left stuck that span two ranks or more. No schedule that the
// replay allows can run one.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/analyze/hang/replay.h"

namespace ringscope {

struct Circle {
  std::vector<int> lanes;       // in Stuck
  std::vector<int> ranks;       // sorted
  std::vector<uint32_t> heads;  // op rows in which they are blocked
};
std::vector<Circle> find_circles(const Stuck&);
std::set<uint32_t> groups_of(const TraceIndex&, const Circle&);  // communicators of the heads

// Replicas of one program close the same circle each, in equal operations: they are one mistake.
std::vector<std::vector<const Circle*>> put_together(const TraceIndex&, const std::vector<Circle>&);

// "all_reduce #3 of cp[0,2]"
std::string head_text(const TraceIndex&, uint32_t op_row);
// The shortest way from a lane back to itself, in words.
std::string walk(const TraceIndex&, const Stuck&, int start);

}  // namespace ringscope
