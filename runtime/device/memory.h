// The memory of one device: counters per category in host order, and a free list of 64-byte aligned blocks.
//
// Blocks come back when the last closure that names them is destroyed, which happens on the host's thread: streams
// keep finished operations until the host's next call. The counters fall earlier, with the Account (tensor.h).
// Thread rule: the rank's host task, and the thread that destroys the device after the run.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "runtime/device/device.h"

namespace ringscope {

class DeviceMemory {
 public:
  ~DeviceMemory();
  std::byte* take(int64_t bytes, MemCategory category);  // filled with 0xFF
  void release_account(int64_t bytes, MemCategory category);
  void give_back(std::byte* base, int64_t bytes);

  const MemoryCounter& category(MemCategory c) const { return counters_[size_t(c)]; }
  const MemoryCounter& total() const { return total_; }
  void reset_peak();

 private:
  std::array<MemoryCounter, size_t(MemCategory::kCount)> counters_{};
  MemoryCounter total_;
  std::map<int64_t, std::vector<std::byte*>> free_;  // by rounded size
};

}  // namespace ringscope
