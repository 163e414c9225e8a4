// The spool: what a recorded run writes, and nothing else. A folder of
//   ring-<id>.ring       one thread's ring: 4 KiB header, then a power of two of 64-byte records (record.h)
//   ring-<id>.seg        stream mode: the same records, appended by the drainer, record n at byte (n-1)*64
//   ring-<id>.def        the thread's definitions (is_definition) once more, append only, as the same records
//   process-<token>.names  4 KiB header with the process's counters, then interned names, append only
//   *.new                one of these being created; it gets its name when it can take records
// Pages are shared file pages: they outlive SIGKILL, abort and segfault, not a power loss.
//
// Fields that a crash may interrupt are single 64-bit words. Header `emits` counts every attempt and is
// stored before the record is written, so lost = emits - recovered is exact at any instant of a kill.
//
// Definitions. A ring overwrites its oldest records, or drops its newest; a hang at step 2,000 still has to be told
// from the communicators made before step 0. A definition takes its place in the ring as any record does and is also
// appended to the .def file, by the thread itself: it is rare enough for a system call. The reader takes it from
// there where the ring has it no more, so it is one record, recovered once. One that found no room in a full ring
// lies in the .def file alone, as sequence number 0. What a full disk keeps from the .def file is in the ring, and
// counts in `unsaved`. Allocations of buffers are no definitions, though races name buffers: most are made anew in
// every step, and a file of them would grow without end.
//
// Damage. Every record carries a seal (seal.h), which the reader checks wherever it finds the record: what was torn
// by a kill, is being written, or had bytes changed on disk is not delivered and counts as torn, between the times
// of its neighbours. The seal costs the writing thread 1.5 to 2.6 ns (tests/bench/RESULTS.md); a checksum per block of
// a segment would have cost the drainer, and have left rings without one. The header's fixed fields have a check of
// their own; its counters are believed only as far as they agree with the records.
//
// Versions: 1 had neither seals (word 0 was the whole sequence number), nor checks, nor .def files; it is read, by
// sequence numbers and kinds alone.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/record.h"
#include "tracedb/spool/mapped_file.h"

namespace ringscope {

inline constexpr uint32_t kSpoolVersion = 2;
inline constexpr uint32_t kFirstSealedVersion = 2;
inline constexpr uint64_t kRingMagic = 0x474E495250435352;   // "RSCPRING"
inline constexpr uint64_t kNamesMagic = 0x454D414E50435352;  // "RSCPNAME"
inline constexpr size_t kSpoolHeaderBytes = 4096;
inline constexpr int kClockSamples = 64;
inline constexpr size_t kMaxNameBytes = 1 << 20;

enum class SpoolMode : uint32_t { kFlight = 0, kStream = 1 };
enum class TickKind : uint32_t { kTsc = 0, kMonotonic = 1 };  // kMonotonic: no invariant TSC on this machine

struct ClockSample {
  std::atomic<int64_t> realtime_ns, monotonic_ns;
  std::atomic<uint64_t> ticks;
};
// 32 bits that tell a damaged sample, or one that is being written.
uint32_t clock_check(int64_t realtime_ns, int64_t monotonic_ns, uint64_t ticks);

// First page of a ring file.
struct RingHeader {
  uint64_t magic;
  uint32_t version, record_bytes;
  uint64_t capacity;  // records, a power of two
  uint32_t ring_id;   // unique in the folder; upper bits of op ids
  SpoolMode mode;
  int32_t rank, pid, tid;
  TickKind tick_kind;
  double ticks_per_ns;
  uint64_t process_token;  // names the process-<token>.names file
  char host[64];
  char boot_id[40];
  char thread_name[64];

