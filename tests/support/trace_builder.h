// TraceBuilder: composes the trace of a small multi-rank job without running one. A rank's host program is a
// sequence of calls; play() then executes all streams by NCCL's rules (collectives match by position, transfers
// are a FIFO per pair, streams are first in first out, events bind at the call) and sets what each operation
// came to. What is still blocked then is a stall. Build ranks in ascending order.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/view_filter.h"
#include "tracedb/model/trace_view.h"

namespace ringscope::testing {

enum Lane { kCompute = 0, kCp = 1, kDp = 2 };

class TraceBuilder {
 public:
  TraceBuilder(int tp, int cp, int dp) : tp_(tp), cp_(cp), dp_(dp) {
    view_.strings.push_back("");
    view_.meta[meta_key::kWorldSize] = std::to_string(world());
    view_.meta[meta_key::kCpSize] = std::to_string(cp);
    view_.meta[meta_key::kCpLayout] = "contiguous";
    view_.sources.push_back({"built", "spool", -1, 0, 0});
    for (int rank = 0; rank < world(); ++rank) {
      view_.ranks.push_back({rank, tp_of(rank), cp_of(rank), dp_of(rank), 0, 100 + rank, "host"});
      const char* names[] = {"compute", "cp", "dp"};
      for (int lane = 0; lane < 3; ++lane) view_.streams.push_back({stream(rank, Lane(lane)), rank, names[lane]});
    }
    for (Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp})
      for (int rank = 0; rank < world(); ++rank) {
        const std::vector<int32_t> ranks = group(axis, rank);
        if (ranks.size() > 1 && ranks[0] == rank) {
          CommRow comm{uint32_t(view_.comms.size() + 1), axis, std::string(name(axis)) + "[...]", ranks};
          view_.comms.push_back(comm);
        }
      }
  }

  int world() const { return tp_ * cp_ * dp_; }
  int cp_size() const { return cp_; }
  int tp_size() const { return tp_; }
  int dp_size() const { return dp_; }
  int tp_of(int rank) const { return rank % tp_; }
  int cp_of(int rank) const { return rank / tp_ % cp_; }
  int dp_of(int rank) const { return rank / tp_ / cp_; }
  static uint32_t stream(int rank, Lane lane) { return uint32_t(rank * 3 + lane + 1); }

  std::vector<int32_t> group(Axis axis, int rank) const {
    std::vector<int32_t> ranks;
    for (int other = 0; other < world(); ++other) {
      const bool tp = tp_of(other) == tp_of(rank), cp = cp_of(other) == cp_of(rank), dp = dp_of(other) == dp_of(rank);
      if ((tp || axis == Axis::kTp) && (cp || axis == Axis::kCp) && (dp || axis == Axis::kDp)) ranks.push_back(other);
    }
    return ranks;
  }
  const CommRow* comm(Axis axis, int rank) const {
    for (const CommRow& row : view_.comms)
      if (row.axis == axis)
        for (int32_t member : row.ranks)
          if (member == rank) return &row;
    return nullptr;
  }

  uint32_t text(const std::string& value) {
    const auto [it, fresh] = texts_.try_emplace(value, uint32_t(view_.strings.size()));
    if (fresh) view_.strings.push_back(value);
    return it->second;
  }
  uint64_t buffer(int rank, const std::string& name, uint64_t bytes) {
    view_.buffers.push_back({view_.buffers.size() + 1, rank, bytes, MemCategory::kKvRing, text(name)});
    return view_.buffers.back().buffer;
  }

