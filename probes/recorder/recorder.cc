// The recorder of one process. Three layers of state:
//   ThreadState   thread_local, touched by its thread only: the hot path
//   Session       what one rs_open .. rs_close owns: rings, names file, the housekeeper thread; under g.mutex
//   Globals       what lives as long as the process: interned texts (call sites cache their ids)
//
// rs_recording doubles as the generation: 0 = off, and every open or fork gives a new value, so one relaxed
// load tells a thread both that recording is on and whether its cached ring belongs to this recording.
#include "probes/recorder/recorder.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <semaphore>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracedb/spool/spool.h"

volatile int rs_recording = 0;

namespace ringscope {
namespace {

constexpr uint64_t kTotalBytes = uint64_t(256) << 20;
constexpr uint64_t kLeastRingBytes = uint64_t(256) << 10;
constexpr uint64_t kMostRingBytes = uint64_t(4) << 20;
constexpr int64_t kShortestPollNs = 1'000'000;  // while records come in; doubles up to the longest when idle
constexpr uint64_t kDrainShare = 8;             // of a ring
constexpr int64_t kLongestPollNs = 4'000'000;
constexpr int64_t kClockPeriodNs = 1'000'000'000;

struct ThreadState {
  int generation = 0;  // of `ring`; differs from rs_recording = no usable ring
  int failed = 0;      // generation in which a ring could not be had
  int rank = -1;
  volatile sig_atomic_t busy = 0;
  bool muted = false;
  Ring* ring = nullptr;
  uint64_t next_op = 0;
  TickKind tick_kind = TickKind::kMonotonic;
  char name[64] = {};
};
thread_local constinit ThreadState t_state;

struct Entry {
  std::unique_ptr<Ring> ring;
  bool ended = false;
};

struct Session {
  std::string dir;
  SpoolMode mode = SpoolMode::kFlight;
  uint64_t capacity = 0;
  uint64_t token = 0;
  uint32_t next_id = 1;
  std::vector<Entry> rings;
  std::unique_ptr<NamesWriter> names;
  rs_counts ended{};  // of rings already unmapped
  pthread_t housekeeper{};
  std::binary_semaphore housekeeper_started{0};
  bool housekeeper_runs = false, stop = false;
  std::condition_variable wake;
};

struct Globals {
  std::mutex mutex;
  std::unordered_map<std::string, uint32_t> ids;
  std::vector<const std::string*> texts;  // [id - 1]
  std::unique_ptr<Session> session;
  std::vector<std::unique_ptr<Session>> abandoned;  // parents' sessions in a forked child: mapped, never touched
  std::string error;
  rs_counts last{};
  int generation = 0;
  TickKind tick_kind = TickKind::kMonotonic;
  double ticks_per_ns = 0, ns_per_record = 0;
  bool fork_handlers = false;
};

// Never destroyed: a thread may emit while the process exits.
Globals& globals() {
  static Globals* const g = new Globals;
  return *g;
}

std::atomic<uint64_t> g_next_fallback_op{1};
// Counter page of the session's names file, for losses on paths that must not lock. Never unmapped while on.
std::atomic<NamesHeader*> g_counters{nullptr};

void set_recording(int value) { __atomic_store_n(&rs_recording, value, __ATOMIC_RELEASE); }

void count_unringed() {
  if (NamesHeader* counters = g_counters.load(std::memory_order_acquire))
    counters->unringed.fetch_add(1, std::memory_order_relaxed);
}

int next_generation(Globals& g) {
  g.generation = g.generation == INT32_MAX ? 1 : g.generation + 1;
  return g.generation;
}

uint64_t new_token() {
  uint64_t token = 0;
  if (getrandom(&token, sizeof token, GRND_NONBLOCK) != sizeof token) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    token = uint64_t(now.tv_nsec) << 32 ^ uint64_t(now.tv_sec) << 16 ^ uint64_t(getpid());
  }
  return token;
}

void account(rs_counts& counts, Ring& ring) {
  const RingHeader& h = ring.header();
  const uint64_t dropped = h.dropped.load(std::memory_order_relaxed);
  counts.written += h.emits.load(std::memory_order_relaxed) - dropped;
  counts.dropped += dropped + h.reentered.load(std::memory_order_relaxed);
  counts.definitions_unsaved += h.unsaved.load(std::memory_order_relaxed);
}

// Last look at a ring whose thread emits no more. What cannot be drained (full disk) stays readable in the ring.
void finish_ring(Session& s, Ring& ring) {
  uint64_t moved = 0;
  ring.drain(&moved);
  ring.sample_clock();
  ring.mark_clean();
  account(s.ended, ring);
}

// Drains the rings that have filled up by a share worth a system call, and lets go of those that ended. What waits
// in a ring is as safe as in the segment file. True when something moved.
bool drain_all(Session& s) {
  bool busy = false;
  for (Entry& entry : s.rings) {
    uint64_t moved = 0;
    if (entry.ring->waiting() >= s.capacity / kDrainShare) entry.ring->drain(&moved);
    busy |= moved > 0 || entry.ring->waiting() > 0;
    if (entry.ended) {
      finish_ring(s, *entry.ring);
      entry.ring.reset();
    }
  }
  std::erase_if(s.rings, [](const Entry& entry) { return !entry.ring; });
  return busy;
}

// Moves the tails (stream mode) and retakes the clocks. Holds the lock while it works: only the creation and
// the end of a thread's ring wait for it, never an emit.
void* keep_house(void* argument) {
  Session& s = *static_cast<Session*>(argument);
  Globals& g = globals();
  s.housekeeper_started.release();
  std::unique_lock lock(g.mutex);
  int64_t poll_ns = kShortestPollNs, until_clock_ns = kClockPeriodNs;
  while (!s.stop) {
    const int64_t wait_ns = s.mode == SpoolMode::kStream ? poll_ns : kClockPeriodNs;
    s.wake.wait_for(lock, std::chrono::nanoseconds(wait_ns));
    if (s.stop) break;
    const bool busy = s.mode == SpoolMode::kStream && drain_all(s);
    poll_ns = busy ? kShortestPollNs : std::min(poll_ns * 2, kLongestPollNs);
    until_clock_ns -= wait_ns;
    if (until_clock_ns > 0) continue;
    until_clock_ns = kClockPeriodNs;
    for (Entry& entry : s.rings) entry.ring->sample_clock();
  }
  return nullptr;
}

// Returns once the thread runs our code. A fork takes the lock first, so it finds the housekeeper waiting, and never in
// the middle of a thread's start, where the C library or a sanitizer holds locks that the child could not get.
void start_housekeeper(Session& s) {
  if (s.housekeeper_runs) return;
  sigset_t all, saved;  // a host's signal handlers must not run on our thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &saved);
  s.housekeeper_runs = pthread_create(&s.housekeeper, nullptr, keep_house, &s) == 0;
  pthread_sigmask(SIG_SETMASK, &saved, nullptr);
  if (s.housekeeper_runs) s.housekeeper_started.acquire();
}

int open_names(Globals& g, Session& s) {
  int error = 0;
  s.token = new_token();
  s.names.reset(NamesWriter::create(s.dir, s.token, &error));
  if (!s.names) return error ? error : EIO;
  s.names->header().ns_per_record.store(g.ns_per_record, std::memory_order_relaxed);
  s.names->add_all(g.texts);
  g_counters.store(&s.names->header(), std::memory_order_release);
  return 0;
}

// Marks the calling thread's ring as ended. Called with the lock held.
void end_ring(Globals& g, ThreadState& t) {
  const bool mine = g.session && t.ring && t.generation == g.generation;
  if (mine) {
    auto& rings = g.session->rings;
    auto it = std::find_if(rings.begin(), rings.end(), [&](const Entry& e) { return e.ring.get() == t.ring; });
    if (it != rings.end()) {
      if (g.session->mode == SpoolMode::kStream && g.session->housekeeper_runs) {
        it->ended = true;
      } else {
        finish_ring(*g.session, *it->ring);
        rings.erase(it);
      }
    }
  }
  t.ring = nullptr;
  t.generation = 0;
}

struct ThreadGuard {  // ends the ring with its thread
  bool armed = false;
  ~ThreadGuard() {
    if (armed) rs_thread_detach();
  }
};
thread_local ThreadGuard t_guard;

Ring* make_ring(Globals& g, ThreadState& t) {
  Session& s = *g.session;
  if (!s.names && open_names(g, s) != 0) return nullptr;  // a forked child: it has no files yet
  start_housekeeper(s);
  RingOptions options;
  options.dir = s.dir;
  options.mode = s.mode;
  options.capacity = s.capacity;
  options.rank = t.rank;
  options.thread_name = t.name;
  options.process_token = s.token;
  options.first_id = s.next_id;
  options.tick_kind = g.tick_kind;
  options.ticks_per_ns = g.ticks_per_ns;
  int error = 0;
  Ring* ring = Ring::create(options, &error);
  if (!ring) {
    g.error = "cannot create a ring in " + s.dir + ": " + std::strerror(error);
    return nullptr;
  }
  s.next_id = ring->id() + 1;
  s.names->header().last_ring.store(ring->id(), std::memory_order_relaxed);
  s.rings.push_back({std::unique_ptr<Ring>(ring), false});
  return ring;
}

// The calling thread's ring of this recording, created on first use. nullptr: none to be had.
Ring* acquire_ring(ThreadState& t, int generation) {
  if (t.failed == generation) return nullptr;
  Globals& g = globals();
  std::lock_guard lock(g.mutex);
  if (!g.session || g.generation != generation) return nullptr;
  end_ring(g, t);
  t.ring = make_ring(g, t);
  if (!t.ring) {
    t.failed = generation;
    return nullptr;
  }
  t.generation = generation;
  t.next_op = uint64_t(t.ring->id()) << 40;
  t.tick_kind = g.tick_kind;
  t_guard.armed = true;
  return t.ring;
}

inline Ring* ring_of(ThreadState& t) {
  const int generation = rs_enabled();
  if (generation == 0) return nullptr;
  if (__builtin_expect(t.generation == generation, 1)) return t.ring;
  return acquire_ring(t, generation);
}

void before_fork() { globals().mutex.lock(); }
void after_fork_parent() { globals().mutex.unlock(); }
void after_fork_child() {
  Globals& g = globals();
  g_counters.store(nullptr);
  if (g.session) {
    auto child = std::make_unique<Session>();
    child->dir = g.session->dir;
    child->mode = g.session->mode;
    child->capacity = g.session->capacity;
    child->next_id = g.session->next_id;
    g.abandoned.push_back(std::move(g.session));
    g.session = std::move(child);
    set_recording(next_generation(g));
  }
  g.mutex.unlock();
}

// 0 = the folder is there and empty.
int prepare_folder(const char* dir, std::string& why) {
  if (mkdir(dir, 0755) == 0) return 0;
  const int error = errno;
  why = std::string("cannot create ") + dir + ": " + std::strerror(error);
  if (error != EEXIST) return error;
  DIR* listing = opendir(dir);
  if (!listing) return errno;
  int entries = 0;
  while (const dirent* entry = readdir(listing))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) ++entries;
  closedir(listing);
  if (entries == 0) return 0;
  why = std::string(dir) + " is not empty";
  return ENOTEMPTY;
}

