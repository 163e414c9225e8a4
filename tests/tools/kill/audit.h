// Shared memory in which an audited program counts the records it asks for: a witness that the recorder's own
// files have no part in.
#pragma once

#include <atomic>
#include <cstdint>

namespace ringscope::testing {

struct AuditSlot {  // of one thread
  std::atomic<int64_t> tid;
  std::atomic<uint64_t> begun, done;  // groups asked for, and those that came back
};
struct AuditPage {
  static constexpr int kSlots = 1024;
  std::atomic<int> used;
  AuditSlot slots[kSlots];
};
inline constexpr const char* kAuditVariable = "RINGSCOPE_TEST_AUDIT";  // path of the file that holds the page

}  // namespace ringscope::testing