  std::atomic<uint64_t> emits;      // attempts, dropped ones included
  std::atomic<uint64_t> head;       // records published
  std::atomic<uint64_t> tail;       // records that the segment file holds
  std::atomic<uint64_t> dropped;    // groups dropped because the ring was full
  std::atomic<uint64_t> reentered;  // groups refused inside a probe (signal handler)
  std::atomic<uint64_t> first_drop_ticks, last_drop_ticks;
  std::atomic<uint64_t> clean;        // 1 = closed in order
  std::atomic<uint64_t> clock_count;  // samples taken so far that stay valid
  ClockSample clock[kClockSamples];   // first = at creation; every second, thinned by half when full
  // Since version 2.
  std::atomic<uint64_t> unsaved;  // definitions that could not be appended to the .def file
  std::atomic<uint32_t> clock_checks[kClockSamples];
  uint32_t check;  // over the fields between `magic` and `emits`
};
static_assert(offsetof(RingHeader, emits) == 232 && offsetof(RingHeader, unsaved) == 1840);
static_assert(sizeof(RingHeader) <= kSpoolHeaderBytes);
uint32_t header_check(const RingHeader&);
// What this ring's seals start from: a record that strayed here from another ring has no valid one.
uint64_t seal_salt(const RingHeader&);

struct NamesHeader {
  uint64_t magic;
  uint32_t version, pid;
  uint64_t token;
  std::atomic<uint64_t> unringed;     // groups lost by threads that could not get a ring
  std::atomic<uint64_t> names_lost;   // names that could not be written
  std::atomic<double> ns_per_record;  // what a record costs on this machine, measured when recording began
  std::atomic<uint64_t> last_ring;    // highest ring id that the process made; 0 = a writer that did not say
};

struct Slot {
  std::atomic<uint64_t> word[kRecordWords];
};
static_assert(sizeof(Slot) == kRecordBytes);

// --- producer ---------------------------------------------------------------------------------------------

struct RingOptions {
  std::string dir;
  SpoolMode mode = SpoolMode::kFlight;
  uint64_t capacity = 4096;  // records, power of two
  int rank = -1;
  std::string thread_name;
  uint64_t process_token = 0;
  uint32_t first_id = 1;  // ids are tried from here
  TickKind tick_kind = TickKind::kMonotonic;
  double ticks_per_ns = 1;
};

// One mapped ring. emit() belongs to the owning thread, drain() and sample_clock() to one other thread.
class Ring {
 public:
  // Claims a free ring id in the folder, allocates the file's blocks and maps it. Error: errno + sentence.
  static Ring* create(const RingOptions& options, int* error);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // What one record costs the calling thread here and now: the median of short bursts into a ring without a file.
  // 0 = could not be measured. Takes some 0.2 ms.
  static double measure_ns_per_record(TickKind kind);

  // Writes one group; false = dropped and counted. No lock, no allocation, no system call.
  inline bool emit(uint64_t ticks, uint16_t kind, uint16_t flags, uint16_t lane, const uint64_t* payload, int n_words);
  // The same for a definition, which goes to the .def file too. Makes system calls.
  bool define(uint64_t ticks, uint16_t kind, uint16_t flags, uint16_t lane, const uint64_t* payload, int n_words);
  // Stream mode: appends what is published to the segment file. 0 or an errno; *moved = records appended.
  int drain(uint64_t* moved);
  uint64_t waiting() const;  // records published and not yet drained
  void sample_clock();
  void mark_clean();

  RingHeader& header() { return *header_; }
  uint32_t id() const { return header_->ring_id; }

 private:
  Ring() = default;
  inline bool has_room(uint64_t slots);
  void drop(uint64_t ticks);
  // Appends to the .def file; seq 0 = the ring has no place for it.
  bool save(uint64_t seq, uint64_t ticks, uint64_t meta, const uint64_t* payload, int n_words);
  RingHeader* header_ = nullptr;
  Slot* slots_ = nullptr;
  uint64_t mask_ = 0, next_ = 1, emits_ = 0, room_until_ = 0, salt_ = 0;
  bool stream_ = false;
  int segment_fd_ = -1;
  std::string definitions_path_;
  int definitions_fd_ = -1;  // opened by the first definition: most threads have none
  uint64_t definitions_end_ = 0;
};

// The process's file of names and counters. Thread rule: the caller serialises.
class NamesWriter {
 public:
  static NamesWriter* create(const std::string& dir, uint64_t token, int* error);
  ~NamesWriter();
  NamesWriter(const NamesWriter&) = delete;
  NamesWriter& operator=(const NamesWriter&) = delete;

