#include "tools/analyze/hang/replay.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "tools/analyze/hang/calls.h"

namespace ringscope {
namespace {

// Does completing on one member prove that all have joined?
bool joins_all(CollFunc func) {
  return func == CollFunc::kAllReduce || func == CollFunc::kAllGather || func == CollFunc::kReduceScatter ||
         func == CollFunc::kAllToAll || func == CollFunc::kBarrier;
}

struct Item {
  std::vector<uint32_t> ops;  // one operation, or a group of transfers
  int lane = -1;              // ops empty: waits until this lane ...
  size_t count = 0;           // ... has run so many items
};

struct Lane {
  int rank = 0;
  std::vector<Item> items;
  size_t done = 0;
  bool posted = false;  // the operations of the head were started
  size_t open = 0;      // of them have not ended
  bool queued = false;
};

// One collective that somebody waits in.
struct Meeting {
  size_t members = 0;          // rows that still have to join
  std::vector<uint32_t> rows;  // op rows of members that did not finish
  std::vector<int> lanes;      // of those that joined
  std::vector<int> absent;     // ranks without a row
  bool complete = false;
};

class Replay {
 public:
  Replay(const TraceIndex& index, Sends sends) : index_(index), view_(index.view), sends_(sends) {}

  Stuck run() {
    find_pending();
    if (lanes_.empty()) return {};
    for (size_t lane = 0; lane < lanes_.size(); ++lane) wake(int(lane));
    while (!ready_.empty()) {
      const int lane = ready_.back();
      ready_.pop_back();
      lanes_[size_t(lane)].queued = false;
      advance(lane);
    }
    return describe();
  }

 private:
  // ---- what did not finish

  void find_pending() {
    for (int rank : index_.ranks()) {
      const auto [begin, end] = index_.ops_of(rank);
      auto [sync, last] = index_.syncs_of(rank);
      bool any = false;
      for (uint32_t row = begin; row < end && !any; ++row)
        any = is_call(view_.ops[row]) && view_.ops[row].state != OpState::kCompleted;
      if (any) add_rank(rank, begin, end, sync, last);
    }
  }

  void add_rank(int rank, uint32_t begin, uint32_t end, size_t sync, size_t last) {
    std::unordered_map<uint64_t, std::pair<int, size_t>> records;  // key -> (lane, items in it)
    bool pending = false;
    const std::map<std::pair<uint32_t, uint16_t>, uint32_t> passed = furthest(begin, end);
    for (uint32_t row = begin; row < end; ++row) {
      const OpRow& op = view_.ops[row];
      for (; sync < last && view_.syncs[sync].issue < op.issue; ++sync)
        if (!lanes_.empty() && lanes_.back().rank == rank) add_sync(view_.syncs[sync], records);
      if (!is_call(op) || op.state == OpState::kCompleted) continue;
      const auto further = passed.find({op.stream, op.thread});
      if ((further != passed.end() && row < further->second) || finished_elsewhere(op)) continue;
      pending = true;
      Lane& lane = lanes_[size_t(lane_of(rank, op.stream, op.thread))];
      if (op.group != 0 && !lane.items.empty() && !lane.items.back().ops.empty() &&
          view_.ops[lane.items.back().ops[0]].group == op.group)
        lane.items.back().ops.push_back(row);
      else lane.items.push_back({{row}, -1, 0});
      lane_of_op_.emplace(row, int(&lane - lanes_.data()));
    }
    if (pending) pending_.push_back(rank);
  }

  // By (stream, thread) the last row that started: what one thread put before it on that stream has finished.
  std::map<std::pair<uint32_t, uint16_t>, uint32_t> furthest(uint32_t begin, uint32_t end) const {
    std::map<std::pair<uint32_t, uint16_t>, uint32_t> rows;
    std::map<std::pair<uint32_t, uint16_t>, uint64_t> group;
    for (uint32_t row = begin; row < end; ++row) {
      const OpRow& op = view_.ops[row];
      const std::pair<uint32_t, uint16_t> lane{op.stream, op.thread};
      if (op.state == OpState::kScheduled) continue;
      // Operations of one group run together: the first of it marks the place.
      if (op.group != 0 && group[lane] == op.group) continue;
      group[lane] = op.group;
      rows[lane] = row;
    }
    return rows;
  }

