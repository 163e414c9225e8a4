// The seal of a record: word 0 as it is published, the sequence number's low half and 32 bits over everything else.
// It tells a whole record from one that is being written, was torn by a kill, was damaged on disk, or belongs at
// another place: of damaged ones one in 2^32 passes. The low half alone finds a record's place (a slot's laps never
// lie 2^32 apart); the check covers the whole sequence number and the ring's salt.
//
// Four 64 x 64 -> 128 bit products folded to their halves' xor (the step of wyhash, https://github.com/wangyi-fudan/wyhash):
// no instruction set beyond the baseline, and independent of each other, so that they run beside the stores of the
// record. Sums of w[i] * odd would be cheaper and let two flipped sign bits cancel.
#pragma once

#include <cstdint>

#include "tracedb/model/record.h"

namespace ringscope {

inline uint64_t fold_product(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = Wide(a) * b;
  return uint64_t(product) ^ uint64_t(product >> 64);
}

// w1 to w7: the words behind word 0.
inline uint64_t seal(uint64_t salt, uint64_t seq, uint64_t w1, uint64_t w2, uint64_t w3, uint64_t w4, uint64_t w5,
                     uint64_t w6, uint64_t w7) {
  // Odd, with as many zeros as ones, and without meaning.
  const uint64_t mixed = fold_product(seq ^ salt, w1 ^ 0xa0761d6478bd642f) +
                         fold_product(w2 ^ 0xe7037ed1a0b428db, w3 ^ 0x8ebc6af09c88c6e3) +
                         fold_product(w4 ^ 0x589965cc75374cc3, w5 ^ 0x1d8e4e27c47d124f) +
                         fold_product(w6 ^ 0xeb44accab455d165, w7 ^ 0x9c6e6877736c46e3);
  return (mixed & 0xFFFFFFFF00000000) | (seq & 0xFFFFFFFF);
}

}  // namespace ringscope
