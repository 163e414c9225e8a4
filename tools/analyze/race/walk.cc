// One rank's operations in the order of their calls, against the shadow of its memory.
//
// Where a pair is unordered, the smallest edge that orders it is taken as given from there on, so that a missing edge is
// found once a place and what merely follows from it is not told again.
#include <algorithm>

#include "tools/analyze/race/order.h"
#include "tools/analyze/race/race.h"
#include "tools/analyze/race/shadow.h"

namespace ringscope {
namespace {

constexpr size_t kNearbySyncs = 64;  // of a missing edge, in which its event is looked for

struct Memory {
  explicit Memory(std::pmr::memory_resource* pool) : shadow(pool) {}
  Shadow shadow;
  const BufferRow* row = nullptr;
};

// What the walks of all ranks need.
struct Job {
  bool edges_recorded = false;                                   // without any, what they order is not known
  std::unordered_map<int, std::vector<const BufferRow*>> frees;  // in the order of one stream, by time

  explicit Job(const TraceView& view) {
    edges_recorded = !view.syncs.empty();
    for (const BufferRow& buffer : view.buffers)
      if (buffer.free_ns > 0 && buffer.free_stream != kAnyStream) frees[buffer.rank].push_back(&buffer);
    for (auto& [rank, rows] : frees)
      std::sort(rows.begin(), rows.end(), [](const auto* a, const auto* b) { return a->free_ns < b->free_ns; });
  }
};

// Two accesses that nothing orders: `earlier` was issued first.
struct Pair {
  Hazard hazard;
  Epoch earlier;
  uint32_t op;  // the later one
  uint64_t buffer, begin, end;
  bool shared;
  bool late_read;  // the earlier one writes what the later one needed as it was
};

class Walk {
 public:
  Walk(const TraceIndex& index, int rank, const Job& job, std::vector<Race>& found)
      : index_(index), view_(index.view), rank_(rank), edges_recorded_(job.edges_recorded), found_(found) {
    const auto frees = job.frees.find(rank);
    if (frees != job.frees.end()) frees_ = frees->second;
    std::tie(begin_, end_) = index.ops_of(rank);
    std::tie(first_sync_, last_sync_) = index.syncs_of(rank);
  }

  void run(size_t& next_access) {
    RankOrder order(view_, begin_, end_, first_sync_, last_sync_);
    order_ = &order;
    next_sync_ = first_sync_;
    for (uint32_t row = begin_; row < end_;) {
      const uint32_t next = group_end(row);
      // A group is enqueued as one operation when it closes: an event recorded inside of it does not cover its calls.
      const uint64_t issue = view_.ops[next - 1].issue;
      for (; next_sync_ < last_sync_ && view_.syncs[next_sync_].issue < issue; ++next_sync_)
        order.apply(view_.syncs[next_sync_]);
      for (; next_free_ < frees_.size() && frees_[next_free_]->free_ns <= view_.ops[row].enqueue_ns; ++next_free_)
        free(*frees_[next_free_]);
      now_ = {order.issue(view_.ops[row]), 0, row};
      now_.clock = order.clock(now_.lane);
      entry_ = row;
      for (; row < next; ++row) touch_all(row, next_access);
      if (!pairs_.empty()) settle();
    }
  }

 private:
  uint32_t group_end(uint32_t row) const {
    const OpRow& op = view_.ops[row];
    uint32_t end = row + 1;
    if (op.group == 0) return end;
    while (end < end_ && view_.ops[end].group == op.group && view_.ops[end].stream == op.stream &&
           view_.ops[end].thread == op.thread)
      ++end;
    return end;
  }

  void touch_all(uint32_t row, size_t& next) {
    now_.op = row;
    const auto& accesses = view_.accesses;
    // An access whose operation was lost (kNoRow) belongs to no row and must not stop the walk.
    while (next < accesses.size() && (accesses[next].op == kNoRow || accesses[next].op < row)) ++next;
    bool any = false;
    op_accesses_ = next;
    for (; next < accesses.size() && accesses[next].op == row; ++next) {
      if (accesses[next].end > accesses[next].begin) touch(accesses[next]);
      any = true;
    }
    // A kernel that declares nothing may have written anything.
    if (!any && view_.ops[row].kind == OpKind::kKernel) undeclared_ns_ = view_.ops[row].enqueue_ns;
  }