  // A failed write counts in names_lost and leaves no half entry behind the next one.
  void add(uint32_t id, const std::string& text);
  void add_all(const std::vector<const std::string*>& names);  // names[i] has id i + 1
  NamesHeader& header() { return *header_; }

 private:
  NamesWriter() = default;
  void append(const std::string& bytes, uint64_t names);
  NamesHeader* header_ = nullptr;
  int fd_ = -1;
  uint64_t end_ = kSpoolHeaderBytes;
};

// Blocks SIGXFSZ on this thread, and swallows one that a file size limit raised meanwhile: the traced
// program must not die of its probe.
class SizeLimitGuard {
 public:
  SizeLimitGuard();
  ~SizeLimitGuard();
  SizeLimitGuard(const SizeLimitGuard&) = delete;

 private:
  uint64_t saved_[16];
  bool active_ = false, was_pending_ = false;
};

bool tsc_is_invariant();
inline uint64_t read_ticks(TickKind kind);
double measure_ticks_per_ns(TickKind kind);  // takes about a millisecond for the TSC

// --- recovery ---------------------------------------------------------------------------------------------

// Ticks to ns on the job's time line: CLOCK_REALTIME of the first sample, carried on by the monotonic clock, so
// that it never jumps; piecewise linear between samples at least kShortestPieceNs apart (a shorter piece says less
// about the rate than the calibration does). All rings of a process share one, so that their order agrees.
class ClockLine {
 public:
  struct Sample {
    int64_t realtime_ns, monotonic_ns;
    uint64_t ticks;
  };
  static constexpr int64_t kShortestPieceNs = 100'000'000;
  ClockLine(std::vector<Sample> samples, double ticks_per_ns);
  int64_t to_ns(uint64_t ticks) const;  // 0 for 0, and without any sample

 private:
  std::vector<Sample> knots_;
  double ticks_per_ns_;
};

// A stretch of a thread's time in which groups are missing. 0 = open on that side: since the beginning, until the end.
struct LossSpan {
  uint64_t lost = 0, torn = 0;  // as in RingLoss
  uint64_t from_ticks = 0, to_ticks = 0;
};

struct RingLoss {
  uint64_t recovered = 0;  // groups
  uint64_t lost = 0;       // groups overwritten, dropped or refused
  uint64_t torn = 0;       // groups of which a part is missing, or that were damaged
  // Where they were: everything outside of these is there. What a flight ring overwrote ends at the first record that
  // is left; drops have the times of the first and the last; torn groups lie between their neighbours.
  std::vector<LossSpan> spans;
  LossSpan hull() const;  // the sums, and one stretch that holds all spans
};

// One group as read back. payload holds 10 words; n_words is 5 or 10.
struct Group {
  uint64_t seq = 0, ticks = 0;
  RecordKind kind = RecordKind::kNone;
  uint16_t flags = 0, lane = 0;
  int n_words = 0;
  std::array<uint64_t, 2 * kPayloadWords> payload{};
  template <class T>
  T as() const {
    static_assert(sizeof(T) <= sizeof(payload));
    T value;
    std::memcpy(&value, payload.data(), sizeof(T));
    return value;
  }
};

// A ring read back, of a process that ended in any way or of one that still runs.
class RingReader {
 public:
  // kData: not a ring, truncated header, foreign version (a newer one says so).
  static Result<RingReader> open(const std::string& path);

  uint32_t ring_id() const { return ring_id_; }
  int rank() const { return rank_; }
  int pid() const { return pid_; }
  int tid() const { return tid_; }
  uint64_t process_token() const { return token_; }
  SpoolMode mode() const { return mode_; }
  TickKind tick_kind() const { return tick_kind_; }
  bool clean() const { return clean_; }
  const std::string& host() const { return host_; }
  const std::string& thread_name() const { return thread_name_; }
  const std::string& path() const { return path_; }
  int64_t start_ns() const { return clock_.empty() ? 0 : clock_.front().realtime_ns; }

