#include "runtime/comm/transfer.h"

#include <algorithm>
#include <cstring>

namespace ringscope {
namespace {

using State = Segment::State;
using Kind = Transfer::Kind;

// Claims are copied together and published in one update, unless they are large enough to be worth one each.
constexpr int64_t kPublishBytes = 64 * 1024;

// Uniform in [0, 1) from the link's seed and a counter (splitmix64).
double uniform(uint64_t seed, uint64_t counter) {
  uint64_t x = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return double((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// When a segment that is posted now arrives at the other end. Under the lock.
int64_t arrival_ns(FifoSet& set, Fifo& fifo, int64_t now, int64_t bytes) {
  const LinkModel& link = set.link;
  if (link.gbytes_per_s <= 0 && link.latency_us <= 0 && link.jitter_us <= 0) return 0;
  const int64_t start = std::max(now, fifo.link_free_ns);
  const int64_t wire = link.gbytes_per_s > 0 ? int64_t(double(bytes) / link.gbytes_per_s) : 0;  // GB/s = bytes/ns
  fifo.link_free_ns = start + wire;
  double late_us = link.latency_us;
  if (link.jitter_us > 0) late_us += link.jitter_us * uniform(link.seed, set.jitter_counter++);
  return fifo.link_free_ns + int64_t(late_us * 1000);
}

// As NCCL: of a NaN and a number, MAX and MIN take the number, whichever comes first; SUM takes the NaN.
template <class T>
T fold_two(T a, T b, Fold fold) {
  if (fold == Fold::kSum) return a + b;
  if (a != a) return b;
  return fold == Fold::kMax ? std::max(a, b) : std::min(a, b);
}

template <class T>
void combine(std::byte* into, const std::byte* from, int64_t n, Fold fold) {
  for (int64_t i = 0; i < n; ++i) {
    T a, b;  // by memcpy: a mismatched program may have put the bytes anywhere
    std::memcpy(&a, into + i * sizeof(T), sizeof(T));
    std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = fold_two(a, b, fold);
    std::memcpy(into + i * sizeof(T), &a, sizeof(T));
  }
}

void combine(std::byte* into, const std::byte* from, int64_t elements, Fold fold, DType dtype) {
  if (dtype == DType::kF64) combine<double>(into, from, elements, fold);
  else combine<float>(into, from, elements, fold);
}

// Takes n bytes into the target, which may cut elements anywhere.
void fold_bytes(Transfer& t, const std::byte* from, int64_t n) {
  if (t.fold == Fold::kCopy) {
    if (t.target + t.moved != from) std::memcpy(t.target + t.moved, from, size_t(n));  // equal: in place
    t.moved += n;
    return;
  }
  const int64_t element = size_of(t.dtype);
  while (n > 0) {
    if (t.partial_bytes == 0 && n >= element) {
      const int64_t whole = n / element;
      combine(t.target + t.moved, from, whole, t.fold, t.dtype);
      t.moved += whole * element, from += whole * element, n -= whole * element;
      continue;
    }
    t.partial[t.partial_bytes++] = *from++, --n, ++t.moved;
    if (t.partial_bytes == element) {
      combine(t.target + t.moved - element, t.partial.data(), 1, t.fold, t.dtype);
      t.partial_bytes = 0;
    }
  }
}

// A segment that a transfer holds between claim and publication.
struct Claim {
  Transfer* transfer;
  Segment* segment;
  int64_t bytes;
};

class Engine {
 public:
  Engine(FifoSet& set, std::vector<Track>& tracks, const char* why) : set_(set), tracks_(tracks), why_(why) {}

  bool run() {
    for (;;) {
      if (!start_what_can()) return true;
      claims_.clear();
      now_ = set_.sched.now();
      bool aborted = false;
      const auto end = set_.sched.block_until_or_time(
          set_.channel,
          [&] {
            aborted = set_.aborted;
            return aborted || claim_all();
          },
          {why_, false}, wake_ns_);
      if (end == Sched::WaitEnd::kStopped || aborted) return false;
      copy_and_publish();
      set_.sched.beat();
      set_.sched.yield();
    }
  }

 private:
  // Ends the calls and phases that are done and starts their successors. False = all tracks are at their end.
  bool start_what_can() {
    bool any = false;
    for (Track& track : tracks_) any |= advance(track);
    return any;
  }

  static bool advance(Track& track) {
    for (; track.call < track.calls.size(); ++track.call, track.made = false) {
      if (!track.made) {
        track.phases = track.calls[track.call].make();
        track.phase = 0;
        track.bytes_sent = 0;
        track.made = true;
      }
      for (; track.phase < track.phases.size(); ++track.phase) {
        Phase& phase = track.phases[track.phase];
        run_local(phase);
        if (!phase.done()) return true;
        for (const Transfer& t : phase.transfers)
          if (t.kind == Kind::kSend) track.bytes_sent += uint64_t(t.bytes);
        if (phase.finish) phase.finish();
      }
      if (track.calls[track.call].on_done) track.calls[track.call].on_done(track.bytes_sent);
    }
    return false;
  }

  static void run_local(Phase& phase) {
    for (Transfer& t : phase.transfers)
      if (t.kind == Kind::kLocal && !t.done() && may_start(phase, t)) fold_bytes(t, t.source, t.bytes);
  }

  static bool may_start(const Phase& phase, const Transfer& t) {
    return t.after < 0 || phase.transfers[size_t(t.after)].done();
  }

  // Under the lock: takes hold of every segment that can move. True = something changed.
  bool claim_all() {
    wake_ns_ = 0;
    bool moved = false;
    for (Track& track : tracks_) {
      if (track.call == track.calls.size()) continue;
      Phase& phase = track.phases[track.phase];
      for (Transfer& t : phase.transfers) {
        if (t.done() || t.kind == Kind::kLocal || !may_start(phase, t)) continue;
        if (t.kind == Kind::kReceive) moved |= claim_front(t);
        else if (set_.slots > 0) moved |= claim_slot(t);
        else moved |= rendezvous(t);
      }
    }
    return moved;
  }

  bool claim_front(Transfer& t) {
    if (t.fifo->segments.empty()) return false;
    Segment& front = t.fifo->segments.front();
    if (front.state != State::kReady) return false;
    if (front.available_ns > now_) {
      wake_ns_ = wake_ns_ == 0 ? front.available_ns : std::min(wake_ns_, front.available_ns);
      return false;
    }
    front.state = State::kDraining;
    claims_.push_back({&t, &front, std::min(t.bytes - t.moved, front.bytes - front.taken)});
    return true;
  }

  bool claim_slot(Transfer& t) {
    if (int(t.fifo->segments.size()) >= set_.slots) return false;
    Segment& segment = t.fifo->segments.emplace_back();
    segment.bytes = std::min(t.bytes - t.moved, kSlotBytes);
    if (!t.fifo->spare.empty()) {
      segment.slot = std::move(t.fifo->spare.back());
      t.fifo->spare.pop_back();
    }
    claims_.push_back({&t, &segment, segment.bytes});
    return true;
  }

  // Posts the whole message at once; later sees what the reader has taken.
  bool rendezvous(Transfer& t) {
    if (t.posted) {
      if (*t.posted < t.bytes) return false;
      t.moved = t.bytes;
      return true;
    }
    t.posted = std::make_shared<int64_t>(0);
    for (int64_t at = 0; at < t.bytes; at += kSlotBytes) {
      Segment& segment = t.fifo->segments.emplace_back();
      segment.posted = t.source + at;
      segment.progress = t.posted;
      segment.bytes = std::min(t.bytes - at, kSlotBytes);
      segment.available_ns = arrival_ns(set_, *t.fifo, now_, segment.bytes);
      segment.state = State::kReady;
    }
    return true;
  }

  void copy_and_publish() {
    size_t first = 0;
    int64_t bytes = 0;
    for (size_t i = 0; i < claims_.size(); ++i) {
      copy(claims_[i]);
      bytes += claims_[i].bytes;
      if (bytes < kPublishBytes && i + 1 < claims_.size()) continue;
      const int64_t now = set_.sched.now();
      set_.sched.update(set_.channel, [&] {
        for (size_t c = first; c <= i; ++c) publish(claims_[c], now);
      });
      first = i + 1;
      bytes = 0;
    }
  }

  static void copy(const Claim& claim) {
    Transfer& t = *claim.transfer;
    if (t.kind == Kind::kReceive) {
      fold_bytes(t, claim.segment->data() + claim.segment->taken, claim.bytes);
    } else {
      claim.segment->slot.assign(t.source + t.moved, t.source + t.moved + claim.bytes);
      t.moved += claim.bytes;
    }
  }

  // Under the lock.
  void publish(const Claim& claim, int64_t now) {
    Transfer& t = *claim.transfer;
    Segment& segment = *claim.segment;
    if (t.kind == Kind::kSend) {
      segment.available_ns = arrival_ns(set_, *t.fifo, now, segment.bytes);
      segment.state = State::kReady;
      return;
    }
    segment.taken += claim.bytes;
    if (segment.progress) *segment.progress += claim.bytes;
    segment.state = State::kReady;
    if (segment.taken < segment.bytes) return;
    if (!segment.posted) t.fifo->spare.push_back(std::move(segment.slot));
    t.fifo->segments.pop_front();
  }

  FifoSet& set_;
  std::vector<Track>& tracks_;
  const char* why_;
  int64_t now_ = 0;
  int64_t wake_ns_ = 0;  // earliest arrival that is waited for; set under the lock
  std::vector<Claim> claims_;
};

}  // namespace

bool Phase::done() const {
  return std::all_of(transfers.begin(), transfers.end(), [](const Transfer& t) { return t.done(); });
}

bool run_tracks(FifoSet& set, std::vector<Track>& tracks, const char* why) { return Engine(set, tracks, why).run(); }

}  // namespace ringscope