  // The record of its end is missing (a worker's ring is), but a member's own shows that all had joined; or a receive
  // shows that its send ran.
  bool finished_elsewhere(const OpRow& op) {
    if (op.coll != kNoRow) {
      const CollRow& coll = view_.colls[op.coll];
      const CommCalls* calls = index_.calls(coll.comm);
      if (!calls || !joins_all(coll.func)) return false;
      const auto [at, fresh] = met_.try_emplace(mix(coll.comm, coll.seq), false);
      if (fresh)
        for (const MemberCalls& member : calls->members)
          at->second = at->second || completed(member.calls.at(coll.seq));
      return at->second;
    }
    const uint32_t other = transfers().counterpart(op.p2p);
    return other != kNoRow && view_.p2ps[other].direction == Direction::kRecv &&
           view_.ops[view_.p2ps[other].op].state == OpState::kCompleted;
  }
  bool completed(uint32_t coll_row) const {
    return coll_row != kNoRow && view_.ops[view_.colls[coll_row].op].state == OpState::kCompleted;
  }

  void add_sync(const SyncRow& sync, std::unordered_map<uint64_t, std::pair<int, size_t>>& records) {
    if (sync.key == 0) return;
    if (sync.kind == SyncKind::kRecord) {
      const auto lane = lanes_by_.find({sync.rank, sync.stream, sync.thread});
      if (lane != lanes_by_.end()) records[sync.key] = {lane->second, lanes_[size_t(lane->second)].items.size()};
    } else if (sync.kind == SyncKind::kWait) {
      const auto record = records.find(sync.key);
      if (record == records.end()) return;
      const auto [from, count] = record->second;
      const int lane = lane_of(sync.rank, sync.stream, sync.thread);
      if (lane != from && count > 0) lanes_[size_t(lane)].items.push_back({{}, from, count});
    }
  }

  int lane_of(int rank, uint32_t stream, uint16_t thread) {
    const auto [at, fresh] = lanes_by_.try_emplace({rank, stream, thread}, int(lanes_.size()));
    if (fresh) lanes_.push_back({rank, {}, 0, false, 0, false});
    if (fresh) waiters_.emplace_back();
    return at->second;
  }

  const Transfers& transfers() {
    if (!transfers_) transfers_ = std::make_unique<Transfers>(index_);
    return *transfers_;
  }

  // ---- running it

  void wake(int lane) {
    if (lanes_[size_t(lane)].queued) return;
    lanes_[size_t(lane)].queued = true;
    ready_.push_back(lane);
  }

  void advance(int number) {
    while (lanes_[size_t(number)].done < lanes_[size_t(number)].items.size()) {
      Lane& lane = lanes_[size_t(number)];
      const Item& item = lane.items[lane.done];
      if (item.ops.empty()) {
        if (lanes_[size_t(item.lane)].done < item.count) {
          waiters_[size_t(item.lane)].push_back(number);
          return;
        }
      } else {
        if (!lane.posted) {
          lane.posted = true;
          lane.open = item.ops.size();
          for (uint32_t row : item.ops) start(row, number);
        }
        if (lanes_[size_t(number)].open > 0) return;
      }
      finish_item(number);
    }
  }

  void finish_item(int number) {
    Lane& lane = lanes_[size_t(number)];
    lane.posted = false;
    ++lane.done;
    for (int waiter : waiters_[size_t(number)]) wake(waiter);
    waiters_[size_t(number)].clear();
  }

  void end(int lane) {
    --lanes_[size_t(lane)].open;
    wake(lane);
  }

