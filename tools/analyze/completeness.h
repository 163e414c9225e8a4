// What a trace lacks: the one rule that every verb's "clean" rests on.
//
// A recording of ours promises everything from the start of a run to its end: every loss, ring, rank, end and
// operation that is not there is missing. A foreign snapshot is a window: it lacks nothing when the windows of each
// group's members overlap, and what was lost before they all begin is behind nobody's verdict.
#pragma once

#include <string>
#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope {

// One noun phrase for each thing that is missing, for people ("the trace of rank 3"). Any of them makes a verdict
// without findings `incomplete`.
std::vector<std::string> missing_evidence(const TraceView& view);

// Files were there and not one row came out of them: nothing can be said at all.
bool nothing_read(const TraceView& view);

}  // namespace ringscope
