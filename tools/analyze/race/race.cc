// race.read_before_arrival (RAW), race.overwrite_before_read (WAR) and race.send_before_ready (RAW, towards a transfer):
// happens-before over the recorded order of one rank. Lanes are the rank's streams and its host; their vector clocks
// follow CUDA's rules:
//   enqueue: the operation comes after everything the host has waited for, and after its stream's last operation
//   record:  remembers the stream's clock at the call
//   wait:    joins the remembered clock of the record it bound; a wait that bound none is a no-op
//   host sync: the host joins the stream's clock
// A transfer's write and a read of the same bytes must be ordered, and so must a kernel's write and a transfer's read.
// The order of the calls, not of the clock on the wall, decides, so a run that came out right still shows the race.
// Rows of two host threads lie in the order of their times, which is no program order: they order what they may order,
// and a pair is reported only where one thread issued both.
//
// Shadow memory: per buffer an ordered map of byte intervals, each with the last write and the reads since, one
// per lane (FastTrack epochs). Cost: one map look-up per access for whole-buffer operations.
#include <algorithm>
#include <array>

#include "tools/analyze/confidence.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

struct Epoch {
  uint32_t lane = 0, clock = 0;  // clock 0 = never
  uint32_t op = kNoRow;
};

// Reads since the last write, at most one a lane. A rank has few lanes: four fit without an allocation, and
// none is ever dropped.
class Reads {
 public:
  void clear() {
    count_ = 0;
    more_.clear();
  }
  void note(const Epoch& epoch) {
    for (uint32_t i = 0; i < count_; ++i)
      if (few_[i].lane == epoch.lane) {
        few_[i] = epoch;
        return;
      }
    for (Epoch& read : more_)
      if (read.lane == epoch.lane) {
        read = epoch;
        return;
      }
    if (count_ < few_.size()) few_[count_++] = epoch;
    else more_.push_back(epoch);
  }
  template <class Visit>
  void each(Visit visit) const {
    for (uint32_t i = 0; i < count_; ++i) visit(few_[i]);
    for (const Epoch& read : more_) visit(read);
  }

 private:
  std::array<Epoch, 4> few_{};
  uint32_t count_ = 0;
  std::vector<Epoch> more_;
};

struct Cell {
  uint64_t end = 0;
  Epoch write;
  Reads reads;
  Epoch unread;  // a transfer's write that nothing had read when `write` came over it
};

using Shadow = std::map<uint64_t, Cell>;  // by first byte

struct Pair {
  uint32_t first = kNoRow, second = kNoRow;  // op rows, in host order
  uint64_t buffer = 0, begin = 0, end = 0;
};

enum Hazard { kRaw = 0, kWar = 1, kNotReady = 2, kHazards = 3 };
constexpr std::string_view kIds[kHazards] = {"race.read_before_arrival", "race.overwrite_before_read",
                                             "race.send_before_ready"};

// One kind of hazard over all ranks: the first pair is shown, the others are counted.
struct Tally {
  std::vector<int> ranks;
  uint64_t count = 0;
  Pair first;
};

const OpRow& transfer_of(const TraceView& view, Hazard hazard, const Pair& pair) {
  return view.ops[hazard == kRaw ? pair.first : pair.second];
}

class RankRaces {
 public:
  RankRaces(const TraceIndex& index, int rank, std::array<Tally, kHazards>& tallies)
      : index_(index), view_(index.view), rank_(rank), tallies_(tallies) {}

