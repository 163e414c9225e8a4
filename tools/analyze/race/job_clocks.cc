// What other ranks order. A rank's own events miss what its calls bring about: an operation may come after another one
// of the same rank because a peer could only answer when it had got something that the first one had to finish before.
//
// Exactly these edges between ranks are taken for sure, each from the start of one call to the end of its partner's:
//   transfer:                       the receive ends after the send has started
//   all-reduce, all-gather, reduce-scatter, all-to-all, barrier:
//                                   every member ends after every member has started
//   broadcast, scatter:             the others end after the root has started
//   reduce, gather:                 the root ends after every member has started
// Nothing else: a send may be done before anybody receives (slots, eager protocols), a call may have written part of
// its result before all members are there, and that a peer has all it wanted does not say that the own call is over.
//
// The walk is over all ranks and costs a clock over the suspects' lanes at each operation, so that it is taken only
// when a rank's own order leaves a pair open. What stands still here stood still in the run: a pair behind it is dropped.
#include <algorithm>
#include <map>
#include <tuple>

#include "tools/analyze/race/order.h"
#include "tools/analyze/race/race.h"

namespace ringscope {
namespace {

void join(Clock& into, const Clock& from) {
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

// One thing that a lane does, in order. A lane is a stream of a rank, or its host.
struct Item {
  enum class Kind : uint8_t { kOps, kRecord, kWait, kHostSync } kind = Kind::kOps;
  bool started = false;        // kOps: its partners know
  uint32_t row = 0, rows = 0;  // kOps: the calls of a group, or one operation
  uint32_t number = 0;         // kOps: on its lane, from 1
  uint64_t key = 0;            // kRecord, kWait
  uint32_t stream = 0;         // kHostSync: the lane that the host waits for,
  size_t upto = 0;             // and how many of its items
  size_t host = 0;             // what the host knew at the call: the n-th of its clocks
};

struct Lane {
  int rank = 0;
  bool host = false;
  uint32_t component = kNoRow;  // in clocks; kNoRow = a rank without suspects
  std::vector<Item> items;
  size_t next = 0;
  uint32_t numbers = 0;
  Clock clock;
};

// One operation of a communicator over its members, or both ends of a transfer.
struct Call {
  bool mismatched = false;           // they called different functions: nothing is known
  size_t expected = 0, started = 0;  // of those whose start others wait for
  Clock starts;
};
using CallKey = std::tuple<uint32_t, int, int, uint64_t>;  // comm, source, destination (-1 = collective), sequence

class JobWalk {
 public:
  JobWalk(const TraceIndex& index, const std::vector<Race>& races) : index_(index), view_(index.view) {
    for (const Race& race : races) {
      suspects_.insert(race.rank);
      asked_[later(race)];
    }
    for (int rank : index.ranks()) lay_out(rank);
    for (Lane& lane : lanes_) lane.clock.assign(components_, 0);
    for (auto& [rank, clocks] : host_clocks_) clocks.assign(1, Clock(components_, 0));
    for (auto& [key, call] : calls_) call.starts.assign(components_, 0);
  }

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Lane& lane : lanes_)
        while (lane.next < lane.items.size() && advance(lane, lane.items[lane.next])) {
          ++lane.next;
          moved = true;
        }
    }
  }

  bool keeps(const Race& race) const {
    const Clock& known = asked_.at(later(race));
    const auto place = places_.find(std::min(race.first, race.second));
    if (known.empty() || place == places_.end()) return false;
    const auto [component, number] = place->second;
    return known[component] < number;
  }

 private:
  static uint32_t later(const Race& race) { return std::max(race.first, race.second); }

  // ---- what each lane does

  void lay_out(int rank) {
    const auto [begin, end] = index_.ops_of(rank);
    auto [sync, last_sync] = index_.syncs_of(rank);
    lane_of_.clear();
    host_clocks_[rank];
    size_t host = 0;
    for (uint32_t row = begin; row < end;) {
      uint32_t next = row + 1;
      while (next < end && same_group(view_.ops[row], view_.ops[next])) ++next;
      for (; sync < last_sync && view_.syncs[sync].issue < view_.ops[next - 1].issue; ++sync)
        lay_out_sync(rank, view_.syncs[sync], host);
      lay_out_ops(rank, row, next, host);
      row = next;
    }
    for (; sync < last_sync; ++sync) lay_out_sync(rank, view_.syncs[sync], host);
  }

