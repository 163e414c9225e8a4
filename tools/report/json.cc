#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/report/report.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {
namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json where_json(const Where& where) {
  Json json = Json::object();
  if (where.step >= 0) json["step"] = where.step;
  if (where.layer >= 0) json["layer"] = where.layer;
  if (where.ring_step >= 0) json["ring_step"] = where.ring_step;
  if (where.microbatch >= 0) json["microbatch"] = where.microbatch;
  switch (where.pass) {
    case Pass::kForward: json["pass"] = "forward"; break;
    case Pass::kBackward: json["pass"] = "backward"; break;
    case Pass::kOptimizer: json["pass"] = "optimizer"; break;
    case Pass::kNone: break;
  }
  return json;
}

Json finding_json(const Finding& f) {
  Json json;
  json["id"] = f.id;
  json["root"] = f.root;
  json["caused_by"] = or_null(f.caused_by);
  json["severity"] = name(f.severity);
  json["confidence"] = f.confidence;
  json["ranks"] = f.ranks;
  json["waiting"] = format_rank_range(f.waiting);
  json["group"] = f.group ? Json{{"name", f.group->name}, {"ranks", f.group->ranks}} : Json(nullptr);
  json["seq"] = or_null(f.seq);
  json["op"] = or_null(f.op);
  json["where"] = where_json(f.where);
  json["sentence"] = f.sentence;
  json["fix"] = f.fix;
  json["playbook"] = "playbooks/" + f.id + ".md";
  json["would_raise_confidence"] = f.would_raise_confidence.empty() ? Json(nullptr) : Json(f.would_raise_confidence);
  json["evidence"] = Json::array();
  for (const Evidence& e : f.evidence)
    json["evidence"].push_back({{"source", e.source}, {"table", e.table}, {"row", e.row}, {"text", e.text}});
  return json;
}

Json report_json(const Report& report, std::string_view tool_version) {
  Json json;
  json["schema"] = "ringscope.report/1";
  json["tool"] = {{"version", tool_version}};
  json["verdict"] = name(report.verdict);
  json["sources"] = Json::array();
  for (const SourceRow& s : report.sources)
    json["sources"].push_back({{"path", s.path},
                               {"format", s.format},
                               {"rank", s.rank < 0 ? Json(nullptr) : Json(s.rank)},
                               {"rows", s.rows},
                               {"lost", s.lost}});
  json["findings"] = Json::array();
  for (const Finding& f : report.findings) json["findings"].push_back(finding_json(f));
  json["missing_evidence"] = report.missing_evidence;
  json["import_stats"] = Json::array();
  for (const ImportStat& s : report.import_stats)
    json["import_stats"].push_back({{"name", s.name}, {"severity", s.severity}, {"count", s.count}, {"help", s.help}});
  return json;
}

// Names come from traces: bytes that are not UTF-8 are replaced, never thrown about.
std::string text_of(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string to_json(const Report& report, std::string_view tool_version) {
  return text_of(report_json(report, tool_version));
}

std::string to_json(std::span<const Report> reports, std::string_view tool_version) {
  if (reports.size() == 1) return to_json(reports[0], tool_version);
  Json json;
  json["schema"] = "ringscope.report/1";
  json["tool"] = {{"version", tool_version}};
  json["verdict"] = name(worst_verdict(reports));
  json["reports"] = Json::array();
  for (const Report& report : reports) json["reports"].push_back(report_json(report, tool_version));
  return text_of(json);
}

Verdict worst_verdict(std::span<const Report> reports) {
  const auto any = [&](Verdict verdict) {
    return std::any_of(reports.begin(), reports.end(), [&](const Report& r) { return r.verdict == verdict; });
  };
  if (any(Verdict::kFindings)) return Verdict::kFindings;
  if (any(Verdict::kUndecided)) return Verdict::kUndecided;
  if (any(Verdict::kUnreadable) && !any(Verdict::kIncomplete) && !any(Verdict::kClean)) return Verdict::kUnreadable;
  return any(Verdict::kIncomplete) || any(Verdict::kUnreadable) ? Verdict::kIncomplete : Verdict::kClean;
}

}  // namespace ringscope
