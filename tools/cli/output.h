// What verbs print: results on stdout, everything else on stderr.
#pragma once

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "tracedb/base/result.h"

namespace ringscope::cli {

inline constexpr std::string_view kVersion = RINGSCOPE_VERSION;

void print(std::string_view text);                        // stdout, as it is
void print_json(const nlohmann::ordered_json& document);  // stdout, one document and a newline
void say(std::string_view line);                          // stderr, one line
void print_error(const Error& error);                     // stderr, "ringscope: ..."

// Names a phase on stderr when it lasts more than two seconds, and again every five: work that is silent for long
// looks like a hang.
class SlowPhase {
 public:
  SlowPhase(std::string what, bool quiet);
  ~SlowPhase();
  SlowPhase(const SlowPhase&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace ringscope::cli