  void touch(const AccessRow& access) {
    Memory& memory = memory_of(access.buffer);
    const OpRow& op = view_.ops[now_.op];
    if (memory.row && memory.row->free_ns > 0 && memory.row->free_ns < op.enqueue_ns) used_after_free(access);
    bool reads = access.mode == AccessMode::kRead || access.mode == AccessMode::kReadWrite;
    bool writes = access.mode == AccessMode::kWrite || access.mode == AccessMode::kReadWrite;
    if (op.coll != kNoRow && view_.colls[op.coll].func == CollFunc::kBroadcast) narrow_to_role(op, reads, writes);
    uint64_t unwritten_begin = UINT64_MAX, unwritten_end = 0;
    memory.shadow.each(access.begin, access.end, [&](uint64_t begin, uint64_t end, Cell* cell) {
      if (cell) check(access.buffer, begin, end, *cell, reads, writes);
      if (!reads || (cell && (cell->write.clock || cell->told))) return;
      unwritten_begin = std::min(unwritten_begin, begin);
      unwritten_end = end;
    });
    const bool told = unwritten_end > 0 && tell_unwritten(memory, access.buffer, unwritten_begin, unwritten_end);
    if (!writes) {
      memory.shadow.note(access.begin, access.end, [&](Cell& cell) {
        cell.reads.note(now_);
        cell.told = cell.told || (told && cell.write.clock == 0);
      });
      return;
    }
    Cell& cell = memory.shadow.overwrite(access.begin, access.end);
    cell.unread = unread(cell) ? cell.write : Epoch{};
    cell.write = now_;
    cell.reads.clear();
  }

  void used_after_free(const AccessRow& access) {
    const BufferRow& buffer = *index_.buffer(access.buffer);
    if (buffer.alloc_ns > buffer.free_ns || !index_.lossless(rank_, buffer.free_ns, view_.ops[now_.op].enqueue_ns))
      return;
    Race race = of_memory(Hazard::kFreed, access.buffer, access.begin, access.end);
    race.first = race.entry = now_.op;
    race.before = view_.ops[now_.op].stream, race.behind = buffer.free_stream;
    found_.push_back(race);
  }

  // The root of a broadcast only reads its buffer, the others only write theirs.
  void narrow_to_role(const OpRow& op, bool& reads, bool& writes) const {
    const CollRow& coll = view_.colls[op.coll];
    const int self = index_.group_rank(coll.comm, rank_);
    if (coll.root < 0 || self < 0) return;
    (self == coll.root ? writes : reads) = false;
  }

  Memory& memory_of(uint64_t buffer) {
    if (buffer != last_buffer_ || !last_memory_) {
      const auto [entry, fresh] = memory_.try_emplace(buffer, &pool_);
      last_memory_ = &entry->second;
      last_buffer_ = buffer;
      if (fresh) last_memory_->row = index_.buffer(buffer);
    }
    return *last_memory_;
  }

  // Did nobody read the block that a transfer left here, but operations of the group that now writes again?
  bool unread(const Cell& cell) const {
    if (cell.write.clock == 0 || !is_comm(view_.ops[cell.write.op])) return false;
    bool read = false;
    cell.reads.each([&](const Epoch& epoch) { read = read || !beside(epoch) || epoch.op == now_.op; });
    return !read;
  }

  // Part of the group that is walked now?
  bool beside(const Epoch& epoch) const { return epoch.lane == now_.lane && epoch.clock == now_.clock; }

  bool unordered(const Epoch& before) const {
    if (before.lane != now_.lane) return !order_->after(now_.lane, before.lane, before.clock);
    return beside(before) && before.op != now_.op && !in_one_track(view_.ops[before.op], view_.ops[now_.op]);
  }
  // Of a group, the collectives go one after another, and so do the transfers with one peer in one direction.
  bool in_one_track(const OpRow& a, const OpRow& b) const {
    if (a.coll != kNoRow && b.coll != kNoRow) return true;
    if (a.p2p == kNoRow || b.p2p == kNoRow) return !is_call(a) || !is_call(b);  // a lost call: nothing is known
    const P2pRow &x = view_.p2ps[a.p2p], &y = view_.p2ps[b.p2p];
    return x.direction == y.direction && x.peer == y.peer;
  }

  void check(uint64_t buffer, uint64_t begin, uint64_t end, const Cell& cell, bool reads, bool writes) {
    const auto add = [&](Hazard hazard, const Epoch& earlier, bool late_read) {
      pairs_.push_back({hazard, earlier, now_.op, buffer, begin, end, late_read || beside(earlier), late_read});
    };
    const bool behind_write = cell.write.clock && unordered(cell.write);
    if (reads && behind_write) add_raw(cell, add);
    if (!writes) return;
    cell.reads.each([&](const Epoch& read) {
      if (unordered(read)) add(sends(read) ? Hazard::kSendReused : Hazard::kOverwrite, read, false);
    });
    if (!reads && behind_write) add(Hazard::kWriteWrite, cell.write, false);
  }

