// The rules of every family. Each is a function of the shared index and returns findings; none knows the others.
// Roots and consequences between families are settled in analyze.cc.
#pragma once

#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

std::vector<Finding> hang_and_ring(const TraceIndex&);    // hang/hang.cc; consequences name their root in caused_by
std::vector<Finding> odd_calls(const TraceIndex&);        // hang/odd_call.cc; where no named root was found
std::vector<Finding> exchanged_calls(const TraceIndex&);  // hang/exchanged_call.cc; likewise
std::vector<Finding> races(const TraceIndex&);            // race/report.cc
// Appends them; what follows from a root that is already there names it in caused_by.
void add_races(std::vector<Finding>& found, std::vector<Finding> races);
// softmax, position, loss and numeric: numeric/numeric.h

}  // namespace ringscope
