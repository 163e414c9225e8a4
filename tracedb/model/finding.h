// Finding, Report and the catalogue of finding ids. Analyzers fill findings; writers print reports.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope {

enum class Severity : uint8_t { kNote = 0, kWarning = 1, kError = 2 };
const char* name(Severity);

// A row of the trace that proves something. table: SQL table name ("op", "coll", "p2p", "softmax_row", ...).
struct Evidence {
  int source = 0;  // index into Report::sources
  std::string table;
  int64_t row = -1;  // the id that a person can query in that source: column `id` of our database; -1 = none
  std::string text;
};
// Cites row `index` of the view's array of that table, with its source and its id there.
Evidence cite(const TraceView& view, std::string_view table, size_t index, std::string text);

struct GroupRef {
  std::string name;        // "tp", "cp", ...
  std::vector<int> ranks;  // global, in group order
};

struct Finding {
  std::string id;  // "hang.missing_rank"
  bool root = true;
  std::optional<int> caused_by;  // index of the root in Report::findings
  Severity severity = Severity::kError;
  double confidence = 1.0;
  std::vector<int> ranks;    // the accused, sorted, global; empty = nobody can be accused
  std::vector<int> waiting;  // hostages, global
  std::optional<GroupRef> group;
  std::optional<int64_t> seq;
  std::optional<std::string> op;  // "all_reduce"
  Where where;                    // the first divergence
  std::string sentence;           // filled by the rule, with this case's ranks and places
  std::string fix;
  std::string would_raise_confidence;
  std::vector<Evidence> evidence;
  int64_t first_ns = 0;  // time of the first divergence, for sorting
};

// kIncomplete: nothing was found in what is there, and something is missing (Report::missing_evidence).
enum class Verdict : uint8_t { kClean, kFindings, kUndecided, kUnreadable, kIncomplete };
const char* name(Verdict);

struct Report {
  Verdict verdict = Verdict::kClean;
  std::vector<SourceRow> sources;
  std::vector<Finding> findings;  // sorted, see sort_findings
  std::vector<std::string> missing_evidence;
  std::vector<ImportStat> import_stats;
};

// One row per finding id that this version can give.
struct CatalogueRow {
  std::string_view id;
  Severity severity;
  std::string_view meaning;  // one sentence, present tense, without names
  std::string_view fix;      // what to do, generic
  bool follows_only;         // never a root of its own
};
std::span<const CatalogueRow> catalogue();
const CatalogueRow* find_in_catalogue(std::string_view id);

}  // namespace ringscope
