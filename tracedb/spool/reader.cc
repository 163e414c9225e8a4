#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <tuple>

#include "tracedb/spool/names_format.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

// In the error of a file that a later version wrote: nothing may be made of the rest of its spool then.
const std::string kNewer = "is newer than this version";

std::string text_of(const char* chars, size_t size) { return {chars, strnlen(chars, size)}; }

bool ends_with(const std::string& text, std::string_view tail) {
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

struct Mapping {
  void* base = nullptr;
  size_t bytes = 0;
};

// Empty file: base = nullptr, bytes = 0.
Result<Mapping> map_file(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return data_error(path + ": cannot open: " + std::strerror(errno));
  struct stat info {};
  Mapping m;
  if (fstat(fd, &info) == 0 && info.st_size > 0) {
    m.bytes = size_t(info.st_size);
    m.base = mmap(nullptr, m.bytes, PROT_READ, MAP_SHARED, fd, 0);
  }
  const int map_errno = errno;
  close(fd);
  if (m.base == MAP_FAILED) return data_error(path + ": cannot map: " + std::strerror(map_errno));
  return m;
}

Status check_header(const std::string& path, const Mapping& m) {
  if (m.bytes < kSpoolHeaderBytes)
    return data_error(path + ": " + std::to_string(m.bytes) + " bytes are too few for a ring file (truncated?)");
  const auto& h = *static_cast<const RingHeader*>(m.base);
  if (h.magic != kRingMagic) return data_error(path + ": not a ring file");
  if (h.version > kSpoolVersion)
    return data_error(path + ": spool version " + std::to_string(h.version) + " " + kNewer + " reads (" +
                      std::to_string(kSpoolVersion) + ")");
  const bool sane = h.version == kSpoolVersion && h.record_bytes == kRecordBytes && h.capacity > 0 &&
                    h.capacity <= (uint64_t(1) << 32) && (h.capacity & (h.capacity - 1)) == 0;
  if (!sane) return data_error(path + ": ring header is damaged");
  if (m.bytes < kSpoolHeaderBytes + h.capacity * kRecordBytes)
    return data_error(path + ": ring file is truncated: " + std::to_string(m.bytes) + " bytes of " +
                      std::to_string(kSpoolHeaderBytes + h.capacity * kRecordBytes));
  return {};
}

}  // namespace

Result<RingReader> RingReader::open(const std::string& path) {
  auto ring = map_file(path);
  if (!ring) return tl::unexpected(ring.error());
  if (auto ok = check_header(path, *ring); !ok) {
    if (ring->base) munmap(ring->base, ring->bytes);
    return tl::unexpected(ok.error());
  }
  RingReader reader;
  reader.path_ = path;
  reader.ring_map_ = ring->base;
  reader.ring_bytes_ = ring->bytes;
  reader.ring_ = reinterpret_cast<const uint64_t*>(static_cast<const char*>(ring->base) + kSpoolHeaderBytes);
  reader.read_header(*static_cast<const RingHeader*>(ring->base));
  if (reader.mode_ == SpoolMode::kStream) {
    const std::string segment = path.substr(0, path.size() - std::min<size_t>(path.size(), 4)) + "seg";
    if (auto m = map_file(segment); m) {  // a missing segment shows as records that are not there
      reader.segment_map_ = m->base;
      reader.segment_bytes_ = m->bytes;
      reader.segment_ = static_cast<const uint64_t*>(m->base);
      reader.segment_records_ = m->bytes / kRecordBytes;
    }
  }
  reader.settle();
  return reader;
}

RingReader::RingReader(RingReader&& other) noexcept { *this = std::move(other); }

RingReader& RingReader::operator=(RingReader&& other) noexcept {
  if (this == &other) return *this;
  std::swap(path_, other.path_);
  std::swap(ring_, other.ring_);
  std::swap(segment_, other.segment_);
  std::swap(ring_map_, other.ring_map_);
  std::swap(segment_map_, other.segment_map_);
  std::swap(ring_bytes_, other.ring_bytes_);
  std::swap(segment_bytes_, other.segment_bytes_);
  std::swap(host_, other.host_);
  std::swap(boot_id_, other.boot_id_);
  std::swap(thread_name_, other.thread_name_);
  std::swap(clock_, other.clock_);
  std::swap(line_, other.line_);
  std::tie(capacity_, segment_records_, ring_first_, end_, ring_id_, rank_, pid_, tid_, token_, emits_, head_,
           reentered_, mode_, tick_kind_, ticks_per_ns_, clean_, loss_) =
      std::tie(other.capacity_, other.segment_records_, other.ring_first_, other.end_, other.ring_id_, other.rank_,
               other.pid_, other.tid_, other.token_, other.emits_, other.head_, other.reentered_, other.mode_,
               other.tick_kind_, other.ticks_per_ns_, other.clean_, other.loss_);
  return *this;
}