  uint32_t kernel(int rank, Lane lane, const std::string& name, const Where& where) {
    const uint32_t row = op(rank, lane, name, where, OpKind::kKernel);
    enqueue(rank, lane, {row});
    return row;
  }
  // A collective of the rank's group along the axis; nothing when the axis has size 1.
  void coll(int rank, Lane lane, Axis axis, CollFunc func, const std::string& name, const Where& where,
            uint64_t count = 64, RedOp redop = RedOp::kSum) {
    const CommRow* row = comm(axis, rank);
    if (!row) return;
    const uint32_t at = op(rank, lane, name, where, OpKind::kCollective);
    const uint64_t seq = coll_seq_[{row->comm, rank}]++;
    view_.ops[at].coll = uint32_t(view_.colls.size());
    view_.colls.push_back(
        {at, row->comm, func, DType::kF32, func == CollFunc::kAllReduce ? redop : RedOp::kNone, -1, seq, count});
    enqueue(rank, lane, {at});
  }
  // One hop of a CP ring: receive from the previous, send to the next, in one group. Returns (recv, send) op rows.
  // `distance` 1 = the ring's direction, -1 = the other way round.
  std::pair<uint32_t, uint32_t> hop(int rank, Lane lane, const std::string& name, const Where& where,
                                    int distance = 1) {
    const CommRow& row = *comm(Axis::kCp, rank);
    const int size = int(row.ranks.size()), self = cp_of(rank);
    const uint32_t recv =
        p2p(rank, lane, row, (self + size - distance) % size, Direction::kRecv, name + "_recv", where);
    const uint32_t send =
        p2p(rank, lane, row, (self + size + distance) % size, Direction::kSend, name + "_send", where);
    view_.ops[recv].group = view_.ops[send].group = view_.ops[recv].op;
    enqueue(rank, lane, {recv, send});
    return {recv, send};
  }
  void access(uint32_t op_row, uint64_t buffer, AccessMode mode, uint64_t begin = 0, uint64_t end = 4096) {
    view_.accesses.push_back({op_row, buffer, begin, end, mode});
  }

  uint64_t record(int rank, Lane lane, const std::string& name = "event") {
    const uint64_t key = ++keys_;
    sync(rank, lane, SyncKind::kRecord, key, name);
    records_[key] = {stream(rank, lane), queues_[stream(rank, lane)].size()};
    return key;
  }
  void wait(int rank, Lane lane, uint64_t key, const std::string& name = "event") {
    sync(rank, lane, SyncKind::kWait, key, name);
    if (key) queues_[stream(rank, lane)].push_back({{}, key});
  }
  void host_sync(int rank, Lane lane) { sync(rank, lane, SyncKind::kHostSync, 0, "read_back"); }
  uint64_t issues(int rank) { return issue_[rank]; }
  // What follows is issued by this host thread of its rank.
  void on_thread(uint16_t thread) { thread_ = thread; }

  // The rank's operations from now on were enqueued but its workers ran none of them.
  void exit(int rank, int64_t status, const Where& where, const std::string& reason) {
    view_.rank_exits.push_back({rank, status, 1'000'000 + rank, reason, where});
    dead_.push_back(rank);
  }

  // Executes until nothing moves. True = everything completed.
  bool play() {
    std::map<uint32_t, size_t> at;
    bool moved = true;
    while (moved) {
      moved = false;
      for (auto& [id, queue] : queues_)
        while (at[id] < queue.size() && step(queue[at[id]], at)) {
          ++at[id];
          moved = true;
        }
    }
    for (auto& [id, queue] : queues_)
      if (at[id] < queue.size()) return false;
    return true;
  }

  // Cuts the trace of one rank behind an issue number, as a kill would.
  void cut(int rank, uint64_t issue) { cuts_[rank] = issue; }

  TraceView& raw() { return view_; }

  // Plays, writes outcome and exits, and returns the view. outcome "" = killed; "auto" = completed or stalled.
  TraceView finish(std::string outcome = "auto") {
    const bool completed = play();
    if (outcome == "auto") outcome = completed ? "completed" : "stalled";
    if (!outcome.empty()) {
      view_.meta[meta_key::kOutcome] = outcome;
      for (int rank = 0; rank < world(); ++rank) {
        bool known = false, blocked = false;
        for (const RankExitRow& row : view_.rank_exits) known = known || row.rank == rank;
        for (const OpRow& row : view_.ops) blocked = blocked || (row.rank == rank && row.state != OpState::kCompleted);
        const int64_t status = outcome == "completed" ? 0 : outcome == "interrupted" ? -1 : blocked ? -2 : -1;
        if (!known) view_.rank_exits.push_back({rank, status, 0, "", {}});
      }
    }
    apply_cuts();
    return std::move(view_);
  }

 private:
  struct Item {
    std::vector<uint32_t> ops;
    uint64_t key = 0;  // a wait, when ops is empty
    bool started = false;
  };

