#include "tools/cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>

namespace ringscope::cli {

namespace {

bool g_reader_left = false;

// Called where a write to stdout failed: the error flag of the stream does not keep the reason.
void note_failure() { g_reader_left = g_reader_left || errno == EPIPE; }

}  // namespace

bool print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && !std::ferror(stdout)) return true;
  note_failure();
  return false;
}

Flushed flush_output() {
  if (std::fflush(stdout) != 0) note_failure();
  if (!std::ferror(stdout)) return Flushed::kWritten;
  return g_reader_left ? Flushed::kReaderLeft : Flushed::kFailed;
}

void print_json(const nlohmann::ordered_json& document) {
  print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// One write: lines of several threads do not mix.
void say(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  (void)flush_output();  // in order, where both go to one place
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void warn(std::string_view line) { say("warning: " + std::string(line)); }

void print_error(const Error& error) { say("ringscope: " + error.message); }

nlohmann::ordered_json error_json(const Error& error, std::string_view verb) {
  const char* kind = error.kind == ErrorKind::kUsage      ? "usage"
                     : error.kind == ErrorKind::kInternal ? "internal"
                                                          : "data";
  // Sentences end with what to try, behind a semicolon.
  const size_t last = error.message.rfind("; ");
  const std::string help = verb.empty() ? "ringscope help" : fmt::format("ringscope {} --help", verb);
  const std::string hint = error.kind == ErrorKind::kInternal ? "this is a bug of ringscope: please report it"
                           : last == std::string::npos        ? help
                                                              : error.message.substr(last + 2);
  return {{"schema", "ringscope.error/1"}, {"error", {{"kind", kind}, {"message", error.message}, {"hint", hint}}}};
}

SlowPhase::SlowPhase(std::string what, bool quiet) {
  if (quiet) return;
  thread_ = std::thread([this, what = std::move(what)] {
    std::unique_lock lock(mutex_);
    const auto begin = std::chrono::steady_clock::now();
    auto next = std::chrono::seconds(2);
    while (!ended_.wait_for(lock, next, [&] { return over_; })) {
      const auto elapsed = std::chrono::steady_clock::now() - begin;
      say(fmt::format("{} ... {} s", what, std::chrono::duration_cast<std::chrono::seconds>(elapsed).count()));
      next = std::chrono::seconds(5);
    }
  });
}

SlowPhase::~SlowPhase() {
  if (!thread_.joinable()) return;
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

}  // namespace ringscope::cli