RingReader::~RingReader() {
  if (ring_map_) munmap(ring_map_, ring_bytes_);
  if (segment_map_) munmap(segment_map_, segment_bytes_);
}

void RingReader::read_header(const RingHeader& h) {
  capacity_ = h.capacity;
  ring_id_ = h.ring_id;
  rank_ = h.rank;
  pid_ = h.pid;
  tid_ = h.tid;
  token_ = h.process_token;
  mode_ = h.mode;
  tick_kind_ = h.tick_kind;
  ticks_per_ns_ = h.ticks_per_ns > 0 ? h.ticks_per_ns : 1;
  host_ = text_of(h.host, sizeof h.host);
  boot_id_ = text_of(h.boot_id, sizeof h.boot_id);
  thread_name_ = text_of(h.thread_name, sizeof h.thread_name);
  clean_ = h.clean.load() == 1;
  head_ = h.head.load(std::memory_order_acquire);
  emits_ = h.emits.load();
  reentered_ = h.reentered.load();
  loss_.first_ticks = h.first_drop_ticks.load();
  loss_.last_ticks = h.last_drop_ticks.load();
  const uint64_t count = std::min<uint64_t>(h.clock_count.load(std::memory_order_acquire), kClockSamples);
  for (uint64_t i = 0; i < count; ++i)
    clock_.push_back({h.clock[i].realtime_ns.load(), h.clock[i].monotonic_ns.load(), h.clock[i].ticks.load()});
  line_ = std::make_shared<ClockLine>(clock_, ticks_per_ns_);
}

const uint64_t* RingReader::at(uint64_t seq) const {
  if (seq == 0) return nullptr;
  if (seq <= segment_records_) {
    const uint64_t* record = segment_ + (seq - 1) * kRecordWords;
    if (load(record) == seq) return record;
  }
  const uint64_t* record = ring_ + ((seq - 1) & (capacity_ - 1)) * kRecordWords;
  return load(record) == seq ? record : nullptr;
}

bool RingReader::group_at(uint64_t seq, Group& group) const {
  const uint64_t* record = at(seq);
  if (!record) return false;
  const uint64_t meta = load(record + 2);
  const uint64_t more = meta >> 48;
  group.seq = seq;
  group.ticks = load(record + 1);
  group.kind = RecordKind(meta & 0xFFFF);
  group.flags = uint16_t(meta >> 16);
  group.lane = uint16_t(meta >> 32);
  group.n_words = kPayloadWords * (more ? 2 : 1);
  for (int i = 0; i < kPayloadWords; ++i) group.payload[i] = load(record + 3 + i);
  for (int i = kPayloadWords; i < 2 * kPayloadWords; ++i) group.payload[i] = 0;
  if (more) {
    const uint64_t* rest = at(seq + 1);
    if (!rest || RecordKind(load(rest + 2) & 0xFFFF) != RecordKind::kContinuation) return false;
    for (int i = 0; i < kPayloadWords; ++i) group.payload[kPayloadWords + i] = load(rest + 3 + i);
    if (load(rest) != seq + 1) return false;
  }
  return more <= 1 && load(record) == seq;  // a live writer may have come round meanwhile
}

uint64_t RingReader::next_stored(uint64_t seq) const {
  if (seq <= segment_records_ || end_ <= capacity_) return seq;
  return std::max(seq, end_ - capacity_);
}

void RingReader::settle() {
  // The writer publishes a record before it moves the head: look past it.
  uint64_t last = std::max(head_, mode_ == SpoolMode::kStream ? segment_records_ : 0);
  while (at(last + 1)) ++last;
  end_ = last + 1;
  ring_first_ = 1;
  if (mode_ == SpoolMode::kFlight && last > capacity_) ring_first_ = last - capacity_ + 1;
  Group group;
  bool after_hole = ring_first_ > 1;  // continuations behind a hole belong to what is missing
  for (uint64_t seq = ring_first_; seq < end_;) {
    if (group_at(seq, group) && group.kind != RecordKind::kContinuation) {
      ++loss_.recovered;
      seq += group.n_words > kPayloadWords ? 2 : 1;
      after_hole = false;
      continue;
    }
    if (const uint64_t stored = next_stored(seq); stored > seq) {
      loss_.torn += stored - seq;
      after_hole = true;
      seq = stored;
      continue;
    }
    const uint64_t* record = at(seq);
    const bool orphan = record && RecordKind(load(record + 2) & 0xFFFF) == RecordKind::kContinuation;
    if (!(orphan && after_hole)) ++loss_.torn;
    after_hole = true;
    ++seq;
  }
  const uint64_t total = std::max(emits_ + reentered_, loss_.recovered + loss_.torn);
  loss_.lost = total - loss_.recovered - loss_.torn;
}

