#include "runtime/device/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tracedb/base/check.h"

namespace ringscope {
namespace {
int64_t rounded(int64_t bytes) { return std::max<int64_t>(64, (bytes + 63) / 64 * 64); }
void count(MemoryCounter& counter, int64_t bytes) {
  counter.live += bytes;
  counter.peak = std::max(counter.peak, counter.live);
}
}  // namespace

DeviceMemory::~DeviceMemory() {
  for (auto& [size, blocks] : free_)
    for (std::byte* block : blocks) std::free(block);
}

std::byte* DeviceMemory::take(int64_t bytes, MemCategory category) {
  count(counters_[size_t(category)], bytes);
  count(total_, bytes);
  auto& blocks = free_[rounded(bytes)];
  std::byte* base = nullptr;
  if (blocks.empty()) {
    base = static_cast<std::byte*>(std::aligned_alloc(64, rounded(bytes)));
    RS_CHECK(base != nullptr, "out of memory");
  } else {
    base = blocks.back();
    blocks.pop_back();
  }
  std::memset(base, 0xFF, bytes);
  return base;
}

void DeviceMemory::release_account(int64_t bytes, MemCategory category) {
  counters_[size_t(category)].live -= bytes;
  total_.live -= bytes;
}

void DeviceMemory::give_back(std::byte* base, int64_t bytes) { free_[rounded(bytes)].push_back(base); }

void DeviceMemory::reset_peak() {
  for (MemoryCounter& counter : counters_) counter.peak = counter.live;
  total_.peak = total_.live;
}

}  // namespace ringscope