  // The reader needs the last write before it, unless it waited for an older block that was still to be read when this
  // write came over it: then it is the write that is too early.
  template <class Add>
  void add_raw(const Cell& cell, const Add& add) const {
    const bool arriving = is_comm(view_.ops[cell.write.op]);
    if (beside(cell.write)) add(Hazard::kSendReused, cell.write, true);
    else if (arriving && cell.unread.clock && !unordered(cell.unread)) add(Hazard::kOverwrite, cell.write, true);
    else add(!arriving && is_comm(view_.ops[now_.op]) ? Hazard::kNotReady : Hazard::kArrival, cell.write, false);
  }

  bool sends(const Epoch& read) const { return is_comm(view_.ops[read.op]); }

  // A lost record may have been the wait that orders the two, and what two threads of the host agree on is not recorded.
  bool judged(const OpRow& a, const OpRow& b) const {
    return edges_recorded_ && a.thread == b.thread &&
           index_.lossless(rank_, std::min(a.enqueue_ns, b.enqueue_ns), std::max(a.enqueue_ns, b.enqueue_ns));
  }

  // Of the pairs of the operation that was walked, those that other pairs' edges do not order as well: one a lane.
  void settle() {
    std::sort(pairs_.begin(), pairs_.end(), [](const Pair& a, const Pair& b) {
      return std::tuple(b.earlier.op, a.hazard) < std::tuple(a.earlier.op, b.hazard);  // the latest needs the most
    });
    for (const Pair& pair : pairs_) {
      const Epoch& earlier = pair.earlier;
      if (earlier.lane == now_.lane ? told_beside_ == entry_ : order_->after(now_.lane, earlier.lane, earlier.clock))
        continue;
      if (judged(view_.ops[earlier.op], view_.ops[pair.op])) found_.push_back(race_of(pair));
      if (earlier.lane == now_.lane) told_beside_ = entry_;
      else order_->join(now_.lane, order_->at(earlier.lane, earlier.clock));
    }
    pairs_.clear();
  }

  Race race_of(const Pair& pair) const {
    Race race;
    race.hazard = pair.hazard;
    race.rank = rank_;
    race.shared = pair.shared;
    race.first = pair.earlier.op;
    race.second = pair.op;
    if (pair.late_read) std::swap(race.first, race.second);  // what overwrites comes second
    race.buffer = pair.buffer, race.begin = pair.begin, race.end = pair.end;
    race.before = order_->stream_of(pair.earlier.lane);
    race.behind = order_->stream_of(now_.lane);
    race.entry = entry_;
    if (!pair.shared) name_events(race, pair.earlier);
    return race;
  }

  // The events that may have been meant to order them: the last one that the later lane waited for in between, the
  // first that was waited for without effect (never recorded, or before the earlier operation), and the first and the
  // last that were recorded behind the earlier one.
  void name_events(Race& race, const Epoch& earlier) const {
    const uint64_t issue = view_.ops[earlier.op].issue;
    const uint32_t waits_on = race.behind == kNoRow ? view_.ops[now_.op].stream : race.behind;
    auto& [waited, no_help, first, last] = race.events;
    size_t left = kNearbySyncs;
    for (size_t i = next_sync_; i-- > first_sync_ && view_.syncs[i].issue > issue && left-- > 0;) {
      const SyncRow& sync = view_.syncs[i];
      if (sync.kind == SyncKind::kWait && !waited && sync.stream == waits_on) waited = sync.name;
      if (!last && covers(sync, earlier)) last = sync.name;
    }
    const auto rows = view_.syncs.begin(), end = rows + ptrdiff_t(next_sync_);
    auto sync = std::upper_bound(rows + ptrdiff_t(first_sync_), end, issue,
                                 [](uint64_t value, const SyncRow& row) { return value < row.issue; });
    for (left = kNearbySyncs; sync != end && (!first || !no_help) && left-- > 0; ++sync) {
      if (!first && covers(*sync, earlier)) first = sync->name;
      if (!no_help && orders_nothing(*sync, earlier)) no_help = sync->name;
    }
  }
  bool orders_nothing(const SyncRow& wait, const Epoch& earlier) const {
    if (wait.kind != SyncKind::kWait || wait.key == 0) return wait.kind == SyncKind::kWait;
    const uint32_t lane = order_->recorded_on(wait.key);
    return lane == order_->known_lane(wait.stream) ||
           (lane == earlier.lane && !order_->covers(wait.key, lane, earlier.clock));
  }
  bool covers(const SyncRow& sync, const Epoch& epoch) const {
    return sync.kind == SyncKind::kRecord && order_->covers(sync.key, epoch.lane, epoch.clock);
  }