void RingReader::for_each(uint64_t from, const std::function<void(const Group&)>& visit) const {
  Group group;
  for (uint64_t seq = std::max(from, ring_first_); seq < end_;) {
    if (!group_at(seq, group) || group.kind == RecordKind::kContinuation) {
      seq = std::max(seq + 1, next_stored(seq));
      continue;
    }
    visit(group);
    seq += group.n_words > kPayloadWords ? 2 : 1;
  }
}

namespace {

// What a clock can say. The bounds keep to_ns() within int64 whatever a damaged header holds: until the year 2116,
// 36 years of uptime, and no further than that from the nearest sample.
constexpr int64_t kLastRealtimeNs = int64_t{1} << 62;
constexpr int64_t kLastMonotonicNs = int64_t{1} << 60;
constexpr double kSlowestTicksPerNs = 1e-6, kFastestTicksPerNs = 1e6;

bool plausible(const ClockLine::Sample& s) {
  return s.realtime_ns >= 0 && s.realtime_ns < kLastRealtimeNs && s.monotonic_ns >= 0 &&
         s.monotonic_ns < kLastMonotonicNs;
}

}  // namespace

ClockLine::ClockLine(std::vector<Sample> samples, double ticks_per_ns)
    : ticks_per_ns_(ticks_per_ns >= kSlowestTicksPerNs && ticks_per_ns <= kFastestTicksPerNs ? ticks_per_ns : 1) {
  std::erase_if(samples, [](const Sample& s) { return !plausible(s); });
  std::sort(samples.begin(), samples.end(), [](const Sample& a, const Sample& b) { return a.ticks < b.ticks; });
  for (const Sample& s : samples) {
    const bool far = knots_.empty() ||
                     (s.ticks > knots_.back().ticks && s.monotonic_ns - knots_.back().monotonic_ns >= kShortestPieceNs);
    if (far) knots_.push_back(s);
  }
}

int64_t ClockLine::to_ns(uint64_t ticks) const {
  if (ticks == 0 || knots_.empty()) return 0;
  const int64_t epoch = knots_.front().realtime_ns - knots_.front().monotonic_ns;
  // The piece that holds it; before the first and behind the last the nearest piece is carried on.
  const auto next =
      std::upper_bound(knots_.begin(), knots_.end(), ticks, [](uint64_t t, const Sample& s) { return t < s.ticks; });
  size_t piece = next == knots_.begin() ? 0 : size_t(next - knots_.begin()) - 1;
  double ns_per_tick = 1 / ticks_per_ns_;
  if (knots_.size() > 1) {
    piece = std::min(piece, knots_.size() - 2);
    const Sample &a = knots_[piece], &b = knots_[piece + 1];
    ns_per_tick = double(b.monotonic_ns - a.monotonic_ns) / double(b.ticks - a.ticks);
  }
  const Sample& base = knots_[piece];
  const double shift = double(int64_t(ticks - base.ticks)) * ns_per_tick;
  return epoch + base.monotonic_ns + int64_t(std::clamp(shift, -double(kLastMonotonicNs), double(kLastMonotonicNs)));
}

namespace {

Result<ProcessNames> read_names(const std::string& path) {
  auto m = map_file(path);
  if (!m) return tl::unexpected(m.error());
  const char* base = static_cast<const char*>(m->base);
  auto fail = [&](const std::string& why) {
    if (m->base) munmap(m->base, m->bytes);
    return data_error(path + ": " + why);
  };
  if (m->bytes < kSpoolHeaderBytes) return fail("too short for a names file (truncated?)");
  const auto& h = *reinterpret_cast<const NamesHeader*>(base);
  if (h.magic != kNamesMagic) return fail("not a names file");
  if (h.version > kSpoolVersion) return fail("spool version " + std::to_string(h.version) + " " + kNewer + " reads");
  ProcessNames names;
  names.token = h.token;
  names.pid = int(h.pid);
  names.unringed = h.unringed.load();
  names.names_lost = h.names_lost.load();
  names.ns_per_record = h.ns_per_record.load();
  names.last_ring = h.last_ring.load();
  size_t at = kSpoolHeaderBytes;
  while (at < m->bytes) {
    NameEntry entry{};
    if (m->bytes - at < sizeof entry) break;
    std::memcpy(&entry, base + at, sizeof entry);
    const size_t padded = (size_t(entry.bytes) + 7) / 8 * 8;
    if (entry.id == 0 || entry.bytes > kMaxNameBytes || m->bytes - at - sizeof entry < padded) break;
    const std::string_view text(base + at + sizeof entry, entry.bytes);
    if (name_check(entry.id, text) != entry.check) break;
    names.names.emplace(entry.id, text);
    at += sizeof entry + padded;
  }
  names.torn_tail = at < m->bytes;
  munmap(m->base, m->bytes);
  return names;
}

// "ring-000007.seg" -> 7; 0 = no file of a ring.
uint64_t ring_id_of(const std::string& name) {
  if (name.rfind("ring-", 0) != 0) return 0;
  return std::strtoull(name.c_str() + 5, nullptr, 10);
}

struct Listing {
  std::vector<std::string> rings, names;
  std::set<uint64_t> ids;     // of rings that are there, or whose creation was interrupted
  uint64_t last_segment = 0;  // highest id that has a segment file
  int unfinished = 0;
};

Listing list_spool(const std::string& dir) {
  Listing listing;
  std::error_code error;
  std::filesystem::directory_iterator it(dir, error), end;
  for (; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.rfind("ring-", 0) == 0 && ends_with(name, ".ring")) listing.rings.push_back(it->path().string());
    if (name.rfind("process-", 0) == 0 && ends_with(name, ".names")) listing.names.push_back(it->path().string());
    listing.unfinished += ends_with(name, ".new");
    const uint64_t id = ring_id_of(name);
    if (ends_with(name, ".seg")) listing.last_segment = std::max(listing.last_segment, id);
    else if (id > 0) listing.ids.insert(id);
  }
  std::sort(listing.rings.begin(), listing.rings.end());
  std::sort(listing.names.begin(), listing.names.end());
  return listing;
}

}  // namespace

