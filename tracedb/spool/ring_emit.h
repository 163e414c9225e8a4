// The hot path of a ring, inline. Included by spool.h.
#pragma once

#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

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

inline bool Ring::emit(uint64_t ticks, uint16_t kind, uint16_t flags, uint16_t lane, const uint64_t* payload,
                       int n_words) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  // Release everywhere costs nothing on x86 and keeps the order "invalidate, fill, publish" for a reader
  // that looks at the mapping at any instant.
  constexpr auto kRelease = std::memory_order_release;
  header_->emits.store(++emits_, kRelease);
  const uint64_t slots = n_words > kPayloadWords ? 2 : 1;
  if (next_ + slots > room_until_) [[unlikely]] {  // flight mode has room without end
    room_until_ = header_->tail.load(std::memory_order_acquire) + mask_ + 2;
    if (next_ + slots > room_until_) {
      if (header_->dropped.load(kRelaxed) == 0) header_->first_drop_ticks.store(ticks, kRelaxed);
      header_->last_drop_ticks.store(ticks, kRelaxed);
      header_->dropped.store(header_->dropped.load(kRelaxed) + 1, kRelaxed);
      return false;
    }
  }
  const uint64_t meta = uint64_t(kind) | uint64_t(flags) << 16 | uint64_t(lane) << 32;
  Slot& first = slots_[(next_ - 1) & mask_];
  auto fill = [&](Slot& slot, uint64_t word2, const uint64_t* words, int count) {
    slot.word[0].store(0, kRelaxed);
    slot.word[1].store(ticks, kRelease);
    slot.word[2].store(word2, kRelease);
    for (int i = 0; i < kPayloadWords; ++i) slot.word[3 + i].store(i < count ? words[i] : 0, kRelease);
  };
  if (slots == 1) [[likely]] {
    fill(first, meta, payload, n_words);
    first.word[0].store(next_, kRelease);
  } else {
    Slot& second = slots_[next_ & mask_];
    second.word[0].store(0, kRelaxed);
    fill(first, meta | uint64_t(1) << 48, payload, kPayloadWords);
    fill(second, uint64_t(RecordKind::kContinuation), payload + kPayloadWords, n_words - kPayloadWords);
    first.word[0].store(next_, kRelease);
    second.word[0].store(next_ + 1, kRelease);
  }
  next_ += slots;
  header_->head.store(next_ - 1, kRelease);
  return true;
}

}  // namespace ringscope
