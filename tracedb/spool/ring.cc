#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>

#include "tracedb/spool/spool.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace ringscope {
namespace {

int64_t clock_ns(clockid_t id) {
  timespec t{};
  clock_gettime(id, &t);
  return int64_t(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

void copy_text(char* to, size_t size, const std::string& text) {
  const size_t n = std::min(size - 1, text.size());
  std::memcpy(to, text.data(), n);
  to[n] = 0;
}

void read_boot_id(char* to, size_t size) {
  to[0] = 0;
  const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  const ssize_t n = read(fd, to, size - 1);
  close(fd);
  to[std::max<ssize_t>(n, 0)] = 0;
  if (char* end = std::strchr(to, '\n')) *end = 0;
}

// Writes a page's first word everywhere: the first record in a page must not take a fault.
void prefault(char* base, size_t bytes) {
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
  if (madvise(base, bytes, MADV_POPULATE_WRITE) == 0) return;
  for (size_t at = 0; at < bytes; at += 4096)
    reinterpret_cast<std::atomic<uint64_t>*>(base + at)->store(0, std::memory_order_relaxed);
}

std::string ring_path(const std::string& dir, uint32_t id, const char* suffix) {
  char name[40];
  std::snprintf(name, sizeof name, "/ring-%06u.%s", id, suffix);
  return dir + name;
}

// Claims the first free ring id from `id` on, by its unfinished file: who holds that alone may rename it, so a
// ring that exists cannot be replaced. -1 and errno when it cannot be done.
int claim(const std::string& dir, uint32_t& id) {
  for (; id < (1u << 24); ++id) {
    const std::string path = ring_path(dir, id, "new");
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0 && errno != EEXIST) return -1;
    if (fd < 0) continue;
    if (access(ring_path(dir, id, "ring").c_str(), F_OK) != 0) return fd;
    close(fd);
    unlink(path.c_str());
  }
  errno = EMFILE;
  return -1;
}

}  // namespace

uint32_t header_check(const RingHeader& h) {
  constexpr size_t kFrom = offsetof(RingHeader, version), kTo = offsetof(RingHeader, emits);
  static_assert((kTo - kFrom) % sizeof(uint64_t) == 0);
  uint64_t mixed = kTo - kFrom;
  for (size_t at = kFrom; at < kTo; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const char*>(&h) + at, sizeof word);
    mixed = fold_product(mixed ^ 0xa0761d6478bd642f, word ^ 0xe7037ed1a0b428db);
  }
  return uint32_t(mixed >> 32);
}

uint64_t seal_salt(const RingHeader& h) {
  return fold_product(h.process_token ^ 0xa0761d6478bd642f, h.ring_id | 1ull << 63);
}

uint32_t clock_check(int64_t realtime_ns, int64_t monotonic_ns, uint64_t ticks) {
  return uint32_t(seal(0, ticks, uint64_t(realtime_ns), uint64_t(monotonic_ns), 0, 0, 0, 0, 0) >> 32);
}

SizeLimitGuard::SizeLimitGuard() {
  static_assert(sizeof(sigset_t) <= sizeof saved_);
  sigset_t block, pending;
  sigemptyset(&block);
  sigaddset(&block, SIGXFSZ);
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
  active_ = pthread_sigmask(SIG_BLOCK, &block, reinterpret_cast<sigset_t*>(saved_)) == 0;
}

SizeLimitGuard::~SizeLimitGuard() {
  if (!active_) return;
  const int saved_errno = errno;
  if (!was_pending_) {
    sigset_t wait;
    sigemptyset(&wait);
    sigaddset(&wait, SIGXFSZ);
    const timespec now{};
    while (sigtimedwait(&wait, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, reinterpret_cast<sigset_t*>(saved_), nullptr);
  errno = saved_errno;
}

bool tsc_is_invariant() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(0x80000007, &a, &b, &c, &d)) return false;
  return (d >> 8 & 1) != 0;
#else
  return false;
#endif
}

double measure_ticks_per_ns(TickKind kind) {
  if (kind == TickKind::kMonotonic) return 1;
  // 1 ms against an uncertainty of some 50 ns a side: 1e-4, good enough until the first full second is sampled.
  const int64_t from_ns = clock_ns(CLOCK_MONOTONIC);
  const uint64_t from = read_ticks(kind);
  int64_t to_ns = from_ns;
  while (to_ns - from_ns < 1'000'000) to_ns = clock_ns(CLOCK_MONOTONIC);
  return double(read_ticks(kind) - from) / double(to_ns - from_ns);
}

