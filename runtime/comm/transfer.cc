#include "runtime/comm/transfer.h"

#include <algorithm>
#include <cstring>

namespace ringscope {
namespace {

constexpr int64_t kTaken = -1;  // Segment::bytes of a posted segment that was read whole

// Uniform in [0, 1) from the link's seed and a counter (splitmix64).
double uniform(uint64_t seed, uint64_t counter) {
  uint64_t x = seed + (counter + 1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return double((x ^ (x >> 31)) >> 11) * 0x1p-53;
}

// When a segment that is posted now arrives at the other end. Inside update.
int64_t arrival_ns(FifoSet& set, Fifo& fifo, int64_t now, int64_t bytes) {
  const LinkModel& link = set.link;
  if (link.gbytes_per_s <= 0 && link.latency_us <= 0) return 0;
  const int64_t start = std::max(now, fifo.link_free_ns);
  const int64_t wire = link.gbytes_per_s > 0 ? int64_t(double(bytes) / link.gbytes_per_s) : 0;  // GB/s = bytes/ns
  fifo.link_free_ns = start + wire;
  double late_us = link.latency_us;
  if (link.jitter_us > 0) late_us += link.jitter_us * uniform(link.seed, set.jitter_counter++);
  return fifo.link_free_ns + int64_t(late_us * 1000);
}

bool blocked_by_order(const std::vector<Transfer>& transfers, const Transfer& t) {
  return t.after >= 0 && !transfers[t.after].done();
}

// May the transfer move now? Inside sched's lock. `wake_ns`: earliest arrival that it waits for.
bool can_move(const FifoSet& set, const std::vector<Transfer>& transfers, const Transfer& t, int64_t now,
              int64_t& wake_ns) {
  if (t.done() || blocked_by_order(transfers, t)) return false;
  if (t.sending) {
    if (set.slots > 0) return int64_t(t.fifo->segments.size()) < set.slots;
    return t.posted == 0;  // not posted yet; later it only waits for the reader
  }
  if (t.fifo->segments.empty() || !t.fifo->segments.front().ready) return false;
  if (t.fifo->segments.front().bytes == kTaken) return false;  // its sender has yet to remove it
  const int64_t at = t.fifo->segments.front().available_ns;
  if (at <= now) return true;
  wake_ns = wake_ns == 0 ? at : std::min(wake_ns, at);
  return false;
}

// k > 0: claims a slot, copies outside the lock, publishes.
void send_segment(FifoSet& set, Transfer& t) {
  const int64_t bytes = std::min(t.bytes - t.moved, kSlotBytes);
  Segment* segment = nullptr;
  set.sched.update(set.channel, [&] {
    t.fifo->segments.emplace_back();
    segment = &t.fifo->segments.back();
    segment->bytes = bytes;
  });
  segment->copy.assign(t.data + t.moved, t.data + t.moved + bytes);
  const int64_t now = set.sched.now();
  set.sched.update(set.channel, [&] {
    segment->available_ns = arrival_ns(set, *t.fifo, now, bytes);
    segment->ready = true;
    t.moved += bytes;
  });
}

// k = 0: posts the whole message; the reader's takes are seen through the segment.
void post_message(FifoSet& set, Transfer& t) {
  const int64_t now = set.sched.now();
  set.sched.update(set.channel, [&] {
    Segment segment;
    segment.posted = t.data;
    segment.bytes = t.bytes;
    segment.available_ns = arrival_ns(set, *t.fifo, now, t.bytes);
    segment.ready = true;
    t.fifo->segments.push_back(std::move(segment));
    t.posted = t.bytes;
  });
}

void receive_segment(FifoSet& set, Transfer& t) {
  Segment* segment = nullptr;
  set.sched.update(set.channel, [&] { segment = &t.fifo->segments.front(); });
  const int64_t bytes = std::min({t.bytes - t.moved, segment->bytes - segment->taken, kSlotBytes});
  const std::byte* from = segment->posted ? segment->posted : segment->copy.data();
  std::memcpy(t.data + t.moved, from + segment->taken, size_t(bytes));
  set.sched.update(set.channel, [&] {
    t.moved += bytes;
    segment->taken += bytes;
    if (segment->taken < segment->bytes) return;
    if (segment->posted) segment->bytes = kTaken;  // the sender removes it: its memory is its own again
    else t.fifo->segments.pop_front();
  });
}

// k = 0: a sender is done when its posted segment was taken whole. Inside the lock.
bool posted_taken(const Transfer& t) {
  return t.sending && t.posted == t.bytes && t.posted > 0 && !t.done() && !t.fifo->segments.empty() &&
         t.fifo->segments.front().bytes == kTaken && t.fifo->segments.front().posted == t.data;
}

}  // namespace

bool run_transfers(FifoSet& set, std::vector<Transfer>& transfers, const char* why,
                   const std::function<void(size_t)>& on_done) {
  Sched& sched = set.sched;
  size_t left = 0;
  std::vector<size_t> active;
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].bytes == 0) on_done(i);
    else active.push_back(i), ++left;
  }
  std::vector<size_t> movable, finished;
  while (left > 0) {
    int64_t wake_ns = 0;
    movable.clear();
    finished.clear();
    const int64_t now = sched.now();
    const auto look = [&] {  // inside the lock
      wake_ns = 0;
      for (size_t i : active) {
        Transfer& t = transfers[i];
        if (posted_taken(t)) finished.push_back(i);
        else if (can_move(set, transfers, t, now, wake_ns)) movable.push_back(i);
      }
      return set.aborted || !movable.empty() || !finished.empty() || wake_ns > 0;
    };
    if (!sched.block_until(set.channel, look, {why, false})) return false;
    if (set.aborted) return false;
    for (size_t i : finished) {
      Transfer& t = transfers[i];
      sched.update(set.channel, [&] {
        t.fifo->segments.pop_front();
        t.moved = t.bytes;
      });
    }
    for (size_t i : movable) {
      Transfer& t = transfers[i];
      if (!t.sending) receive_segment(set, t);
      else if (set.slots > 0) send_segment(set, t);
      else post_message(set, t);
      sched.beat();
      sched.yield();
    }
    for (size_t k = 0; k < active.size();) {
      if (!transfers[active[k]].done()) {
        ++k;
        continue;
      }
      on_done(active[k]);
      active.erase(active.begin() + k);
      --left;
    }
    if (movable.empty() && finished.empty() && wake_ns > 0 && !sched.sleep_until(wake_ns)) return false;
  }
  return true;
}

}  // namespace ringscope