uint64_t capacity_for(const rs_options& options) {
  if (options.ring_bytes) {
    const uint64_t capacity = options.ring_bytes / kRecordBytes;
    const bool sane = options.ring_bytes % kRecordBytes == 0 && capacity >= 4 && capacity <= (1u << 24) &&
                      (capacity & (capacity - 1)) == 0;
    return sane ? capacity : 0;
  }
  const uint64_t threads = options.threads_expected > 0 ? uint64_t(options.threads_expected) : 16;
  const uint64_t bytes = std::clamp(kTotalBytes / threads, kLeastRingBytes, kMostRingBytes);
  uint64_t capacity = kLeastRingBytes / kRecordBytes;
  while (capacity * 2 * kRecordBytes <= bytes) capacity *= 2;
  return capacity;
}

rs_counts count_locked(const Globals& g) {
  if (!g.session) return g.last;
  const Session& s = *g.session;
  rs_counts counts = s.ended;
  for (const Entry& entry : s.rings) account(counts, *entry.ring);
  if (s.names) {
    counts.dropped += s.names->header().unringed.load(std::memory_order_relaxed);
    counts.names_lost = s.names->header().names_lost.load(std::memory_order_relaxed);
  }
  return counts;
}

}  // namespace
}  // namespace ringscope

using namespace ringscope;