Ring* Ring::create(const RingOptions& options, int* error) {
  SizeLimitGuard guard;
  uint32_t id = std::max<uint32_t>(options.first_id, 1);
  const int fd = claim(options.dir, id);
  if (fd < 0) {
    *error = errno ? errno : EMFILE;
    return nullptr;
  }
  const std::string unfinished = ring_path(options.dir, id, "new");
  const size_t bytes = kSpoolHeaderBytes + options.capacity * kRecordBytes;
  *error = posix_fallocate(fd, 0, off_t(bytes));
  void* map = MAP_FAILED;
  if (*error == 0) {
    map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) *error = errno;
  }
  close(fd);
  std::unique_ptr<Ring> ring(new Ring);
  if (*error == 0 && options.mode == SpoolMode::kStream) {
    ring->segment_fd_ = open(ring_path(options.dir, id, "seg").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (ring->segment_fd_ < 0) {
      *error = errno;
      munmap(map, bytes);
    }
  }
  if (*error != 0) {
    unlink(unfinished.c_str());
    return nullptr;
  }
  prefault(static_cast<char*>(map), bytes);
  ring->header_ = static_cast<RingHeader*>(map);
  ring->slots_ = reinterpret_cast<Slot*>(static_cast<char*>(map) + kSpoolHeaderBytes);
  ring->mask_ = options.capacity - 1;
  ring->stream_ = options.mode == SpoolMode::kStream;
  ring->definitions_path_ = ring_path(options.dir, id, "def");
  ring->room_until_ = ring->stream_ ? options.capacity + 1 : ~uint64_t(0);
  RingHeader& h = *ring->header_;
  h.version = kSpoolVersion;
  h.record_bytes = kRecordBytes;
  h.capacity = options.capacity;
  h.ring_id = id;
  h.mode = options.mode;
  h.rank = options.rank;
  h.pid = getpid();
  h.tid = int32_t(syscall(SYS_gettid));
  h.tick_kind = options.tick_kind;
  h.ticks_per_ns = options.ticks_per_ns;
  h.process_token = options.process_token;
  gethostname(h.host, sizeof h.host - 1);
  read_boot_id(h.boot_id, sizeof h.boot_id);
  copy_text(h.thread_name, sizeof h.thread_name, options.thread_name);
  h.check = header_check(h);
  ring->salt_ = seal_salt(h);
  ring->sample_clock();
  h.magic = kRingMagic;
  if (std::rename(unfinished.c_str(), ring_path(options.dir, id, "ring").c_str()) != 0) {
    *error = errno;
    unlink(unfinished.c_str());
    return nullptr;
  }
  return ring.release();
}

double Ring::measure_ns_per_record(TickKind kind) {
  constexpr size_t kCapacity = 1024, kBytes = kSpoolHeaderBytes + kCapacity * kRecordBytes;
  constexpr int kBursts = 33, kBurst = 256;
  void* map = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) return 0;
  prefault(static_cast<char*>(map), kBytes);
  Ring ring;
  ring.header_ = static_cast<RingHeader*>(map);
  ring.slots_ = reinterpret_cast<Slot*>(static_cast<char*>(map) + kSpoolHeaderBytes);
  ring.mask_ = kCapacity - 1;
  ring.room_until_ = ~uint64_t(0);
  const uint64_t payload[kPayloadWords] = {1, 2, 3, 4, 5};
  std::array<double, kBursts> ns;
  for (double& burst : ns) {
    const int64_t from = clock_ns(CLOCK_MONOTONIC);
    for (int i = 0; i < kBurst; ++i) ring.emit(read_ticks(kind), 0, 0, 0, payload, kPayloadWords);
    burst = double(clock_ns(CLOCK_MONOTONIC) - from) / kBurst;
  }
  std::nth_element(ns.begin(), ns.begin() + kBursts / 2, ns.end());
  return ns[kBursts / 2];
}

Ring::~Ring() {
  if (header_) munmap(header_, kSpoolHeaderBytes + (mask_ + 1) * kRecordBytes);
  if (segment_fd_ >= 0) close(segment_fd_);
  if (definitions_fd_ >= 0) close(definitions_fd_);
}

void Ring::drop(uint64_t ticks) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  if (header_->dropped.load(kRelaxed) == 0) header_->first_drop_ticks.store(ticks, kRelaxed);
  header_->last_drop_ticks.store(ticks, kRelaxed);
  header_->dropped.store(header_->dropped.load(kRelaxed) + 1, kRelaxed);
}

