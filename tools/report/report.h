// Writers of reports: text for people, JSON for programs ("ringscope.report/1", CLI.md).
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tracedb/model/finding.h"

namespace ringscope {

// Four lines a root: sentence (with the hostages as a rank range), evidence, fix, confidence and what would
// raise it. Consequences are listed under their root. The first line says, without findings, what is missing. Ends
// with a newline.
std::string to_text(const Report& report);
// Reports of several jobs, each under a line that names its sources; one report alone is as above.
std::string to_text(std::span<const Report> reports);

// One JSON document, two spaces of indentation, no newline at the end.
std::string to_json(const Report& report, std::string_view tool_version);
// Several jobs: {"schema", "tool", "verdict": the worst, "reports": [...]}; one report alone is as above.
std::string to_json(std::span<const Report> reports, std::string_view tool_version);

// Of several jobs the worst: findings, undecided, incomplete, clean. A source that cannot be read is missing evidence
// where others can, and `unreadable` where none can.
Verdict worst_verdict(std::span<const Report> reports);

}  // namespace ringscope
