#include <fmt/format.h>

#include <algorithm>

#include "tools/report/report.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {
namespace {

constexpr size_t kShownEvidence = 6;

// With several sources a row needs the name of its own: the last part of the path where that tells them apart.
std::string source_name(const Report& report, int source) {
  if (report.sources.size() < 2 || source < 0 || size_t(source) >= report.sources.size()) return "";
  const auto base = [](const std::string& path) { return path.substr(path.find_last_of('/') + 1); };
  const std::string& path = report.sources[size_t(source)].path;
  const auto equal = std::count_if(report.sources.begin(), report.sources.end(),
                                   [&](const SourceRow& other) { return base(other.path) == base(path); });
  return (equal == 1 ? base(path) : path) + " ";
}

std::string evidence_line(const Report& report, const Finding& f) {
  std::string text;
  for (size_t i = 0; i < f.evidence.size() && i < kShownEvidence; ++i) {
    const Evidence& e = f.evidence[i];
    if (i) text += " · ";
    text += e.text;
    if (e.row >= 0) text += fmt::format(" [{}{} id {}]", source_name(report, e.source), e.table, e.row);
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
  out += fmt::format(".\n   evidence:   {}\n   fix:        {}; see `ringscope playbook {}`\n", evidence_line(report, f),
                     f.fix, f.id);
  out += fmt::format("   confidence: {:.2f}", f.confidence);
  if (!f.would_raise_confidence.empty()) out += fmt::format("; would be raised by {}", f.would_raise_confidence);
  out += "\n";
  for (const Finding& other : report.findings)
    if (other.caused_by && size_t(*other.caused_by) == index)
      out += fmt::format("   follows:    {}  {}\n", other.id, other.sentence);
}

// Among what is missing already.
bool said(const Report& report, const ImportStat& stat) {
  const auto& missing = report.missing_evidence;
  return std::any_of(missing.begin(), missing.end(),
                     [&](const std::string& text) { return text.find(stat.name) != std::string::npos; });
}

std::string headline(const Report& report) {
  switch (report.verdict) {
    case Verdict::kClean: return "clean: nothing found";
    case Verdict::kUnreadable: return "unreadable: not one record could be read back";
    case Verdict::kUndecided: return "undecided: the evidence does not name a cause";
    case Verdict::kIncomplete: {
      const auto& missing = report.missing_evidence;
      std::string text = "incomplete: nothing found, but this is missing: " + (missing.empty() ? "" : missing[0]);
      if (missing.size() > 1) text += fmt::format(" (and {} more, below)", missing.size() - 1);
      return text;
    }
    case Verdict::kFindings: break;
  }
  const auto roots =
      std::count_if(report.findings.begin(), report.findings.end(), [](const Finding& f) { return f.root; });
  return fmt::format("{} finding{}", roots, roots == 1 ? "" : "s");
}

}  // namespace

std::string to_text(const Report& report) {
  std::string out = headline(report) + "\n";
  int number = 0;
  for (size_t i = 0; i < report.findings.size(); ++i)
    if (report.findings[i].root) write_root(out, report, i, ++number);
  for (const std::string& missing : report.missing_evidence) out += "missing evidence: " + missing + "\n";
  for (const ImportStat& stat : report.import_stats)
    if (stat.severity != "info" && stat.count > 0 && !said(report, stat))
      out += fmt::format("import: {} x {} ({}){}{}\n", stat.count, stat.name, stat.severity,
                         stat.help.empty() ? "" : ": ", stat.help);
  return out;
}

std::string to_text(std::span<const Report> reports) {
  if (reports.size() == 1) return to_text(reports[0]);
  std::string out;
  for (const Report& report : reports) {
    std::string sources;
    for (const SourceRow& source : report.sources) sources += (sources.empty() ? "" : ", ") + source.path;
    out += (out.empty() ? "" : "\n") + fmt::format("== {}\n", sources) + to_text(report);
  }
  return out;
}

}  // namespace ringscope
