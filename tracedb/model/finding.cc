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
  }
  return "unknown";
}

}  // namespace ringscope
