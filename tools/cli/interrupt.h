// Ctrl-C of verbs that run something: the first asks for an end in good order, the second finds the default action.
#pragma once

#include <csignal>

namespace ringscope::cli {

class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;

 private:
  struct sigaction old_int_ {
  }, old_term_{};
};

// Since the guard that lives was made.
bool interrupted();

}  // namespace ringscope::cli
