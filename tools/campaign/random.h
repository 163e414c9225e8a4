// Random numbers that are the same on every machine and with every standard library: a campaign follows from its seed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringscope::campaign {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {  // SplitMix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
  }
  // 0 .. n-1; n > 0. The bias of the remainder is below 2^-40 for the few choices that are drawn here.
  size_t below(size_t n) { return size_t(next() % n); }
  int between(int low, int high) { return low + int(below(size_t(high - low + 1))); }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class List>
  const auto& pick(const List& list) {
    return list[below(list.size())];
  }

 private:
  uint64_t state_;
};

}  // namespace ringscope::campaign
