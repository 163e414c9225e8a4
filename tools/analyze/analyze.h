// analyze: runs every family of rules over one trace and returns the finished report.
//
// Findings come sorted (roots first, then severity, time of the first divergence, confidence), consequences
// name their root in caused_by, verdict and missing_evidence are set, sources and import_stats are copied.
// Never fails: a table that is empty or partial gives fewer findings, never a wrong one. Thread-safe for
// different reports over the same view.
#pragma once

#include "tracedb/model/finding.h"
#include "tracedb/model/trace_view.h"

namespace ringscope {

Report analyze(const TraceView& view);

}  // namespace ringscope
