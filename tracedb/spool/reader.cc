// A whole spool folder read back: names, the common clock of a process's rings, and the rings (ring_reader.cc).
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <tuple>

#include "tracedb/spool/names_format.h"
#include "tracedb/spool/newer.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

bool ends_with(const std::string& text, std::string_view tail) {
  return text.size() >= tail.size() && text.compare(text.size() - tail.size(), tail.size(), tail) == 0;
}

}  // namespace

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

// Takes the entry at `at` and returns its size; 0 = there is no whole one.
size_t read_name(const char* at, size_t left, ProcessNames& names) {
  NameEntry entry{};
  if (left < sizeof entry) return 0;
  std::memcpy(&entry, at, sizeof entry);
  const size_t padded = (size_t(entry.bytes) + 7) / 8 * 8;
  const bool fits =
      entry.id != 0 && entry.reserved == 0 && entry.bytes <= kMaxNameBytes && left - sizeof entry >= padded;
  if (!fits) return 0;
  const std::string_view text(at + sizeof entry, entry.bytes);
  if (name_check(entry.id, text) != entry.check) return 0;
  names.names.emplace(entry.id, text);
  return sizeof entry + padded;
}

Result<ProcessNames> read_names(const std::string& path) {
  auto m = MappedFile::open(path);
  if (!m) return tl::unexpected(m.error());
  const char* base = m->data();
  if (m->bytes() < kSpoolHeaderBytes) return data_error(path + ": too short for a names file (truncated?)");
  const auto& h = *reinterpret_cast<const NamesHeader*>(base);
  if (h.magic != kNamesMagic) return data_error(path + ": not a names file");
  if (h.version > kSpoolVersion) return newer_error(path, h.version);
  ProcessNames names;
  names.token = h.token;
  names.pid = int(h.pid);
  names.unringed = h.unringed.load();
  names.names_lost = h.names_lost.load();
  names.ns_per_record = h.ns_per_record.load();
  names.last_ring = h.last_ring.load();
  size_t at = kSpoolHeaderBytes;
  while (at < m->bytes()) {
    const size_t read = read_name(base + at, m->bytes() - at, names);
    if (read > 0 && names.torn_tail) ++names.names_damaged;  // behind a damaged entry the next whole one is looked for
    names.torn_tail = read == 0;
    at += read > 0 ? read : 8;
  }
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
    else if (id > 0 && !ends_with(name, ".def")) listing.ids.insert(id);
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
  for (const std::string& path : listing.names) {
    if (auto names = read_names(path)) contents.processes.push_back(std::move(*names));
    else if (is_newer(names.error())) return tl::unexpected(names.error());
    else contents.unreadable.push_back({path, names.error().message});
  }
  for (const std::string& path : listing.rings) {
    if (auto ring = RingReader::open(path)) contents.rings.push_back(std::move(*ring));
    else if (is_newer(ring.error())) return tl::unexpected(ring.error());
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