  void start(uint32_t row, int lane) {
    const OpRow& op = view_.ops[row];
    if (op.coll != kNoRow) {
      Meeting* meeting = meeting_of(op.coll);
      if (!meeting || meeting->complete) return end(lane);
      meeting->lanes.push_back(lane);
      if (--meeting->members > 0 || !meeting->absent.empty()) return;
      meeting->complete = true;
      for (int joined : meeting->lanes) end(joined);
      return;
    }
    const uint32_t other = transfers().counterpart(op.p2p);
    if (view_.p2ps[op.p2p].direction == Direction::kSend) {
      sent_.insert(row);
      const uint32_t receive = other == kNoRow ? kNoRow : view_.p2ps[other].op;
      const bool meets = sends_ == Sends::kMeets && receive != kNoRow && lane_of_op_.contains(receive);
      if (!meets || receiving_.contains(receive)) end(lane);
      else sending_.emplace(row, lane);
      if (other == kNoRow) return;
      const auto waiting = receiving_.find(view_.p2ps[other].op);
      if (waiting != receiving_.end()) end(waiting->second);
      return;
    }
    if (arrives(op, other)) {
      if (other != kNoRow)
        if (const auto sender = sending_.find(view_.p2ps[other].op); sender != sending_.end()) {
          end(sender->second);
          sending_.erase(sender);
        }
      receiving_.emplace(row, lane);
      return end(lane);
    }
    receiving_.emplace(row, lane);
  }

  // Has the block of a receive been sent, or may it have been?
  bool arrives(const OpRow& receive, uint32_t send_p2p) const {
    if (send_p2p == kNoRow) return !certainly_absent(peer_rank(index_, receive), receive);
    const uint32_t send = view_.p2ps[send_p2p].op;
    return sent_.contains(send) || !lane_of_op_.contains(send);
  }

  // The rank's trace is there, and nothing of it is missing since shortly before the waiting call.
  bool certainly_absent(int rank, const OpRow& waiting) const {
    return rank >= 0 && index_.seen(rank) && index_.lossless(rank, waiting.enqueue_ns, 0);
  }

  Meeting* meeting_of(uint32_t coll_row) {
    const CollRow& coll = view_.colls[coll_row];
    const CommCalls* calls = index_.calls(coll.comm);
    if (!calls) return nullptr;
    const auto [at, fresh] = meetings_.try_emplace({coll.comm, coll.seq});
    Meeting& meeting = at->second;
    if (!fresh) return &meeting;
    for (const MemberCalls& member : calls->members) {
      const uint32_t row = member.calls.at(coll.seq);
      if (row == kNoRow) {
        if (coll.seq >= member.calls.end() && certainly_absent(member.rank, view_.ops[coll.op]))
          meeting.absent.push_back(member.rank);
      } else if (lane_of_op_.contains(view_.colls[row].op)) {
        ++meeting.members;
        meeting.rows.push_back(view_.colls[row].op);
      }
    }
    return &meeting;
  }

  // ---- what is left

