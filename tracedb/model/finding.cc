#include "tracedb/model/finding.h"

namespace ringscope {

const char* name(Severity severity) {
  switch (severity) {
    case Severity::kNote: return "note";
    case Severity::kWarning: return "warning";
    case Severity::kError: return "error";
  }
  return "unknown";
}

const char* name(Verdict verdict) {
  switch (verdict) {
    case Verdict::kClean: return "clean";
    case Verdict::kFindings: return "findings";
    case Verdict::kUndecided: return "undecided";
    case Verdict::kUnreadable: return "unreadable";
    case Verdict::kIncomplete: return "incomplete";
  }
  return "unknown";
}

Evidence cite(const TraceView& view, std::string_view table, size_t index, std::string text) {
  Evidence evidence{0, std::string(table), int64_t(index) + 1, std::move(text)};
  for (size_t t = 0; t < size_t(TableId::kCount); ++t) {
    if (table != name(TableId(t))) continue;
    const RowRun run = run_of(view.origins[t], index);
    evidence.source = run.source;
    evidence.row = run.first_id + int64_t(index - run.first);
  }
  return evidence;
}

}  // namespace ringscope
