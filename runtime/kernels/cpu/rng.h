// Counter-based random numbers: a hash of a key, without state, so that any layout draws the same number for the
// same element. Integer arithmetic only; internal linkage, because files compiled for several instruction sets
// include it.
#pragma once

#include <cstdint>

namespace ringscope::rng {

// splitmix64's finaliser (Steele, Lea, Flood 2014).
static inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
// Folds one more word into a key. Order matters.
static inline uint64_t fold(uint64_t key, uint64_t word) { return mix(key ^ mix(word + 0x632BE59BD9B4E019ull)); }

// True with probability 1 - p, decided by the top 53 bits.
static inline bool keep(uint64_t key, double p) { return double(mix(key) >> 11) * 0x1p-53 >= p; }

}  // namespace ringscope::rng
