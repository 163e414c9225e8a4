// One ring read back: its ring file, its segment and its definitions, as one sequence of groups. Nothing in a file is
// believed but a record whose seal holds; the header's counters say how many there must have been.
#include <algorithm>
#include <cstring>
#include <utility>

#include "tracedb/spool/newer.h"
#include "tracedb/spool/seal.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

constexpr uint64_t kLowHalf = 0xFFFFFFFF;
// No thread writes more (days of nothing else): a counter beyond is damage, and sums of them must not wrap.
constexpr uint64_t kMostGroups = uint64_t(1) << 48;

uint64_t load(const uint64_t* word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }

std::string text_of(const char* chars, size_t size) { return {chars, strnlen(chars, size)}; }

template <class Record>
RecordKind kind_of(const Record& record) {
  return RecordKind(record[2] & 0xFFFF);
}
template <class Record>
uint64_t more_of(const Record& record) {  // records that follow in the group
  return record[2] >> 48;
}

Status check_header(const std::string& path, const MappedFile& file) {
  if (file.bytes() < kSpoolHeaderBytes)
    return data_error(path + ": " + std::to_string(file.bytes()) + " bytes are too few for a ring file (truncated?)");
  const auto& h = *reinterpret_cast<const RingHeader*>(file.data());
  if (h.magic != kRingMagic) return data_error(path + ": not a ring file");
  if (h.version > kSpoolVersion) return newer_error(path, h.version);
  const bool sane = h.version > 0 && h.record_bytes == kRecordBytes && h.capacity > 0 &&
                    h.capacity <= (uint64_t(1) << 32) && (h.capacity & (h.capacity - 1)) == 0;
  if (!sane || (h.version >= kFirstSealedVersion && h.check != header_check(h)))
    return data_error(path + ": ring header is damaged");
  if (file.bytes() < kSpoolHeaderBytes + h.capacity * kRecordBytes)
    return data_error(path + ": ring file is truncated: " + std::to_string(file.bytes()) + " bytes of " +
                      std::to_string(kSpoolHeaderBytes + h.capacity * kRecordBytes));
  return {};
}

void begin_group(Group& group, uint64_t seq, const std::array<uint64_t, kRecordWords>& record) {
  group.seq = seq;
  group.ticks = record[1];
  group.kind = kind_of(record);
  group.flags = uint16_t(record[2] >> 16);
  group.lane = uint16_t(record[2] >> 32);
  group.n_words = kPayloadWords * (more_of(record) ? 2 : 1);
  group.payload.fill(0);
  std::copy_n(record.begin() + 3, kPayloadWords, group.payload.begin());
}

void end_group(Group& group, const std::array<uint64_t, kRecordWords>& rest) {
  std::copy_n(rest.begin() + 3, kPayloadWords, group.payload.begin() + kPayloadWords);
}

uint64_t slots_of(const Group& group) { return group.n_words > kPayloadWords ? 2 : 1; }

}  // namespace

Result<RingReader> RingReader::open(const std::string& path) {
  auto ring = MappedFile::open(path);
  if (!ring) return tl::unexpected(ring.error());
  if (auto ok = check_header(path, *ring); !ok) return tl::unexpected(ok.error());
  RingReader reader;
  reader.path_ = path;
  reader.ring_file_ = std::move(*ring);
  const char* base = reader.ring_file_.data();
  reader.slots_ = reinterpret_cast<const uint64_t*>(base + kSpoolHeaderBytes);
  reader.read_header(*reinterpret_cast<const RingHeader*>(base));
  // A companion that is missing shows as records that are not there.
  const std::string stem = path.substr(0, path.size() - std::min<size_t>(path.size(), 4));
  if (reader.mode_ == SpoolMode::kStream)
    if (auto file = MappedFile::open(stem + "seg")) reader.segment_ = std::move(*file);
  if (reader.version_ >= kFirstSealedVersion)
    if (auto file = MappedFile::open(stem + "def")) reader.definitions_file_ = std::move(*file);
  reader.find_end();
  reader.find_definitions();
  reader.settle();
  return reader;
}

void RingReader::read_header(const RingHeader& h) {
  version_ = h.version;
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
  salt_ = seal_salt(h);
  const auto counter = [](const std::atomic<uint64_t>& value) { return std::min(value.load(), kMostGroups); };
  clean_ = h.clean.load() == 1;
  head_ = std::min(h.head.load(std::memory_order_acquire), kMostGroups);
  emits_ = counter(h.emits);
  dropped_ = counter(h.dropped);
  reentered_ = counter(h.reentered);
  first_drop_ticks_ = h.first_drop_ticks.load();
  last_drop_ticks_ = h.last_drop_ticks.load();
  if (version_ >= kFirstSealedVersion) unsaved_ = counter(h.unsaved);
  read_clock(h);
}

