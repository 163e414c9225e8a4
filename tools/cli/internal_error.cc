#include "tools/cli/internal_error.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <exception>

#include "tools/cli/command.h"

namespace ringscope::cli {
namespace {

// Only what a signal handler may call.
void write_text(const char* text) {
  const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
  (void)ignored;
}

char g_current_work[4096] = "";

void write_report(const char* what) {
  write_text("ringscope " RINGSCOPE_VERSION ": internal error: ");
  write_text(what);
  if (g_current_work[0]) {
    write_text("\nwhile: ");
    write_text(g_current_work);
  }
  write_text("\nThis is a bug of ringscope. Please report it with these lines and the command line.\nstack:\n");
  void* frames[64];  // last: where memory is damaged, walking the stack may end the process
  backtrace_symbols_fd(frames, backtrace(frames, 64), STDERR_FILENO);
}

[[maybe_unused]] void on_fatal_signal(int signal) {
  write_report(signal == SIGABRT ? "aborted" : signal == SIGFPE ? "arithmetic fault" : "memory fault");
  _exit(kExitInternal);
}

[[noreturn]] void on_terminate() {
  if (const std::exception_ptr thrown = std::current_exception()) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::exception& error) {
      report_internal_error(error.what());
    } catch (...) {
    }
  }
  report_internal_error("unknown exception");
}

}  // namespace

void set_current_work(const char* what) { std::strncpy(g_current_work, what, sizeof g_current_work - 1); }

void report_internal_error(const char* what) {
  write_report(what);
  _exit(kExitInternal);
}

void install_internal_error_handlers() {
  void* frame[1];
  backtrace(frame, 1);  // loads what it needs now: a handler must not
  std::set_terminate(on_terminate);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these report on their own
  struct sigaction action {};
  action.sa_handler = on_fatal_signal;
  action.sa_flags = int(SA_RESETHAND);
  for (int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(signal, &action, nullptr);
#endif
}

}  // namespace ringscope::cli