  static bool same_group(const OpRow& a, const OpRow& b) {
    return a.group != 0 && a.group == b.group && a.stream == b.stream && a.thread == b.thread;
  }

  uint32_t lane(int rank, uint32_t stream) {  // kNoRow = the host
    const auto [entry, fresh] = lane_of_.try_emplace(stream, uint32_t(lanes_.size()));
    if (fresh) {
      Lane& made = lanes_.emplace_back();
      made.rank = rank;
      made.host = stream == kNoRow;
      if (suspects_.contains(rank)) made.component = components_++;
    }
    return entry->second;
  }

  void lay_out_sync(int rank, const SyncRow& row, size_t& host) {
    Item item;
    item.key = row.key;
    item.host = host;
    uint32_t at = lane(rank, row.stream);
    switch (row.kind) {
      case SyncKind::kRecord:
        item.kind = Item::Kind::kRecord;
        records_[row.key];
        break;
      case SyncKind::kWait: item.kind = Item::Kind::kWait; break;
      case SyncKind::kHostSync:
        item.kind = Item::Kind::kHostSync;
        item.stream = at;
        item.upto = lanes_[at].items.size();
        at = lane(rank, kNoRow);
        ++host;
        break;
    }
    lanes_[at].items.push_back(item);
  }

  void lay_out_ops(int rank, uint32_t row, uint32_t next, size_t& host) {
    const OpRow& op = view_.ops[row];
    const bool host_read = op.kind == OpKind::kHostRead;
    Lane& at = lanes_[lane(rank, host_read ? kNoRow : op.stream)];
    Item item;
    item.row = row, item.rows = next - row;
    item.number = ++at.numbers;
    item.host = host;
    if (host_read) ++host;
    at.items.push_back(item);
    for (; row < next; ++row) {
      if (at.component != kNoRow) places_[row] = {at.component, item.number};
      if (is_call(view_.ops[row])) enter(view_.ops[row]);
    }
  }

  void enter(const OpRow& op) {
    Call& call = calls_[key_of(op)];
    call.expected += starts_others(op);
    if (op.coll == kNoRow) return;
    const auto [func, fresh] = funcs_.try_emplace(key_of(op), view_.colls[op.coll].func);
    call.mismatched = call.mismatched || func->second != view_.colls[op.coll].func;
  }

  CallKey key_of(const OpRow& op) const {
    if (op.coll != kNoRow) return {view_.colls[op.coll].comm, -1, -1, view_.colls[op.coll].seq};
    const P2pRow& p2p = view_.p2ps[op.p2p];
    const int self = index_.group_rank(p2p.comm, op.rank);
    const bool send = p2p.direction == Direction::kSend;
    return {p2p.comm, send ? self : p2p.peer, send ? p2p.peer : self, p2p.seq};
  }

  // ---- the edges between ranks (see above)

  bool is_root(const OpRow& op) const {
    const CollRow& coll = view_.colls[op.coll];
    return coll.root >= 0 && index_.group_rank(coll.comm, op.rank) == coll.root;
  }
  bool starts_others(const OpRow& op) const {
    if (op.coll == kNoRow) return view_.p2ps[op.p2p].direction == Direction::kSend;
    switch (view_.colls[op.coll].func) {
      case CollFunc::kBroadcast:
      case CollFunc::kScatter: return is_root(op);
      case CollFunc::kUnknown: return false;
      default: return true;
    }
  }
  bool waits_for_others(const OpRow& op) const {
    if (op.coll == kNoRow) return view_.p2ps[op.p2p].direction == Direction::kRecv;
    switch (view_.colls[op.coll].func) {
      case CollFunc::kBroadcast:
      case CollFunc::kScatter: return !is_root(op);
      case CollFunc::kReduce:
      case CollFunc::kGather: return is_root(op);
      case CollFunc::kUnknown: return false;
      default: return true;
    }
  }
  // Does all that it writes come from one peer's call?
  bool only_receives(const OpRow& op) const {
    if (op.coll == kNoRow) return view_.p2ps[op.p2p].direction == Direction::kRecv;
    return view_.colls[op.coll].func == CollFunc::kBroadcast && !is_root(op);
  }

