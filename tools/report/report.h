// Writers of one Report: text for people, JSON for programs ("ringscope.report/1", CLI.md).
#pragma once

#include <string>
#include <string_view>

#include "tracedb/model/finding.h"

namespace ringscope {

// Four lines a root: sentence (with the hostages as a rank range), evidence, fix, confidence and what would
// raise it. Consequences are listed under their root. Ends with a newline.
std::string to_text(const Report& report);

// One JSON document, two spaces of indentation, no newline at the end.
std::string to_json(const Report& report, std::string_view tool_version);

}  // namespace ringscope