void RingReader::read_clock(const RingHeader& h) {
  const uint64_t count = std::min<uint64_t>(h.clock_count.load(std::memory_order_acquire), kClockSamples);
  for (uint64_t i = 0; i < count; ++i) {
    const ClockLine::Sample s{h.clock[i].realtime_ns.load(), h.clock[i].monotonic_ns.load(), h.clock[i].ticks.load()};
    const bool whole = version_ < kFirstSealedVersion ||
                       h.clock_checks[i].load() == clock_check(s.realtime_ns, s.monotonic_ns, s.ticks);
    if (whole) clock_.push_back(s);
  }
  line_ = std::make_shared<ClockLine>(clock_, ticks_per_ns_);
}

bool RingReader::copy_sealed(const uint64_t* record, uint64_t seq, Record& copy) const {
  copy[0] = load(record);
  if (((copy[0] ^ seq) & kLowHalf) != 0) return false;
  for (int i = 1; i < kRecordWords; ++i) copy[i] = load(record + i);
  if (version_ >= kFirstSealedVersion)
    return copy[0] == seal(salt_, seq, copy[1], copy[2], copy[3], copy[4], copy[5], copy[6], copy[7]);
  // A live writer may have come round while it was copied.
  const uint16_t kind = uint16_t(kind_of(copy));
  return copy[0] == seq && load(record) == seq && kind > 0 && kind < kRecordKinds;
}

bool RingReader::read(uint64_t seq, Record& copy) const {
  if (seq == 0) return false;
  if (seq <= segment_.bytes() / kRecordBytes) {
    const auto* records = reinterpret_cast<const uint64_t*>(segment_.data());
    if (copy_sealed(records + (seq - 1) * kRecordWords, seq, copy)) return true;
  }
  if (copy_sealed(slots_ + ((seq - 1) & (capacity_ - 1)) * kRecordWords, seq, copy)) return true;
  const auto found = std::lower_bound(definitions_.begin(), definitions_.end(), seq,
                                      [](const Definition& d, uint64_t wanted) { return d.seq < wanted; });
  return found != definitions_.end() && found->seq == seq && copy_sealed(found->record, seq, copy);
}

bool RingReader::group_at(uint64_t seq, Group& group) const {
  Record record;
  if (!read(seq, record) || more_of(record) > 1) return false;
  begin_group(group, seq, record);
  if (more_of(record) == 0) return true;
  if (!read(seq + 1, record) || kind_of(record) != RecordKind::kContinuation) return false;
  end_group(group, record);
  return true;
}

// The last record there is. The writer publishes a record before it moves the head, a live one goes on meanwhile, and
// a damaged head is off by anything: so the slots say it, each with its number's low half and a seal over all of it.
void RingReader::find_end() {
  uint64_t last = mode_ == SpoolMode::kStream ? segment_.bytes() / kRecordBytes : 0;
  Record record;
  if (version_ >= kFirstSealedVersion) {
    for (uint64_t slot = 0; slot < capacity_; ++slot) {
      const uint64_t low = load(slots_ + slot * kRecordWords) & kLowHalf;
      const uint64_t near_head = head_ + uint64_t(int64_t(int32_t(uint32_t(low) - uint32_t(head_))));
      for (const uint64_t seq : {near_head, low})
        if (seq > last && ((seq - 1) & (capacity_ - 1)) == slot &&
            copy_sealed(slots_ + slot * kRecordWords, seq, record))
          last = seq;
    }
    // Records that were published and damaged since. A slot that holds what was there a lap before, or nothing yet,
    // shows that the head is damaged.
    for (uint64_t limit = std::min(head_, last + capacity_); last < limit; ++last) {
      const uint64_t* slot = slots_ + (last & (capacity_ - 1)) * kRecordWords;
      const bool older = last >= capacity_ && copy_sealed(slot, last + 1 - capacity_, record);
      if (older || load(slot + 1) == 0) break;
    }
  } else {
    last = std::max(last, head_);
  }
  while (read(last + 1, record)) ++last;
  end_ = last + 1;
}

// A copy holds the low half of its number too; the numbers rise.
void RingReader::find_definitions() {
  const auto* records = reinterpret_cast<const uint64_t*>(definitions_file_.data());
  uint64_t before = 0;
  Record record;
  for (uint64_t i = 0; i < definitions_file_.bytes() / kRecordBytes; ++i) {
    const uint64_t* at = records + i * kRecordWords;
    if (copy_sealed(at, 0, record)) {
      placeless_.push_back({i, at});
      continue;
    }
    const uint64_t low = load(at) & kLowHalf, high = before & ~kLowHalf;
    for (const uint64_t seq : {high | low, (high | low) + kLowHalf + 1, ((end_ - 1) & ~kLowHalf) | low}) {
      if (seq <= before || seq >= end_ || !copy_sealed(at, seq, record)) continue;
      definitions_.push_back({seq, at});
      before = seq;
      break;
    }
  }
}