  // ---- the walk; false = it cannot go on yet

  bool advance(Lane& lane, Item& item) {
    std::vector<Clock>& hosts = host_clocks_[lane.rank];
    if (!lane.host) {
      if (hosts.size() <= item.host) return false;
      if (item.kind != Item::Kind::kWait) join(lane.clock, hosts[item.host]);
    }
    switch (item.kind) {
      case Item::Kind::kRecord: records_[item.key] = lane.clock; return true;
      case Item::Kind::kWait: return wait(lane, item.key);
      case Item::Kind::kHostSync:
        if (lanes_[item.stream].next < item.upto) return false;
        join(lane.clock, lanes_[item.stream].clock);
        break;
      case Item::Kind::kOps:
        if (!item.started) start(lane, item);
        if (!end(lane, item)) return false;
        break;
    }
    if (lane.host) hosts.push_back(lane.clock);
    return true;
  }

  bool wait(Lane& lane, uint64_t key) {
    const auto record = records_.find(key);
    if (key == 0 || record == records_.end()) return true;
    if (components_ > 0 && record->second.empty()) return false;
    join(lane.clock, record->second);
    return true;
  }

  void start(Lane& lane, Item& item) {
    item.started = true;
    for (uint32_t row = item.row; row < item.row + item.rows; ++row) {
      const OpRow& op = view_.ops[row];
      if (const auto asked = asked_.find(row); asked != asked_.end() && !(is_call(op) && only_receives(op)))
        asked->second = lane.clock;
      if (!is_call(op) || !starts_others(op)) continue;
      Call& call = calls_[key_of(op)];
      join(call.starts, lane.clock);
      ++call.started;
    }
  }

  bool end(Lane& lane, const Item& item) {
    const auto call_of = [&](uint32_t row) -> const Call* {
      const OpRow& op = view_.ops[row];
      if (!is_call(op) || !waits_for_others(op)) return nullptr;
      const Call& call = calls_[key_of(op)];
      return call.mismatched ? nullptr : &call;
    };
    for (uint32_t row = item.row; row < item.row + item.rows; ++row)
      if (const Call* call = call_of(row); call && call->started < call->expected) return false;
    Clock done = lane.clock;
    for (uint32_t row = item.row; row < item.row + item.rows; ++row) {
      const Call* call = call_of(row);
      if (call) join(done, call->starts);
      const auto asked = asked_.find(row);
      if (asked == asked_.end() || !asked->second.empty()) continue;
      asked->second = lane.clock;  // of a receive: what it writes comes from a call that has started
      if (call) join(asked->second, call->starts);
    }
    lane.clock = std::move(done);
    if (lane.component != kNoRow) lane.clock[lane.component] = item.number;
    return true;
  }

  const TraceIndex& index_;
  const TraceView& view_;
  std::set<int> suspects_;  // ranks
  std::vector<Lane> lanes_;
  uint32_t components_ = 0;
  std::unordered_map<uint32_t, uint32_t> lane_of_;  // of the rank that is laid out
  std::unordered_map<int, std::vector<Clock>> host_clocks_;
  std::unordered_map<uint64_t, Clock> records_;  // empty = not yet
  std::map<CallKey, Call> calls_;
  std::map<CallKey, CollFunc> funcs_;
  std::unordered_map<uint32_t, std::pair<uint32_t, uint32_t>> places_;  // op row -> component, number
  std::unordered_map<uint32_t, Clock> asked_;  // later op of a pair -> what is known when it starts
};

// Is it a matter of order between two operations of different lanes?
bool asks(const Race& race) {
  return race.hazard != Hazard::kUnwritten && race.hazard != Hazard::kFreed && race.before != race.behind;
}

}  // namespace

void drop_ordered_elsewhere(const TraceIndex& index, std::vector<Race>& races) {
  std::vector<Race> open;
  std::copy_if(races.begin(), races.end(), std::back_inserter(open), asks);
  if (open.empty()) return;
  JobWalk walk(index, open);
  walk.run();
  std::erase_if(races, [&](const Race& race) { return asks(race) && !walk.keeps(race); });
}

}  // namespace ringscope
