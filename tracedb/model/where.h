// Where in the job something happened: the place words of every record, row and finding.
#pragma once

#include <cstdint>

namespace ringscope {

enum class Pass : uint8_t { kForward = 0, kBackward = 1, kOptimizer = 2, kNone = 15 };

// Unknown fields hold kNone/-1. Packs into one 64-bit word of a record.
struct Where {
  int32_t step = -1;        // training step, from 0
  int16_t layer = -1;       // transformer block, from 0
  int16_t microbatch = -1;  // from 0 within the step
  int16_t ring_step = -1;   // hop index of a CP ring, from 0 (0 = own block)
  Pass pass = Pass::kNone;

  bool operator==(const Where&) const = default;

  // step 24 bits | layer 12 | microbatch 12 | ring_step 12 | pass 4; all ones = unknown.
  uint64_t pack() const {
    return (uint64_t(step) & 0xFFFFFF) << 40 | (uint64_t(layer) & 0xFFF) << 28 | (uint64_t(microbatch) & 0xFFF) << 16 |
           (uint64_t(ring_step) & 0xFFF) << 4 | (uint64_t(pass) & 0xF);
  }
  static Where unpack(uint64_t word) {
    auto field = [&](int shift, uint64_t mask) -> int32_t {
      const uint64_t value = word >> shift & mask;
      return value == mask ? -1 : int32_t(value);
    };
    Where w;
    w.step = field(40, 0xFFFFFF);
    w.layer = int16_t(field(28, 0xFFF));
    w.microbatch = int16_t(field(16, 0xFFF));
    w.ring_step = int16_t(field(4, 0xFFF));
    w.pass = Pass(word & 0xF);
    return w;
  }
};

}  // namespace ringscope