  uint32_t op(int rank, Lane lane, const std::string& name, const Where& where, OpKind kind) {
    OpRow row;
    row.issue = ++issue_[rank];
    row.op = uint64_t(rank + 1) << 40 | row.issue;
    row.rank = rank;
    row.stream = stream(rank, lane);
    row.name = text(name);
    row.kind = kind;
    row.where = where;
    row.enqueue_ns = int64_t(row.issue) * 100 + rank;
    row.thread = thread_;
    view_.ops.push_back(row);
    return uint32_t(view_.ops.size() - 1);
  }
  uint32_t p2p(int rank, Lane lane, const CommRow& comm, int peer, Direction direction, const std::string& name,
               const Where& where) {
    const uint32_t at = op(rank, lane, name, where, OpKind::kP2p);
    const uint64_t seq = p2p_seq_[{comm.comm, rank * 1000 + peer * 2 + int(direction)}]++;
    view_.ops[at].p2p = uint32_t(view_.p2ps.size());
    view_.p2ps.push_back({at, comm.comm, peer, direction, DType::kF32, seq, 4096, 1024});
    return at;
  }
  void sync(int rank, Lane lane, SyncKind kind, uint64_t key, const std::string& name) {
    view_.syncs.push_back({rank, stream(rank, lane), kind, ++issue_[rank], key, key, {}, text(name), thread_});
  }
  void enqueue(int rank, Lane lane, std::vector<uint32_t> ops) {
    if (!is_dead(rank)) {
      queues_[stream(rank, lane)].push_back({std::move(ops), 0});
    }
  }
  bool is_dead(int rank) const {
    for (int dead : dead_)
      if (dead == rank) return true;
    return false;
  }

  // Tries the item at the head of a stream; true = it is done.
  bool step(Item& item, const std::map<uint32_t, size_t>& at) {
    if (item.ops.empty()) {
      const auto& [from, index] = records_[item.key];
      const auto found = at.find(from);
      return (found == at.end() ? 0 : found->second) >= index;
    }
    for (uint32_t row : item.ops)
      if (view_.ops[row].state == OpState::kScheduled) start(row);
    bool done = true;
    for (uint32_t row : item.ops) {
      OpRow& op = view_.ops[row];
      if (op.state == OpState::kCompleted) continue;
      if (!can_end(op)) {
        done = false;
        continue;
      }
      op.state = OpState::kCompleted;
      op.end_ns = ++clock_ * 10;
    }
    return done;
  }
  void start(uint32_t row) {
    OpRow& op = view_.ops[row];
    op.state = OpState::kStarted;
    op.start_ns = ++clock_ * 10;
    if (op.coll != kNoRow) ++joined_[{view_.colls[op.coll].comm, view_.colls[op.coll].seq}];
    if (op.p2p != kNoRow) posted_[transfer_key(op)] = true;
  }
  // (comm, source, destination, direction, seq): who waits for the other side's entry.
  std::tuple<uint32_t, int, int, int, uint64_t> transfer_key(const OpRow& op, bool other = false) const {
    const P2pRow& p = view_.p2ps[op.p2p];
    const int self = cp_of(op.rank);
    const bool send = p.direction == Direction::kSend;
    return {p.comm, send ? self : p.peer, send ? p.peer : self, int(p.direction) ^ int(other), p.seq};
  }
  bool can_end(const OpRow& op) {
    if (op.coll != kNoRow) {
      const CollRow& coll = view_.colls[op.coll];
      return joined_[{coll.comm, coll.seq}] == view_.comms[coll.comm - 1].ranks.size();
    }
    // A send ends once its bytes lie in the channel; a receive needs the send of its number.
    if (op.p2p != kNoRow && view_.p2ps[op.p2p].direction == Direction::kRecv)
      return posted_.contains(transfer_key(op, true));
    return true;
  }

  void apply_cuts() {
    if (cuts_.empty()) return;
    const auto gone = [&](int rank, uint64_t issue) { return cuts_.contains(rank) && issue > cuts_[rank]; };
    TraceView& v = view_;
    keep_ops(v, [&](const OpRow& op) { return !gone(op.rank, op.issue); });
    std::erase_if(v.syncs, [&](const SyncRow& s) { return gone(s.rank, s.issue); });
  }

  int tp_, cp_, dp_;
  TraceView view_;
  std::unordered_map<std::string, uint32_t> texts_;
  std::map<int, uint64_t> issue_, cuts_;
  std::map<std::pair<uint32_t, int>, uint64_t> coll_seq_, p2p_seq_;
  std::map<uint32_t, std::deque<Item>> queues_;
  std::map<uint64_t, std::pair<uint32_t, size_t>> records_;
  std::map<std::pair<uint32_t, uint64_t>, size_t> joined_;
  std::map<std::tuple<uint32_t, int, int, int, uint64_t>, bool> posted_;
  std::vector<int> dead_;
  uint64_t keys_ = 0;
  uint16_t thread_ = 0;
  int64_t clock_ = 0;
};

}  // namespace ringscope::testing
