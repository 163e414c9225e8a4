#include "tools/cli/report_output.h"

#include <fmt/format.h>

namespace ringscope::cli {
namespace {

constexpr const char* kUnreadable = "input.unreadable";

}  // namespace

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
  return report.missing_evidence.empty() ? kExitClean : kExitUndecided;
}

int report_exit_code(std::span<const Report> reports, Severity least) {
  bool decided = true, readable = false;
  for (const Report& report : reports) {
    const int code = report_exit_code(report, least);
    if (code == kExitFindings) return kExitFindings;
    decided = decided && code == kExitClean;
    readable = readable || code != kExitData;
  }
  return !readable ? kExitData : decided ? kExitClean : kExitUndecided;
}

Report unreadable_report(const std::vector<std::string>& paths, const std::string& why) {
  Report report;
  report.verdict = Verdict::kUnreadable;
  for (const std::string& path : paths) report.sources.push_back({path, "unknown"});
  report.missing_evidence.push_back(why);
  report.import_stats.push_back({kUnreadable, "error", 1, why});
  return report;
}

Error unreadable_error(const Report& report) {
  std::string why;
  for (const ImportStat& stat : report.import_stats) {
    if (stat.name == kUnreadable) return {ErrorKind::kData, stat.help};
    if (stat.severity != "info" && stat.count > 0 && why.empty()) why = ": " + stat.help;
  }
  const std::string path = report.sources.empty() ? "" : report.sources[0].path + ": ";
  return {ErrorKind::kData, path + "not one record could be read back" + why};
}

}  // namespace ringscope::cli
