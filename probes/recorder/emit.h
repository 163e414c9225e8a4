// Typed C++ front of the C API: emit(kind, lane, payload struct). Costs one relaxed load when off.
#pragma once

#include <cstring>

#include "probes/recorder/recorder.h"
#include "tracedb/model/record.h"

namespace ringscope {

template <class Payload>
inline void emit(RecordKind kind, const Payload& payload, uint16_t lane = 0, uint16_t flags = 0) {
  static_assert(sizeof(Payload) % 8 == 0 && sizeof(Payload) <= 2 * kPayloadWords * 8);
  if (!rs_enabled()) return;
  uint64_t words[2 * kPayloadWords];
  std::memcpy(words, &payload, sizeof(Payload));
  rs_emit(uint16_t(kind), flags, lane, words, int(sizeof(Payload) / 8));
}

// Interns a string literal once per call site: RS_NAME("attn.qkv").
#define RS_NAME(literal)                                  \
  ([]() -> uint32_t {                                     \
    static thread_local uint32_t id = 0;                  \
    if (id == 0 && rs_enabled()) id = rs_intern(literal); \
    return id;                                            \
  }())

}  // namespace ringscope
