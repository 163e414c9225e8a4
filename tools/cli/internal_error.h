// Our own bugs: version, reason and stack on stderr, exit 5.
#pragma once

namespace ringscope::cli {

// For crashes, broken invariants (RS_CHECK aborts) and exceptions nobody caught.
void install_internal_error_handlers();
// What a verb that does much is at: told with a crash. "" = nothing. Of long texts the beginning.
void set_current_work(const char* what);
[[noreturn]] void report_internal_error(const char* what);

}  // namespace ringscope::cli