  Stuck describe() {
    Stuck stuck;
    stuck.pending = pending_;
    std::vector<int> node(lanes_.size(), -1);
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].done >= lanes_[i].items.size()) continue;
      node[i] = int(stuck.lanes.size());
      stuck.lanes.push_back(describe(lanes_[i]));
      stuck.ranks.push_back(lanes_[i].rank);
    }
    sort_unique(stuck.ranks);
    stuck.edges.resize(stuck.lanes.size());
    for (auto& [key, meeting] : meetings_) {
      if (meeting.complete || meeting.lanes.empty()) continue;
      const int self = int(stuck.edges.size());
      stuck.edges.emplace_back();
      for (int lane : meeting.lanes) stuck.edges[size_t(node[size_t(lane)])].push_back(self);
      Absence absence{kNoRow, {}, meeting.absent};
      for (uint32_t row : meeting.rows) {
        const int lane = lane_of_op_.at(row);
        const bool joined = heads(lanes_[size_t(lane)], row);
        if (!joined && node[size_t(lane)] >= 0) stuck.edges[size_t(self)].push_back(node[size_t(lane)]);
        absence.makers.push_back(view_.ops[row].rank);
        if (joined && (absence.waiting == kNoRow || first_to_wait(row, absence.waiting))) absence.waiting = row;
      }
      if (!absence.absent.empty()) add_absence(stuck, std::move(absence));
    }
    for (size_t i = 0; i < lanes_.size(); ++i)
      if (node[i] >= 0) add_lane_edges(stuck, lanes_[i], node[i], node);
    return stuck;
  }

  static bool heads(const Lane& lane, uint32_t row) {
    if (lane.done >= lane.items.size()) return false;
    const auto& ops = lane.items[lane.done].ops;
    return lane.posted && std::find(ops.begin(), ops.end(), row) != ops.end();
  }

  StuckLane describe(const Lane& lane) const {
    StuckLane stuck{lane.rank, kNoRow, kNoRow};
    const Item& item = lane.items[lane.done];
    for (uint32_t row : item.ops) {
      const bool send = view_.ops[row].p2p != kNoRow && view_.p2ps[view_.ops[row].p2p].direction == Direction::kSend;
      if (stuck.head == kNoRow && (!send || sending_.contains(row))) stuck.head = row;
    }
    for (size_t i = lane.done; i < lane.items.size() && stuck.behind == kNoRow; ++i)
      if (!lane.items[i].ops.empty()) stuck.behind = lane.items[i].ops[0];
    return stuck;
  }

  void add_lane_edges(Stuck& stuck, const Lane& lane, int self, const std::vector<int>& node) {
    const Item& item = lane.items[lane.done];
    if (item.ops.empty()) {
      if (node[size_t(item.lane)] >= 0) stuck.edges[size_t(self)].push_back(node[size_t(item.lane)]);
      return;
    }
    for (uint32_t row : item.ops) {
      const OpRow& op = view_.ops[row];
      if (op.p2p == kNoRow) continue;
      if (sending_.contains(row)) {
        const uint32_t receive = view_.p2ps[transfers().counterpart(op.p2p)].op;
        const int to = node[size_t(lane_of_op_.at(receive))];
        if (to >= 0) stuck.edges[size_t(self)].push_back(to);
        continue;
      }
      if (!receiving_.contains(row)) continue;
      const uint32_t other = transfers().counterpart(op.p2p);
      if (other == kNoRow) {
        add_absence(stuck, {row, {op.rank}, {peer_rank(index_, op)}});
      } else if (const uint32_t send = view_.p2ps[other].op; !sent_.contains(send) && lane_of_op_.contains(send)) {
        const int to = node[size_t(lane_of_op_.at(send))];
        if (to >= 0) stuck.edges[size_t(self)].push_back(to);
      }
    }
  }

  void add_absence(Stuck& stuck, Absence absence) {
    sort_unique(absence.makers);
    sort_unique(absence.absent);
    if (absence.waiting != kNoRow) stuck.absences.push_back(std::move(absence));
  }

  bool first_to_wait(uint32_t a, uint32_t b) const {
    const OpRow &x = view_.ops[a], &y = view_.ops[b];
    return std::tuple(x.start_ns ? x.start_ns : x.enqueue_ns, a) <
           std::tuple(y.start_ns ? y.start_ns : y.enqueue_ns, b);
  }

  const TraceIndex& index_;
  const TraceView& view_;
  std::unique_ptr<Transfers> transfers_;
  std::vector<Lane> lanes_;
  std::map<std::tuple<int, uint32_t, uint16_t>, int> lanes_by_;
  std::vector<std::vector<int>> waiters_;  // by lane: who waits for it to go on
  std::unordered_map<uint32_t, int> lane_of_op_;
  std::unordered_map<uint64_t, bool> met_;
  std::map<std::pair<uint32_t, uint64_t>, Meeting> meetings_;
  Sends sends_;
  std::set<uint32_t> sent_;
  std::unordered_map<uint32_t, int> sending_;  // sends that wait for their receive -> lane
  std::unordered_map<uint32_t, int> receiving_;
  std::vector<int> ready_, pending_;
};

}  // namespace

Stuck replay(const TraceIndex& index, Sends sends) { return Replay(index, sends).run(); }

}  // namespace ringscope
