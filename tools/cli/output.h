// What verbs print: results on stdout, everything else on stderr.
#pragma once

#include <cmath>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "tracedb/base/result.h"

namespace ringscope::cli {

inline constexpr std::string_view kVersion = RINGSCOPE_VERSION;

bool print(std::string_view text);                        // stdout, as it is; false = it takes no more
void print_json(const nlohmann::ordered_json& document);  // stdout, one document and a newline
void say(std::string_view line);                          // stderr, one line
void warn(std::string_view line);                         // stderr, "warning: ..."; also under --quiet and --json
void print_error(const Error& error);                     // stderr, "ringscope: ..."

// What --json prints for an error of any verb ("ringscope.error/1"); verb "" = none was named.
nlohmann::ordered_json error_json(const Error& error, std::string_view verb);

enum class Flushed { kWritten, kReaderLeft, kFailed };  // kReaderLeft: the other end of a pipe was closed
Flushed flush_output();

// The sign of a NaN means nothing: people read "nan".
inline double shown(double value) { return std::isnan(value) ? std::numeric_limits<double>::quiet_NaN() : value; }

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
