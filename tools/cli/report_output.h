// A report as a verb's result: text or JSON on stdout, and the exit code.
#pragma once

#include "tools/cli/command.h"
#include "tracedb/model/finding.h"

namespace ringscope::cli {

// The flag --fail-on, for the verbs that diagnose.
Option fail_on_option();
Result<Severity> fail_on(const Arguments&);  // default: warning

// 3 unreadable · 1 a finding at or above `least` · 4 undecided, or evidence is missing · 0.
int report_exit_code(const Report&, Severity least);
// Of several jobs: 1 when one has it, 3 when nothing could be read, 4 when one is not decided, complete or readable.
int report_exit_code(std::span<const Report> reports, Severity least);

// The report of files that could not be read.
Report unreadable_report(const std::vector<std::string>& paths, const std::string& why);
// Its one line on stderr.
Error unreadable_error(const Report&);

}  // namespace ringscope::cli