void RingReader::for_each_placeless(const std::function<void(const Group&)>& visit) const {
  Group group;
  Record record;
  for (size_t i = 0; i < placeless_.size(); ++i) {
    if (!copy_sealed(placeless_[i].record, 0, record) || kind_of(record) == RecordKind::kContinuation) continue;
    begin_group(group, 0, record);
    if (more_of(record) > 0) {
      const bool follows = i + 1 < placeless_.size() && placeless_[i + 1].seq == placeless_[i].seq + 1 &&
                           copy_sealed(placeless_[i + 1].record, 0, record) &&
                           kind_of(record) == RecordKind::kContinuation;
      if (!follows) continue;
      end_group(group, record);
    }
    visit(group);
  }
}

uint64_t RingReader::next_stored(uint64_t seq) const {
  if (!in_hole(seq)) return seq;
  const auto island = std::lower_bound(definitions_.begin(), definitions_.end(), seq,
                                       [](const Definition& d, uint64_t wanted) { return d.seq < wanted; });
  return island == definitions_.end() ? ring_first() : std::min(island->seq, ring_first());
}

void RingReader::settle() {
  for_each_placeless([&](const Group&) { ++loss_.recovered; });
  uint64_t overwritten = 0, last_ticks = 0;
  LossSpan missing;  // between two records that are there
  bool open = false;
  const auto miss = [&](uint64_t torn) {
    if (!open) missing = {0, 0, last_ticks, 0};
    open = true;
    missing.torn += torn;
    loss_.torn += torn;
  };
  Group group;
  bool after_hole = false;  // continuations behind a hole belong to what is missing
  for (uint64_t seq = 1; seq < end_;) {
    if (group_at(seq, group) && group.kind != RecordKind::kContinuation) {
      ++loss_.recovered;
      after_hole = false;
      if (!in_hole(seq)) {  // an island says nothing on its neighbours
        missing.to_ticks = group.ticks;
        if (open) loss_.spans.push_back(missing);
        open = false;
        last_ticks = group.ticks;
      }
      seq += slots_of(group);
      continue;
    }
    if (const uint64_t stored = next_stored(seq); stored > seq) {
      // What a flight ring wrote over are no torn records: close_account() counts them.
      const bool flight = mode_ == SpoolMode::kFlight;
      if (flight) overwritten += stored - seq;
      miss(flight ? 0 : stored - seq);
      after_hole = true;
      seq = stored;
      continue;
    }
    Record record;
    const bool whole = read(seq, record);
    const bool orphan = whole && kind_of(record) == RecordKind::kContinuation;
    if (!(orphan && after_hole)) miss(1);
    after_hole = true;
    seq += whole && !orphan && more_of(record) == 1 ? 2 : 1;  // its second half is missing: one group all the same
  }
  if (open) loss_.spans.push_back(missing);
  close_account(overwritten, last_ticks);
}

// Gives what the counters say and the records do not its place in time.
void RingReader::close_account(uint64_t overwritten, uint64_t last_ticks) {
  const uint64_t least = (overwritten + 1) / 2;  // groups in that many slots
  const uint64_t there = loss_.recovered + loss_.torn;
  const uint64_t total = std::max(emits_ + reentered_, there + least + dropped_ + reentered_);
  loss_.lost = total - there;
  uint64_t rest = loss_.lost - reentered_ - dropped_;
  const auto put = [&](uint64_t groups, uint64_t from, uint64_t to) {
    if (groups > 0) loss_.spans.push_back({groups, 0, from, to});
  };
  if (overwritten > 0) loss_.spans.front().lost += std::exchange(rest, 0);  // the ring wrote over its oldest
  // One may have been on its way when the program was killed. More than that: the header or its files are damaged.
  put(rest, rest == 1 && !clean_ ? last_ticks : 0, 0);
  put(reentered_, 0, 0);  // inside a signal handler, at any time
  const bool ordered = first_drop_ticks_ <= last_drop_ticks_;
  put(dropped_, ordered ? first_drop_ticks_ : 0, ordered ? last_drop_ticks_ : 0);
}

LossSpan RingLoss::hull() const {
  LossSpan all{0, 0, ~uint64_t(0), 0};
  bool open_end = false;
  for (const LossSpan& span : spans) {
    all.lost += span.lost;
    all.torn += span.torn;
    all.from_ticks = std::min(all.from_ticks, span.from_ticks);
    all.to_ticks = std::max(all.to_ticks, span.to_ticks);
    open_end |= span.to_ticks == 0;
  }
  if (spans.empty()) all.from_ticks = 0;
  if (open_end) all.to_ticks = 0;
  return all;
}

void RingReader::for_each(uint64_t from, const std::function<void(const Group&)>& visit) const {
  if (from <= 1) for_each_placeless(visit);
  Group group;
  for (uint64_t seq = std::max<uint64_t>(from, 1); seq < end_;) {
    if (!group_at(seq, group) || group.kind == RecordKind::kContinuation) {
      seq = std::max(seq + 1, next_stored(seq));
      continue;
    }
    visit(group);
    seq += slots_of(group);
  }
}

}  // namespace ringscope
