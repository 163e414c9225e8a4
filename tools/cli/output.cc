#include "tools/cli/output.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>

namespace ringscope::cli {

void print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void print_json(const nlohmann::ordered_json& document) {
  print(document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

// One write: lines of several threads do not mix.
void say(std::string_view line) {
  const std::string text = std::string(line) + "\n";
  std::fflush(stdout);  // in order, where both go to one place
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void print_error(const Error& error) { say("ringscope: " + error.message); }

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
