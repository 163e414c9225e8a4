#include <cstdio>
#include <cstdlib>

#include "tracedb/base/check.h"

namespace ringscope {

void check_failed(const char* file, int line, const char* condition, const char* why) {
  std::fprintf(stderr, "ringscope: broken invariant at %s:%d: %s (%s); please report this\n", file, line, condition,
               why);
  std::abort();
}

}  // namespace ringscope