int rs_open(const rs_options* options) {
  Globals& g = globals();
  std::lock_guard lock(g.mutex);
  auto fail = [&](int error, std::string why) {
    g.error = std::move(why);
    return error;
  };
  if (!options || !options->spool_dir || !*options->spool_dir) return fail(EINVAL, "no spool folder given");
  if (g.session) return fail(EBUSY, "this process records already");
  if (options->mode != RS_MODE_FLIGHT && options->mode != RS_MODE_STREAM)
    return fail(EINVAL, "unknown recorder mode " + std::to_string(options->mode));
  auto session = std::make_unique<Session>();
  session->dir = options->spool_dir;
  session->mode = options->mode == RS_MODE_STREAM ? SpoolMode::kStream : SpoolMode::kFlight;
  session->capacity = capacity_for(*options);
  if (!session->capacity) return fail(EINVAL, "ring_bytes must be 64 times a power of two from 4 to 2^24");
  std::string why;
  if (const int error = prepare_folder(options->spool_dir, why)) return fail(error, why);
  if (g.ticks_per_ns == 0) {
    g.tick_kind = tsc_is_invariant() ? TickKind::kTsc : TickKind::kMonotonic;
    g.ticks_per_ns = measure_ticks_per_ns(g.tick_kind);
    g.ns_per_record = Ring::measure_ns_per_record(g.tick_kind);
  }
  if (const int error = open_names(g, *session))
    return fail(error, "cannot write in " + session->dir + ": " + std::strerror(error));
  if (!g.fork_handlers) g.fork_handlers = pthread_atfork(before_fork, after_fork_parent, after_fork_child) == 0;
  g.session = std::move(session);
  g.error.clear();
  start_housekeeper(*g.session);
  if (g.session->mode == SpoolMode::kStream && !g.session->housekeeper_runs) {
    g.session.reset();
    g_counters.store(nullptr);
    return fail(EAGAIN, "cannot start the drainer thread");
  }
  set_recording(next_generation(g));
  return 0;
}