  const std::vector<ClockLine::Sample>& clock() const { return clock_; }
  double ticks_per_ns() const { return ticks_per_ns_; }
  // By this ring's own samples, or by its process's once read_spool() has shared them.
  int64_t to_ns(uint64_t ticks) const { return line_->to_ns(ticks); }
  void share_clock(std::shared_ptr<const ClockLine> line) { line_ = std::move(line); }

  // Every valid group with seq >= from, in order, definitions that the ring lost at their places. From 1 on, the
  // definitions that got no place (seq 0) come before them. Losses are those of the whole ring.
  void for_each(uint64_t from, const std::function<void(const Group&)>& visit) const;
  const RingLoss& loss() const { return loss_; }
  uint64_t unsaved() const { return unsaved_; }  // definitions without a copy outside of the ring
  uint64_t end_seq() const { return end_; }      // first sequence number that is not there

 private:
  using Record = std::array<uint64_t, kRecordWords>;
  struct Definition {
    uint64_t seq;
    const uint64_t* record;
  };

  RingReader() = default;
  void read_header(const RingHeader&);
  void read_clock(const RingHeader&);
  void find_end();
  void find_definitions();
  void settle();  // counts what is there, and what is not
  void close_account(uint64_t overwritten, uint64_t last_ticks);
  // Copies the record there if it is the one of that number, whole.
  bool copy_sealed(const uint64_t* record, uint64_t seq, Record& copy) const;
  bool read(uint64_t seq, Record& copy) const;  // from the file that has it
  bool group_at(uint64_t seq, Group& group) const;
  void for_each_placeless(const std::function<void(const Group&)>& visit) const;
  uint64_t ring_first() const { return end_ <= capacity_ ? 1 : end_ - capacity_; }
  // Between the end of the segment and the start of the ring there may be a hole, of any size when the header's head
  // is damaged; definitions lie in it like islands.
  bool in_hole(uint64_t seq) const { return seq > segment_.bytes() / kRecordBytes && seq < ring_first(); }
  uint64_t next_stored(uint64_t seq) const;  // the first number from `seq` on that a file can hold

  std::string path_;
  MappedFile ring_file_, segment_, definitions_file_;
  const uint64_t* slots_ = nullptr;      // in ring_file_
  std::vector<Definition> definitions_;  // by seq
  std::vector<Definition> placeless_;    // seq = index of the record in its file
  uint64_t capacity_ = 0, end_ = 1, salt_ = 0;
  uint32_t version_ = 0, ring_id_ = 0;
  int rank_ = -1, pid_ = 0, tid_ = 0;
  uint64_t token_ = 0, head_ = 0, emits_ = 0, dropped_ = 0, reentered_ = 0, unsaved_ = 0;
  uint64_t first_drop_ticks_ = 0, last_drop_ticks_ = 0;
  SpoolMode mode_ = SpoolMode::kFlight;
  TickKind tick_kind_ = TickKind::kMonotonic;
  double ticks_per_ns_ = 1;
  bool clean_ = false;
  std::string host_, boot_id_, thread_name_;
  std::vector<ClockLine::Sample> clock_;
  std::shared_ptr<const ClockLine> line_;
  RingLoss loss_;
};

struct ProcessNames {
  uint64_t token = 0;
  int pid = 0;
  uint64_t unringed = 0, names_lost = 0;
  uint64_t last_ring = 0;
  double ns_per_record = 0;    // 0 = not measured
  uint64_t names_damaged = 0;  // stretches of the file between whole entries that hold none
  bool torn_tail = false;
  std::unordered_map<uint32_t, std::string> names;
};

struct SpoolContents {
  std::vector<RingReader> rings;  // by (rank, start, id)
  std::vector<ProcessNames> processes;
  struct Bad {
    std::string path, why;
  };
  std::vector<Bad> unreadable;      // files that belong to the spool and cannot be read
  std::vector<std::string> absent;  // ring files that were made and are not there; ids in a folder leave no gap
  int unfinished = 0;               // files whose creation was interrupted: they never held a record
};

bool is_spool(const std::string& dir);
// kData when the folder is missing or holds no spool, or when a ring is of a newer version.
Result<SpoolContents> read_spool(const std::string& dir);

}  // namespace ringscope

#include "tracedb/spool/ring_emit.h"