  void run(size_t& next_access) {
    const auto [begin, end] = index_.ops_of(rank_);
    auto [sync, last_sync] = index_.syncs_of(rank_);
    if (sync == last_sync) return;  // not one event was recorded: what they order is not known
    find_lanes(begin, end, sync, last_sync);
    for (uint32_t row = begin; row < end; ++row) {
      for (; sync < last_sync && view_.syncs[sync].issue < view_.ops[row].issue; ++sync) apply(view_.syncs[sync]);
      const uint32_t lane = enqueue(view_.ops[row]);
      // An access whose operation was lost (kNoRow) belongs to no row and must not stop the walk.
      while (next_access < view_.accesses.size() &&
             (view_.accesses[next_access].op == kNoRow || view_.accesses[next_access].op < row))
        ++next_access;
      for (; next_access < view_.accesses.size() && view_.accesses[next_access].op == row; ++next_access)
        touch(view_.accesses[next_access], row, lane);
    }
  }

 private:
  using Clock = std::vector<uint32_t>;

  void find_lanes(uint32_t begin, uint32_t end, size_t sync, size_t last_sync) {
    std::vector<uint32_t> streams;
    for (uint32_t row = begin; row < end; ++row) streams.push_back(view_.ops[row].stream);
    for (; sync < last_sync; ++sync) streams.push_back(view_.syncs[sync].stream);
    std::sort(streams.begin(), streams.end());
    streams.erase(std::unique(streams.begin(), streams.end()), streams.end());
    lanes_ = streams;
    clocks_.assign(streams.size(), Clock(streams.size(), 0));
    host_.assign(streams.size(), 0);
  }

  uint32_t lane_of(uint32_t stream) const {  // a handful of streams: a scan beats a table
    uint32_t lane = 0;
    while (lanes_[lane] != stream) ++lane;
    return lane;
  }

