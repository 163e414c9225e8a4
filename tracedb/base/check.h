// RS_CHECK(condition, "why"): our own invariants, on in every build. A failure is our bug: it prints
// place, condition and reason on stderr and aborts (a recorded trace survives, as it does any crash).
#pragma once

namespace ringscope {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const char* why);
}  // namespace ringscope

#define RS_CHECK(condition, why)                                                      \
  do {                                                                                \
    if (!(condition)) ::ringscope::check_failed(__FILE__, __LINE__, #condition, why); \
  } while (0)
