// Several sources of one job as one view: what a job of many processes leaves is one trace per process or host.
#pragma once

#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope {

// The rows of all views in (rank, issue) order. Operations, streams, buffers, events and keys get ids that are unique in
// the job, communicators are identified across sources by their members (CommIdentity), texts are numbered anew, and
// every row keeps its source and its id there (origins). Of facts that sources repeat (a rank, meta), the first counts;
// the outcome is "stalled" if one source says so, and known only if every source that has operations tells it.
// Takes the views apart.
TraceView merge_views(std::vector<TraceView> views);

}  // namespace ringscope