void rs_close(void) {
  Globals& g = globals();
  std::unique_lock lock(g.mutex);
  if (!g.session || g.session->stop) return;
  Session& s = *g.session;
  set_recording(0);
  s.stop = true;
  if (s.housekeeper_runs) {
    s.wake.notify_all();
    lock.unlock();
    pthread_join(s.housekeeper, nullptr);
    lock.lock();
  }
  for (Entry& entry : s.rings) finish_ring(s, *entry.ring);
  s.rings.clear();
  g.last = count_locked(g);
  g_counters.store(nullptr);
  g.session.reset();
}

const char* rs_last_error(void) {
  static thread_local std::string copy;
  Globals& g = globals();
  std::lock_guard lock(g.mutex);
  copy = g.error;
  return copy.c_str();
}

void rs_thread_attach(int rank, const char* name) {
  ThreadState& t = t_state;
  t.busy = 1;
  {
    Globals& g = globals();
    std::lock_guard lock(g.mutex);
    end_ring(g, t);
    t.rank = rank;
    t.failed = 0;
    std::strncpy(t.name, name ? name : "", sizeof t.name - 1);
  }
  ring_of(t);
  t.busy = 0;
}

void rs_thread_detach(void) {
  ThreadState& t = t_state;
  t.busy = 1;
  {
    Globals& g = globals();
    std::lock_guard lock(g.mutex);
    end_ring(g, t);
    t.rank = -1;
    t.name[0] = 0;
    t.muted = false;
  }
  t.busy = 0;
}

uint32_t rs_intern(const char* text) {
  if (!text || !*text) return 0;
  Globals& g = globals();
  std::lock_guard lock(g.mutex);
  const auto [it, fresh] = g.ids.try_emplace(text, uint32_t(g.texts.size() + 1));
  if (fresh) {
    g.texts.push_back(&it->first);
    if (g.session && g.session->names) g.session->names->add(it->second, it->first);
  }
  return it->second;
}

void rs_thread_mute(int muted) { t_state.muted = muted != 0; }

namespace {
int g_paused = 0;  // the generation to go on with; changed by the thread that pauses
}
void rs_pause(void) {
  g_paused = rs_enabled();
  set_recording(0);
}
void rs_resume(void) {
  if (g_paused) set_recording(g_paused);
  g_paused = 0;
}

uint64_t rs_next_op(void) {
  if (!rs_enabled()) return 0;
  ThreadState& t = t_state;
  if (!ring_of(t)) return rs_enabled() ? g_next_fallback_op.fetch_add(1, std::memory_order_relaxed) : 0;
  return ++t.next_op;
}

void rs_emit(uint16_t kind, uint16_t flags, uint16_t lane, const uint64_t* payload, int n_words) {
  if (!rs_enabled()) return;
  ThreadState& t = t_state;
  if (t.muted) [[unlikely]]
    return;
  if (t.busy) {  // a signal handler, or an allocator hook, inside a probe
    if (t.ring && t.generation == rs_enabled()) t.ring->header().reentered.fetch_add(1, std::memory_order_relaxed);
    else count_unringed();
    return;
  }
  t.busy = 1;
  if (Ring* ring = ring_of(t)) {
    const uint64_t ticks = read_ticks(t.tick_kind);
    if (is_definition(kind)) [[unlikely]]
      ring->define(ticks, kind, flags, lane, payload, n_words);
    else ring->emit(ticks, kind, flags, lane, payload, n_words);
  } else if (rs_enabled()) {
    count_unringed();
  }
  t.busy = 0;
}

rs_counts rs_count(void) {
  Globals& g = globals();
  std::lock_guard lock(g.mutex);
  return count_locked(g);
}
