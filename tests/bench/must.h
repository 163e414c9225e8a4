// A benchmark whose preparation fails ends with the reason: there is nothing to measure.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "tracedb/base/result.h"

namespace ringscope::bench {

[[noreturn]] inline void die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}
template <class T>
T must(Result<T> result) {
  if (!result) die(result.error().message);
  return std::move(*result);
}
inline void must(Status status) {
  if (!status) die(status.error().message);
}

}  // namespace ringscope::bench