namespace {

// Ring ids of a folder are given out without a gap, from 1: one that is missing was a ring once.
std::vector<std::string> absent_rings(const std::string& dir, const Listing& listing,
                                      const std::vector<ProcessNames>& processes) {
  constexpr uint64_t kMostIds = 1 << 24;  // as the writer; beyond it the number is damage
  constexpr size_t kMostNamed = 4096;     // damage may claim any number of them
  uint64_t last = listing.last_segment;
  if (!listing.ids.empty()) last = std::max(last, *listing.ids.rbegin());
  for (const ProcessNames& process : processes)
    if (process.last_ring < kMostIds) last = std::max(last, process.last_ring);
  std::vector<std::string> absent;
  for (uint64_t id = 1; id <= std::min(last, kMostIds) && absent.size() < kMostNamed; ++id) {
    if (listing.ids.contains(id)) continue;
    char name[40];
    std::snprintf(name, sizeof name, "/ring-%06u.ring", unsigned(id));
    if (access((dir + name).c_str(), F_OK) != 0) absent.push_back(dir + name);  // a live run may have made it since
  }
  return absent;
}

// One time line for the rings of each process.
void share_clocks(std::vector<RingReader>& rings) {
  std::unordered_map<uint64_t, std::vector<ClockLine::Sample>> samples;
  for (const RingReader& ring : rings) {
    auto& all = samples[ring.process_token()];
    all.insert(all.end(), ring.clock().begin(), ring.clock().end());
  }
  std::unordered_map<uint64_t, std::shared_ptr<const ClockLine>> lines;
  for (RingReader& ring : rings) {
    auto& line = lines[ring.process_token()];
    if (!line) line = std::make_shared<ClockLine>(samples[ring.process_token()], ring.ticks_per_ns());
    ring.share_clock(line);
  }
}

}  // namespace

bool is_spool(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) return false;
  const Listing listing = list_spool(dir);
  return !listing.rings.empty() || !listing.names.empty();
}

Result<SpoolContents> read_spool(const std::string& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) return data_error(dir + ": no such spool folder");
  const Listing listing = list_spool(dir);
  if (listing.rings.empty() && listing.names.empty()) return data_error(dir + ": holds no ring files");
  SpoolContents contents;
  contents.unfinished = listing.unfinished;
  auto newer = [](const Error& e) { return e.message.find(kNewer) != std::string::npos; };
  for (const std::string& path : listing.names) {
    if (auto names = read_names(path)) contents.processes.push_back(std::move(*names));
    else if (newer(names.error())) return tl::unexpected(names.error());
    else contents.unreadable.push_back({path, names.error().message});
  }
  for (const std::string& path : listing.rings) {
    if (auto ring = RingReader::open(path)) contents.rings.push_back(std::move(*ring));
    else if (newer(ring.error())) return tl::unexpected(ring.error());
    else contents.unreadable.push_back({path, ring.error().message});
  }
  contents.absent = absent_rings(dir, listing, contents.processes);
  std::sort(contents.rings.begin(), contents.rings.end(), [](const RingReader& a, const RingReader& b) {
    return std::make_tuple(a.rank(), a.start_ns(), a.ring_id()) < std::make_tuple(b.rank(), b.start_ns(), b.ring_id());
  });
  share_clocks(contents.rings);
  return contents;
}

}  // namespace ringscope
