#include <fmt/format.h>

#include <algorithm>

#include "tools/report/report.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {
namespace {

constexpr size_t kShownEvidence = 6;

std::string evidence_line(const Finding& f) {
  std::string text;
  for (size_t i = 0; i < f.evidence.size() && i < kShownEvidence; ++i) {
    const Evidence& e = f.evidence[i];
    if (i) text += " · ";
    text += e.text;
    if (e.row >= 0) text += fmt::format(" [{} id {}]", e.table, e.row);
  }
  if (f.evidence.size() > kShownEvidence) text += fmt::format(" · {} more", f.evidence.size() - kShownEvidence);
  return text.empty() ? "none" : text;
}

void write_root(std::string& out, const Report& report, size_t index, int number) {
  const Finding& f = report.findings[index];
  out += fmt::format("{}. {} [{}]  {}", number, f.id, name(f.severity), f.sentence);
  if (!f.waiting.empty())
    out += fmt::format("; {} other rank{} wait{} for this ({})", f.waiting.size(), f.waiting.size() == 1 ? "" : "s",
                       f.waiting.size() == 1 ? "s" : "", format_rank_range(f.waiting));
  out += fmt::format(".\n   evidence:   {}\n   fix:        {}; see `ringscope playbook {}`\n", evidence_line(f), f.fix,
                     f.id);
  out += fmt::format("   confidence: {:.2f}", f.confidence);
  if (!f.would_raise_confidence.empty()) out += fmt::format("; would be raised by {}", f.would_raise_confidence);
  out += "\n";
  for (const Finding& other : report.findings)
    if (other.caused_by && size_t(*other.caused_by) == index)
      out += fmt::format("   follows:    {}  {}\n", other.id, other.sentence);
}

}  // namespace

std::string to_text(const Report& report) {
  std::string out;
  const auto roots =
      std::count_if(report.findings.begin(), report.findings.end(), [](const Finding& f) { return f.root; });
  switch (report.verdict) {
    case Verdict::kClean:
      out += report.missing_evidence.empty() ? "clean: nothing found\n" : "clean as far as recorded: nothing found\n";
      break;
    case Verdict::kIncomplete:
      out += "incomplete: nothing found in what was recorded, and something is missing\n";
      break;
    case Verdict::kUnreadable: out += "unreadable: no rows could be read\n"; break;
    case Verdict::kUndecided: out += "undecided: the evidence does not name a cause\n"; break;
    case Verdict::kFindings: out += fmt::format("{} finding{}\n", roots, roots == 1 ? "" : "s"); break;
  }
  int number = 0;
  for (size_t i = 0; i < report.findings.size(); ++i)
    if (report.findings[i].root) write_root(out, report, i, ++number);
  for (const std::string& missing : report.missing_evidence) out += "missing evidence: " + missing + "\n";
  for (const ImportStat& stat : report.import_stats)
    if (stat.severity != "info" && stat.count > 0)
      out += fmt::format("import: {} x {} ({}){}{}\n", stat.count, stat.name, stat.severity,
                         stat.help.empty() ? "" : ": ", stat.help);
  return out;
}

}  // namespace ringscope
