// The hot path of a ring, inline. Included by spool.h.
#pragma once

#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "tracedb/spool/seal.h"

namespace ringscope {

inline uint64_t read_ticks(TickKind kind) {
#if defined(__x86_64__)
  if (kind == TickKind::kTsc) [[likely]]
    return __rdtsc();
#endif
  (void)kind;
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + uint64_t(now.tv_nsec);
}

// Word 2 of a record.
inline uint64_t meta_word(uint16_t kind, uint16_t flags, uint16_t lane) {
  return uint64_t(kind) | uint64_t(flags) << 16 | uint64_t(lane) << 32;
}
inline uint64_t with_continuation(uint64_t meta) { return meta | uint64_t(1) << 48; }

inline bool Ring::has_room(uint64_t slots) {
  if (next_ + slots <= room_until_) [[likely]]  // flight mode has room without end
    return true;
  room_until_ = header_->tail.load(std::memory_order_acquire) + mask_ + 2;
  return next_ + slots <= room_until_;
}

inline bool Ring::emit(uint64_t ticks, uint16_t kind, uint16_t flags, uint16_t lane, const uint64_t* payload,
                       int n_words) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  // Release everywhere costs nothing on x86 and keeps the order "invalidate, fill, publish" for a reader
  // that looks at the mapping at any instant.
  constexpr auto kRelease = std::memory_order_release;
  header_->emits.store(++emits_, kRelease);
  const uint64_t slots = n_words > kPayloadWords ? 2 : 1;
  if (!has_room(slots)) [[unlikely]] {
    drop(ticks);
    return false;
  }
  const uint64_t meta = meta_word(kind, flags, lane);
  Slot& first = slots_[(next_ - 1) & mask_];
  // Fills all but word 0, which it returns: storing that publishes the record. Without loops and arrays: -O2 keeps those.
  auto fill = [&](Slot& slot, uint64_t seq, uint64_t word2, const uint64_t* words, int count) {
    const uint64_t a = count > 0 ? words[0] : 0, b = count > 1 ? words[1] : 0, c = count > 2 ? words[2] : 0,
                   d = count > 3 ? words[3] : 0, e = count > 4 ? words[4] : 0;
    slot.word[0].store(0, kRelaxed);
    slot.word[1].store(ticks, kRelease);
    slot.word[2].store(word2, kRelease);
    slot.word[3].store(a, kRelease);
    slot.word[4].store(b, kRelease);
    slot.word[5].store(c, kRelease);
    slot.word[6].store(d, kRelease);
    slot.word[7].store(e, kRelease);
    return seal(salt_, seq, ticks, word2, a, b, c, d, e);
  };
  if (slots == 1) [[likely]] {
    first.word[0].store(fill(first, next_, meta, payload, n_words), kRelease);
  } else {
    Slot& second = slots_[next_ & mask_];
    second.word[0].store(0, kRelaxed);
    const uint64_t sealed = fill(first, next_, with_continuation(meta), payload, kPayloadWords);
    const uint64_t rest =
        fill(second, next_ + 1, uint64_t(RecordKind::kContinuation), payload + kPayloadWords, n_words - kPayloadWords);
    first.word[0].store(sealed, kRelease);
    second.word[0].store(rest, kRelease);
  }
  next_ += slots;
  header_->head.store(next_ - 1, kRelease);
  return true;
}

}  // namespace ringscope
