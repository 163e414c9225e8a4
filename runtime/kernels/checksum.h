// A checksum of memory for statistics: equal bytes, equal sums. Not for the disk, and not against an adversary.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

namespace ringscope::kernels {

// Every bit of the hash depends on every bit of it before (the finisher of MurmurHash3).
inline uint64_t checksum_finish(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xFF51AFD7ED558CCD;
  hash = (hash ^ hash >> 33) * 0xC4CEB9FE1A85EC53;
  return hash ^ hash >> 33;
}
// A multiplication carries differences upwards only, so that flipped signs could cancel; the shift brings them down.
inline uint64_t checksum_mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}

// Over 64-bit words, word i in lane i mod 8 (lanes do not wait for each other), then over the lanes; the last word is
// filled up with zeros. `seed` chains pieces: the sum of one is the seed of the next. Of two tensors of one size (`beside`)
// the words are joined first. Never 0.
inline uint64_t checksum(const void* memory, size_t bytes, uint64_t seed = 0, const void* beside = nullptr) {
  constexpr size_t kLanes = 8;
  const char *from = static_cast<const char*>(memory), *other = static_cast<const char*>(beside);
  std::array<uint64_t, kLanes> lanes;
  for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = seed + lane;
  const auto take = [&](size_t lane, size_t at, size_t n) {
    uint64_t word = 0, joined = 0;
    std::memcpy(&word, from + at, n);
    if (other) std::memcpy(&joined, other + at, n);
    lanes[lane] = checksum_mix(lanes[lane], word ^ std::rotl(joined, 23));
  };
  size_t at = 0;
  for (; at + 8 * kLanes <= bytes; at += 8 * kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, at + 8 * lane, 8);
  for (size_t lane = 0; at < bytes; at += 8, ++lane) take(lane, at, bytes - at < 8 ? bytes - at : 8);
  uint64_t sum = bytes;
  for (const uint64_t lane : lanes) sum = checksum_finish(checksum_mix(sum, checksum_finish(lane)));
  return sum ? sum : 1;
}

}  // namespace ringscope::kernels