  // Memory goes back in the order of one stream: what other streams do with it must be done there by then.
  void free(const BufferRow& buffer) {
    const auto memory = memory_.find(buffer.buffer);
    if (memory == memory_.end()) return;
    const uint32_t lane = order_->known_lane(buffer.free_stream);
    if (lane == kNoRow) return;
    Race race = of_memory(Hazard::kFreed, buffer.buffer, 0, buffer.bytes);
    memory->second.shadow.all([&](uint64_t begin, const Cell& cell) {
      const auto use = [&](const Epoch& epoch) {
        if (!epoch.clock || epoch.lane == lane || order_->after(lane, epoch.lane, epoch.clock)) return;
        if (race.first != kNoRow && epoch.op < race.first) return;
        race.first = race.entry = epoch.op, race.begin = begin, race.end = cell.end;
        race.before = order_->stream_of(epoch.lane), race.behind = buffer.free_stream;
      };
      use(cell.write);
      cell.reads.each(use);
    });
    if (race.first == kNoRow || !edges_recorded_) return;
    if (index_.lossless(rank_, view_.ops[race.first].enqueue_ns, buffer.free_ns)) found_.push_back(race);
  }

  Race of_memory(Hazard hazard, uint64_t buffer, uint64_t begin, uint64_t end) const {
    Race race;
    race.hazard = hazard;
    race.rank = rank_;
    race.buffer = buffer, race.begin = begin, race.end = end;
    return race;
  }

  bool tell_unwritten(const Memory& memory, uint64_t buffer, uint64_t begin, uint64_t end) {
    const OpRow& op = view_.ops[now_.op];
    const BufferRow* row = memory.row;
    // Only where everything that happened to the memory since it was allocated is in the trace.
    if (!row || row->alloc_ns <= 0 || row->bytes < end || undeclared_ns_ >= row->alloc_ns ||
        row->alloc_ns > op.enqueue_ns || row->category == MemCategory::kStatistics || measures(now_.op) ||
        !index_.lossless(rank_, row->alloc_ns, op.enqueue_ns))
      return false;
    Race race = of_memory(Hazard::kUnwritten, buffer, begin, end);
    race.second = race.entry = now_.op;
    found_.push_back(race);
    return true;
  }
  // Does the operation only fill memory of the recording's own? What it looks at need not be used by the program.
  bool measures(uint32_t op) const {
    bool any = false;
    for (size_t i = op_accesses_; i < view_.accesses.size() && view_.accesses[i].op == op; ++i) {
      if (view_.accesses[i].mode == AccessMode::kRead) continue;
      const BufferRow* buffer = index_.buffer(view_.accesses[i].buffer);
      if (!buffer || buffer->category != MemCategory::kStatistics) return false;
      any = true;
    }
    return any;
  }

  const TraceIndex& index_;
  const TraceView& view_;
  int rank_;
  bool edges_recorded_;
  std::vector<Race>& found_;
  std::vector<const BufferRow*> frees_;  // in the order of one stream, by time
  size_t next_free_ = 0;
  uint32_t begin_ = 0, end_ = 0;
  size_t first_sync_ = 0, last_sync_ = 0, next_sync_ = 0;
  RankOrder* order_ = nullptr;
  std::pmr::unsynchronized_pool_resource pool_;  // of cells: they come and go with every write over a part
  std::unordered_map<uint64_t, Memory> memory_;
  uint64_t last_buffer_ = 0;
  Memory* last_memory_ = nullptr;
  Epoch now_;
  uint32_t entry_ = kNoRow, told_beside_ = kNoRow;
  size_t op_accesses_ = 0;  // where those of the operation begin
  int64_t undeclared_ns_ = -1;
  std::vector<Pair> pairs_;  // of the operation that is walked
};

}  // namespace

std::vector<Race> walk_ranks(const TraceIndex& index) {
  const TraceView& view = index.view;
  const Job job(view);
  std::vector<Race> found;
  size_t next_access = 0;
  int last = -1;
  for (const OpRow& op : view.ops) {
    if (op.rank == last) continue;
    last = op.rank;
    Walk(index, last, job, found).run(next_access);
  }
  return found;
}

}  // namespace ringscope
