// Any text is refused or gives ranks that print and read back to the same ranks.
#include "tests/fuzz/fuzz.h"
#include "tracedb/base/check.h"
#include "tracedb/base/rank_range.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ringscope;
  const auto ranks = parse_rank_range({reinterpret_cast<const char*>(data), size});
  if (!ranks) return 0;
  const auto again = parse_rank_range(format_rank_range(*ranks));
  RS_CHECK(again && format_rank_range(*again) == format_rank_range(*ranks), "a rank range must read back");
  return 0;
}

std::vector<std::string> fuzz_seeds() { return {"", "3", "0-2,5", "0-31,40,1000-1023", "7,6,5-9"}; }