// Into the ring first: a kill in between leaves it where every record is.
bool Ring::define(uint64_t ticks, uint16_t kind, uint16_t flags, uint16_t lane, const uint64_t* payload, int n_words) {
  const uint64_t place = has_room(n_words > kPayloadWords ? 2 : 1) ? next_ : 0;
  if (place > 0) emit(ticks, kind, flags, lane, payload, n_words);
  else header_->emits.store(++emits_, std::memory_order_release);
  const bool saved = save(place, ticks, meta_word(kind, flags, lane), payload, n_words);
  if (!saved) header_->unsaved.store(header_->unsaved.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  if (place == 0 && !saved) drop(ticks);
  return place > 0 || saved;
}

bool Ring::save(uint64_t seq, uint64_t ticks, uint64_t meta, const uint64_t* payload, int n_words) {
  SizeLimitGuard guard;
  if (definitions_fd_ < 0)
    definitions_fd_ = open(definitions_path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (definitions_fd_ < 0) return false;
  uint64_t words[2][kRecordWords] = {};
  const size_t records = n_words > kPayloadWords ? 2 : 1;
  for (size_t i = 0; i < records; ++i) {
    uint64_t* w = words[i];
    w[1] = ticks;
    w[2] = i > 0 ? uint64_t(RecordKind::kContinuation) : records > 1 ? with_continuation(meta) : meta;
    const int first = int(i) * kPayloadWords;
    std::copy(payload + first, payload + std::min(n_words, first + kPayloadWords), w + 3);
    w[0] = seal(salt_, seq > 0 ? seq + i : 0, w[1], w[2], w[3], w[4], w[5], w[6], w[7]);
  }
  const size_t bytes = records * kRecordBytes;
  ssize_t n = 0;
  do n = pwrite(definitions_fd_, words, bytes, off_t(definitions_end_));
  while (n < 0 && errno == EINTR);
  if (n != ssize_t(bytes)) return false;  // the next one is written over the half one
  definitions_end_ += bytes;
  return true;
}

uint64_t Ring::waiting() const {
  return header_->head.load(std::memory_order_acquire) - header_->tail.load(std::memory_order_relaxed);
}

int Ring::drain(uint64_t* moved) {
  *moved = 0;
  if (!stream_) return 0;
  uint64_t tail = header_->tail.load(std::memory_order_relaxed);
  const uint64_t head = header_->head.load(std::memory_order_acquire);
  SizeLimitGuard guard;
  while (tail < head) {
    const uint64_t index = tail & mask_;
    const uint64_t records = std::min(head - tail, mask_ + 1 - index);
    // At the offset that the tail says, so that a half-written record of a full disk is written over.
    const ssize_t n = pwrite(segment_fd_, &slots_[index], records * kRecordBytes, off_t(tail * kRecordBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n < kRecordBytes) return n < 0 ? errno : ENOSPC;
    tail += uint64_t(n) / kRecordBytes;
    *moved += uint64_t(n) / kRecordBytes;
    header_->tail.store(tail, std::memory_order_release);
  }
  return 0;
}

void Ring::sample_clock() {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  RingHeader& h = *header_;
  const auto put = [&](uint64_t at, int64_t realtime_ns, int64_t monotonic_ns, uint64_t ticks) {
    h.clock[at].realtime_ns.store(realtime_ns, kRelaxed);
    h.clock[at].monotonic_ns.store(monotonic_ns, kRelaxed);
    h.clock[at].ticks.store(ticks, kRelaxed);
    h.clock_checks[at].store(clock_check(realtime_ns, monotonic_ns, ticks), kRelaxed);
  };
  uint64_t count = h.clock_count.load(kRelaxed);
  if (count >= kClockSamples) {  // keep every second one; a crash in here leaves at least the first
    h.clock_count.store(1, std::memory_order_release);
    for (uint64_t i = 1; i < kClockSamples / 2; ++i) {
      const ClockSample& s = h.clock[2 * i];
      put(i, s.realtime_ns.load(kRelaxed), s.monotonic_ns.load(kRelaxed), s.ticks.load(kRelaxed));
    }
    count = kClockSamples / 2;
  }
  put(count, clock_ns(CLOCK_REALTIME), clock_ns(CLOCK_MONOTONIC), read_ticks(h.tick_kind));
  h.clock_count.store(count + 1, std::memory_order_release);
}

void Ring::mark_clean() { header_->clean.store(1, std::memory_order_release); }

}  // namespace ringscope
