// Our own bugs: version, reason and stack on stderr, exit 5.
#pragma once

namespace ringscope::cli {

// For crashes, broken invariants (RS_CHECK aborts) and exceptions nobody caught.
void install_internal_error_handlers();
[[noreturn]] void report_internal_error(const char* what);

}  // namespace ringscope::cli
