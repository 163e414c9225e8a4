#include <csignal>

#include "tools/cli/command.h"
#include "tools/cli/internal_error.h"
#include "tools/cli/output.h"

int main(int argc, char** argv) {
  ringscope::cli::install_internal_error_handlers();
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is an error like a full disk, not a crash
  const int code = ringscope::cli::run_command_line({argv + (argc > 0 ? 1 : 0), argv + argc});
  // A result that did not reach its file is no result; a reader that closed its pipe (`| head`) had enough.
  if (ringscope::cli::flush_output() != ringscope::cli::Flushed::kFailed) return code;
  ringscope::cli::say("ringscope: cannot write to stdout");
  return ringscope::cli::kExitData;
}
