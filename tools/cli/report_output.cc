#include "tools/cli/report_output.h"

#include <fmt/format.h>

namespace ringscope::cli {

Option fail_on_option() {
  return {"fail-on", "note|warning|error", "least severity that gives exit code 1 (default warning)", "", ""};
}

Result<Severity> fail_on(const Arguments& args) {
  const std::string word = args.find("fail-on").value_or(name(Severity::kWarning));
  for (Severity severity : {Severity::kNote, Severity::kWarning, Severity::kError})
    if (word == name(severity)) return severity;
  return usage_error(fmt::format("--fail-on '{}' is unknown: use note, warning or error", word));
}

int report_exit_code(const Report& report, Severity least) {
  if (report.verdict == Verdict::kUnreadable) return kExitData;
  if (report.verdict == Verdict::kUndecided) return kExitUndecided;
  for (const Finding& finding : report.findings)
    if (finding.severity >= least) return kExitFindings;
  return report.verdict == Verdict::kIncomplete ? kExitUndecided : kExitClean;
}

Report unreadable_report(const std::vector<std::string>& paths, const std::string& why) {
  Report report;
  report.verdict = Verdict::kUnreadable;
  for (const std::string& path : paths) report.sources.push_back({path, "unknown"});
  report.import_stats.push_back({"unreadable", "error", 1, why});
  return report;
}

}  // namespace ringscope::cli
