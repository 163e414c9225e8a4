// Counter-based random numbers: a hash of a key, without state, so that any layout draws the same number for
// the same element. Integer arithmetic only; internal linkage, because files compiled for several instruction
// sets include it.
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
// A word as fold() takes it in; for loops in which one word meets many keys.
static inline uint64_t word(uint64_t value) { return mix(value + 0x632BE59BD9B4E019ull); }
// Folds one more word into a key. Order matters.
static inline uint64_t fold(uint64_t key, uint64_t value) { return mix(key ^ word(value)); }

// An element is kept when draw(key) >= threshold(p): with probability 1 - p, by the top 53 bits.
static inline uint64_t draw(uint64_t key) { return mix(key) >> 11; }
static inline uint64_t threshold(double p) { return uint64_t(__builtin_ceil(p * 0x1p53)); }

}  // namespace ringscope::rng