  static void join(Clock& into, const Clock& from) {
    for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], from[i]);
  }

  void apply(const SyncRow& sync) {
    Clock& stream = clocks_[lane_of(sync.stream)];
    switch (sync.kind) {
      case SyncKind::kRecord:
        join(stream, host_);
        records_[sync.key] = stream;
        break;
      case SyncKind::kWait: {
        if (sync.key == 0) break;
        const auto record = records_.find(sync.key);
        if (record != records_.end()) {
          join(stream, record->second);
        } else {  // the record is not in the trace: take it as late as possible, so that nothing is made up
          for (const Clock& clock : clocks_) join(stream, clock);
        }
        break;
      }
      case SyncKind::kHostSync: join(host_, stream); break;
    }
  }

  uint32_t enqueue(const OpRow& op) {
    const uint32_t lane = lane_of(op.stream);
    Clock& clock = clocks_[lane];
    join(clock, host_);
    ++clock[lane];
    return lane;
  }

  bool ordered(const Epoch& before, uint32_t lane) const { return clocks_[lane][before.lane] >= before.clock; }

  void touch(const AccessRow& access, uint32_t op, uint32_t lane) {
    if (access.end <= access.begin) return;
    Shadow& shadow = shadow_of(access.buffer);
    const bool reads = access.mode != AccessMode::kWrite, writes = access.mode != AccessMode::kRead;
    const Epoch now{lane, clocks_[lane][lane], op};
    auto cell = first_cell(shadow, access.begin);
    uint64_t covered = access.begin;
    Cell* whole = nullptr;  // one write covers the range: its cells become one
    while (cell != shadow.end() && cell->first < access.end) {
      if (cell->second.end > access.end) split(shadow, cell, access.end);
      check(access, cell->first, cell->second, op, lane, reads, writes);
      if (!writes) {
        if (cell->first > covered) insert(shadow, cell, covered, cell->first).reads.note(now);
        cell->second.reads.note(now);
        covered = cell->second.end;
        ++cell;
      } else if (cell->first == access.begin) {
        whole = &cell->second;
        ++cell;
      } else {
        cell = shadow.erase(cell);
      }
    }
    if (!writes) {
      if (covered < access.end) insert(shadow, cell, covered, access.end).reads.note(now);
      return;
    }
    if (!whole) whole = &insert(shadow, cell, access.begin, access.end);
    whole->unread = unread(*whole, op) ? whole->write : Epoch{};
    whole->end = access.end;
    whole->write = now;
    whole->reads.clear();
  }

  // Did nobody read the block that a transfer left here, but operations of the group that now writes again?
  bool unread(const Cell& cell, uint32_t op) const {
    if (cell.write.clock == 0 || !is_comm(view_.ops[cell.write.op])) return false;
    const uint64_t group = view_.ops[op].group;
    bool read = false;
    cell.reads.each([&](const Epoch& epoch) { read = read || group == 0 || view_.ops[epoch.op].group != group; });
    return !read;
  }

  Shadow& shadow_of(uint64_t buffer) {
    if (buffer != last_buffer_ || !last_shadow_) {
      last_shadow_ = &shadows_[buffer];
      last_buffer_ = buffer;
    }
    return *last_shadow_;
  }

  // The first cell that reaches past `begin`; it starts there or later.
  static Shadow::iterator first_cell(Shadow& shadow, uint64_t begin) {
    auto after = shadow.upper_bound(begin);
    if (after == shadow.begin()) return after;
    auto cell = std::prev(after);
    if (cell->second.end <= begin) return after;
    return cell->first == begin ? cell : split(shadow, cell, begin);
  }

  // Cuts a cell in two; returns the second half.
  static Shadow::iterator split(Shadow& shadow, Shadow::iterator cell, uint64_t at) {
    Cell tail = cell->second;
    cell->second.end = at;
    return shadow.emplace_hint(std::next(cell), at, std::move(tail));
  }

  static Cell& insert(Shadow& shadow, Shadow::iterator before, uint64_t begin, uint64_t end) {
    Cell& cell = shadow.emplace_hint(before, begin, Cell{})->second;
    cell.end = end;
    return cell;
  }

  void check(const AccessRow& access, uint64_t begin, const Cell& cell, uint32_t op, uint32_t lane, bool reads,
             bool writes) {
    const uint64_t end = std::min(cell.end, access.end);
    const bool transfer = is_comm(view_.ops[op]);
    if (reads && cell.write.clock && cell.write.lane != lane && !ordered(cell.write, lane)) {
      const bool arriving = is_comm(view_.ops[cell.write.op]);
      // It has waited for a block that was still to be read here when the next one came over it.
      const bool overwritten = arriving && cell.unread.clock && ordered(cell.unread, lane);
      if (overwritten) report(kWar, {op, cell.write.op, access.buffer, begin, end});
      else if (arriving) report(kRaw, {cell.write.op, op, access.buffer, begin, end});
      else if (transfer) report(kNotReady, {cell.write.op, op, access.buffer, begin, end});
    }
    if (!writes || !transfer) return;
    cell.reads.each([&](const Epoch& read) {
      if (read.lane != lane && !ordered(read, lane)) report(kWar, {read.op, op, access.buffer, begin, end});
    });
  }

  void report(Hazard hazard, const Pair& pair) {
    const OpRow &first = view_.ops[pair.first], &second = view_.ops[pair.second];
    // A lost record may have been the wait that orders the two.
    if (first.thread != second.thread || !index_.lossless(rank_, std::min(first.enqueue_ns, second.enqueue_ns),
                                                          std::max(first.enqueue_ns, second.enqueue_ns)))
      return;
    Tally& tally = tallies_[hazard];
    // Ranges of one pair of operations count once.
    Pair& last = last_[hazard];
    if (pair.first == last.first && pair.second == last.second) return;
    last = pair;
    ++tally.count;
    if (tally.ranks.empty() || tally.ranks.back() != rank_) tally.ranks.push_back(rank_);
    if (tally.first.first == kNoRow ||
        earlier(transfer_of(view_, hazard, pair).where, transfer_of(view_, hazard, tally.first).where))
      tally.first = pair;
  }

  const TraceIndex& index_;
  const TraceView& view_;
  int rank_;
  std::array<Tally, kHazards>& tallies_;
  std::vector<uint32_t> lanes_;  // stream ids
  std::vector<Clock> clocks_;
  Clock host_;
  std::unordered_map<uint64_t, Clock> records_;
  std::unordered_map<uint64_t, Shadow> shadows_;
  uint64_t last_buffer_ = 0;
  Shadow* last_shadow_ = nullptr;
  std::array<Pair, kHazards> last_;
};

