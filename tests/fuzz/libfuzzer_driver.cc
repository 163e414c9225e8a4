// Mixes the target's seeds into libFuzzer's own mutations, so that no corpus folder is needed to start.
#include <algorithm>
#include <cstring>

#include "tests/fuzz/fuzz.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  static const std::vector<std::string> seeds = fuzz_seeds();
  if (!seeds.empty() && (size <= 1 || seed % 64 == 0)) {
    const std::string& start = seeds[seed / 64 % seeds.size()];
    size = std::min(start.size(), max_size);
    std::memcpy(data, start.data(), size);
    if (seed % 128 == 0) return size;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