std::string site(const TraceIndex& index, uint32_t op_row) {
  const OpRow& op = index.view.ops[op_row];
  std::string text = std::string(index.view.text(op.name)) + " on " + index.stream_name(op.stream);
  const std::string place = place_text(op.where);
  return place.empty() ? text : text + " (" + place + ")";
}

Finding race_finding(const TraceIndex& index, Hazard hazard, const Tally& tally) {
  const TraceView& view = index.view;
  const Pair& pair = tally.first;
  const OpRow &first = view.ops[pair.first], &second = view.ops[pair.second];
  const OpRow& transfer = transfer_of(view, hazard, pair);
  Finding f = make_finding(kIds[hazard]);
  f.ranks = tally.ranks;
  sort_unique(f.ranks);
  f.where = transfer.where;
  f.first_ns = second.enqueue_ns;
  // Order is observed: the rank itself is the witness, every further pair of the kind an observation.
  f.confidence = confidence({1, double(f.ranks.size()), 0, double(tally.count)});
  const uint32_t transfer_row = uint32_t(&transfer - view.ops.data());
  f.op = op_name(index, transfer_row);
  const CommRow* comm = nullptr;
  if (transfer.p2p != kNoRow) {
    comm = index.comm(view.p2ps[transfer.p2p].comm);
    f.seq = int64_t(view.p2ps[transfer.p2p].seq);
  } else if (transfer.coll != kNoRow) {
    comm = index.comm(view.colls[transfer.coll].comm);
    f.seq = int64_t(view.colls[transfer.coll].seq);
  }
  if (comm) f.group = group_ref(*comm);

  const BufferRow* buffer = index.buffer(pair.buffer);
  const std::string memory =
      "bytes " + std::to_string(pair.begin) + "-" + std::to_string(pair.end - 1) + " of buffer " +
      (buffer && buffer->name ? "'" + std::string(view.text(buffer->name)) + "'" : std::to_string(pair.buffer));
  const std::string edge = "record an event on " + index.stream_name(first.stream) + " after " +
                           std::string(view.text(first.name)) + ", wait for it on " + index.stream_name(second.stream) +
                           " before " + std::string(view.text(second.name));
  f.sentence = "on " + ranks_text(f.ranks) + " " + site(index, pair.second) +
               (hazard == kWar   ? " overwrites "
                : hazard == kRaw ? " reads "
                                 : " sends ") +
               memory + " while " + site(index, pair.first) +
               (hazard == kWar ? " may still be reading it" : " may still be writing it") +
               ": nothing orders the two (first seen on rank " + std::to_string(first.rank) + ", " +
               std::to_string(tally.count) + (tally.count == 1 ? " such pair)" : " such pairs)");
  f.fix = edge;
  f.evidence.push_back(cite(view, "op", size_t(pair.first), "first: " + site(index, pair.first)));
  f.evidence.push_back(cite(view, "op", size_t(pair.second), "second, unordered: " + site(index, pair.second)));
  return f;
}

}  // namespace

std::vector<Finding> races(const TraceIndex& index) {
  std::array<Tally, kHazards> tallies;
  size_t next_access = 0;
  int last = -1;
  for (const OpRow& op : index.view.ops) {
    if (op.rank == last) continue;
    last = op.rank;
    RankRaces(index, last, tallies).run(next_access);
  }
  std::vector<Finding> found;
  for (int hazard = 0; hazard < kHazards; ++hazard)
    if (tallies[hazard].count) found.push_back(race_finding(index, Hazard(hazard), tallies[hazard]));
  return found;
}

}  // namespace ringscope
