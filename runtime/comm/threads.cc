// The thread backend: ranks are tasks of one sched, a communicator is a set of FIFOs in shared memory.
//
// Algorithms are direct: reduce-scatter sends chunk j straight to rank j, which adds the contributions in
// ascending group rank as they stream in; all-gather sends the own part to everybody. Bytes sent equal a ring's;
// sums do not depend on timing. A call is a list of phases (all-reduce has two). In a group the collectives run
// one after another, as they would ungrouped, and beside the point-to-point calls.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>

#include "probes/recorder/emit.h"
#include "runtime/comm/transfer.h"
#include "tracedb/base/check.h"

namespace ringscope {

// Communicators that are being formed, by member list and creation number: the calls of the members meet here by
// position, as a bootstrap network would do it.
class CommWorld {
 public:
  CommWorld(Sched& sched, CommOptions options) : sched(sched), options(options) {}

  struct Forming {
    uint32_t id = 0;
    int joined = 0;
    std::shared_ptr<FifoSet> fifos;
    std::vector<std::pair<int, int>> votes;  // split: (color, key) by group rank
  };
  Sched& sched;
  CommOptions options;
  Channel channel;  // guards the rest, through sched's update
  std::map<std::pair<std::vector<int>, int>, Forming> forming;
  std::map<std::pair<std::vector<int>, int>, int> calls;  // (members, rank) -> calls so far
  std::map<std::pair<uint32_t, int>, Forming> splits;     // (parent, n-th split)
  std::map<int, int> created;                             // rank -> communicators created
  uint32_t next_id = 1;
};

std::shared_ptr<CommWorld> make_comm_world(Sched& sched, CommOptions options) {
  return std::make_shared<CommWorld>(sched, options);
}

namespace {

std::byte* bytes_of(const Tensor& t) { return t.data<std::byte>(); }

bool overlap(const Tensor& a, const Tensor& b) {
  return a.buffer() == b.buffer() && a.offset_bytes() < b.offset_bytes() + b.bytes() &&
         b.offset_bytes() < a.offset_bytes() + a.bytes();
}

Fold fold_of(RedOp op) { return op == RedOp::kMax ? Fold::kMax : op == RedOp::kMin ? Fold::kMin : Fold::kSum; }

void scale(std::byte* data, int64_t count, DType dtype, int parts) {
  const auto divide = [&](auto* values) {
    for (int64_t i = 0; i < count; ++i) values[i] /= parts;
  };
  if (dtype == DType::kF64) divide(reinterpret_cast<double*>(data));
  else divide(reinterpret_cast<float*>(data));
}

// What a queued operation needs of its communicator: operations may be in a queue when it is gone.
struct Member {
  std::shared_ptr<FifoSet> fifos;
  int rank = 0, size = 1;

  Fifo* fifo(bool p2p, int from, int to) const {
    return &(p2p ? fifos->p2p : fifos->collective)[size_t(from) * size + to];
  }
  Transfer sending(int peer, const std::byte* data, int64_t bytes, bool p2p = false) const {
    Transfer t;
    t.kind = Transfer::Kind::kSend;
    t.fifo = fifo(p2p, rank, peer);
    t.source = data;
    t.bytes = bytes;
    return t;
  }
  Transfer receiving(int peer, std::byte* data, int64_t bytes, bool p2p = false) const {
    Transfer t;
    t.kind = Transfer::Kind::kReceive;
    t.fifo = fifo(p2p, peer, rank);
    t.target = data;
    t.bytes = bytes;
    return t;
  }

  Phase reduce_scatter(const std::byte* in, const std::byte* own, std::byte* out, int64_t chunk, int64_t count,
                       DType dtype, RedOp op) const;
  Phase all_gather(std::byte* out, int64_t part, int64_t total) const;
};

// Chunk r of `in` (`chunk` elements; the last ones may be short or empty) goes to rank r. The own chunk's sum goes
// to `out`; `own` is this rank's contribution, elsewhere than `out` unless it comes first.
Phase Member::reduce_scatter(const std::byte* in, const std::byte* own, std::byte* out, int64_t chunk, int64_t count,
                             DType dtype, RedOp op) const {
  const int64_t element = size_of(dtype);
  const auto length = [=](int r) { return std::clamp<int64_t>(count - r * chunk, 0, chunk); };
  Phase phase;
  for (int peer = 0; peer < size; ++peer)
    if (peer != rank) phase.transfers.push_back(sending(peer, in + peer * chunk * element, length(peer) * element));
  for (int from = 0; from < size; ++from) {  // in a chain: the order of the additions
    Transfer t = receiving(from, out, length(rank) * element);
    if (from == rank) t.kind = Transfer::Kind::kLocal, t.source = own;
    t.fold = from == 0 ? Fold::kCopy : fold_of(op);
    t.dtype = dtype;
    t.after = from == 0 ? -1 : int(phase.transfers.size()) - 1;
    phase.transfers.push_back(t);
  }
  if (op == RedOp::kAvg) phase.finish = [out, n = length(rank), dtype, parts = size] { scale(out, n, dtype, parts); };
  return phase;
}

// Parts of `part` bytes; every rank's own part is in place already.
Phase Member::all_gather(std::byte* out, int64_t part, int64_t total) const {
  const auto length = [=](int r) { return std::clamp<int64_t>(total - r * part, 0, part); };
  Phase phase;
  for (int peer = 0; peer < size; ++peer) {
    if (peer == rank) continue;
    phase.transfers.push_back(sending(peer, out + rank * part, length(rank)));
    phase.transfers.push_back(receiving(peer, out + peer * part, length(peer)));
  }
  return phase;
}

// One call of the host, until it is enqueued.
struct Call {
  uint64_t op = 0;  // 0 = recorder off
  const char* name = "";
  uint64_t bytes = 0;  // of the larger side
  std::function<std::vector<Phase>()> make;
  // Calls of one track go in order: all collectives, or one p2p direction.
  std::pair<Fifo*, bool> track{nullptr, false};
  const char* why = "";
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<CommWorld> world, Device& device, std::vector<int> ranks, int rank, uint32_t id,
                     Axis axis, std::shared_ptr<FifoSet> fifos)
      : world_(std::move(world)), device_(device), ranks_(std::move(ranks)), rank_(rank), id_(id),
        axis_(axis), member_{std::move(fifos), rank, int(ranks_.size())},
        sent_(std::make_shared<std::atomic<uint64_t>>(0)), send_seq_(ranks_.size(), 0), recv_seq_(ranks_.size(), 0) {}

  int rank() const override { return rank_; }
  int size() const override { return int(ranks_.size()); }
  const std::vector<int>& ranks() const override { return ranks_; }
  uint32_t id() const override { return id_; }
  Axis axis() const override { return axis_; }

  void all_reduce(Stream& stream, const Tensor& in, const Tensor& out, RedOp op, const char* name) override {
    check_reducible(in);
    RS_CHECK(in.count() == out.count() && in.dtype() == out.dtype(), "all_reduce: in and out are alike");
    const int64_t count = in.count(), chunk = (count + size() - 1) / size();
    const Tensor own_copy = scratch_if(overlap(in, out), in, chunk);
    collective(stream, CollFunc::kAllReduce, in, out, count, op, -1, name, [=, m = member_] {
      const int64_t at = m.rank * chunk * size_of(in.dtype());
      const std::byte* own = own_contribution(in, at, own_copy, std::clamp<int64_t>(count - m.rank * chunk, 0, chunk));
      return std::vector<Phase>{m.reduce_scatter(bytes_of(in), own, bytes_of(out) + at, chunk, count, in.dtype(), op),
                                m.all_gather(bytes_of(out), chunk * size_of(in.dtype()), out.bytes())};
    });
  }
  void all_gather(Stream& stream, const Tensor& in, const Tensor& out, const char* name) override {
    RS_CHECK(out.bytes() == in.bytes() * size(), "all_gather: out holds size() parts");
    collective(stream, CollFunc::kAllGather, in, out, in.count(), RedOp::kNone, -1, name, [=, m = member_] {
      std::byte* own = bytes_of(out) + m.rank * in.bytes();
      if (own != bytes_of(in)) std::memmove(own, bytes_of(in), size_t(in.bytes()));
      return std::vector<Phase>{m.all_gather(bytes_of(out), in.bytes(), out.bytes())};
    });
  }
  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out, RedOp op, const char* name) override {
    check_reducible(in);
    RS_CHECK(in.count() == out.count() * size() && in.dtype() == out.dtype(), "reduce_scatter: in holds size() parts");
    const Tensor own_copy = scratch_if(overlap(in, out), in, out.count());
    collective(stream, CollFunc::kReduceScatter, in, out, out.count(), op, -1, name, [=, m = member_] {
      const std::byte* own = own_contribution(in, m.rank * out.bytes(), own_copy, out.count());
      return std::vector<Phase>{
          m.reduce_scatter(bytes_of(in), own, bytes_of(out), out.count(), in.count(), in.dtype(), op)};
    });
  }
  void broadcast(Stream& stream, const Tensor& buffer, int root, const char* name) override {
    RS_CHECK(root >= 0 && root < size(), "the root is a rank of the group");
    collective(stream, CollFunc::kBroadcast, buffer, buffer, buffer.count(), RedOp::kNone, root, name,
               [=, m = member_] {
                 Phase phase;
                 if (m.rank != root) phase.transfers.push_back(m.receiving(root, bytes_of(buffer), buffer.bytes()));
                 for (int peer = 0; m.rank == root && peer < m.size; ++peer)
                   if (peer != root) phase.transfers.push_back(m.sending(peer, bytes_of(buffer), buffer.bytes()));
                 return std::vector<Phase>{std::move(phase)};
               });
  }
  void all_to_all(Stream& stream, const Tensor& in, const Tensor& out, const char* name) override {
    RS_CHECK(in.bytes() == out.bytes() && in.count() % size() == 0, "all_to_all: size() equal parts");
    const Tensor copy = scratch_if(overlap(in, out), in, in.count());
    collective(stream, CollFunc::kAllToAll, in, out, in.count() / size(), RedOp::kNone, -1, name, [=, m = member_] {
      const int64_t part = in.bytes() / m.size;
      const std::byte* source = own_contribution(in, 0, copy, in.count());
      if (part > 0) std::memcpy(bytes_of(out) + m.rank * part, source + m.rank * part, size_t(part));
      Phase phase;
      for (int peer = 0; peer < m.size; ++peer) {
        if (peer == m.rank) continue;
        phase.transfers.push_back(m.sending(peer, source + peer * part, part));
        phase.transfers.push_back(m.receiving(peer, bytes_of(out) + peer * part, part));
      }
      return std::vector<Phase>{std::move(phase)};
    });
  }
  void send(Stream& stream, const Tensor& t, int peer, const char* name) override {
    p2p(stream, t, peer, Direction::kSend, name);
  }
  void recv(Stream& stream, const Tensor& t, int peer, const char* name) override {
    p2p(stream, t, peer, Direction::kRecv, name);
  }

  void group_start() override { ++depth_; }
  void group_end() override {
    RS_CHECK(depth_ > 0, "group_end without group_start");
    if (--depth_ == 0 && !calls_.empty()) enqueue_calls();
  }

  std::unique_ptr<Communicator> split(int color, int key, Axis axis, const char* name) override;

  void abort() override {
    member_.fifos->sched.update(member_.fifos->channel, [&] { member_.fifos->aborted = true; });
  }
  std::optional<Error> async_error() const override {
    bool aborted = false;
    member_.fifos->sched.update(member_.fifos->channel, [&] { aborted = member_.fifos->aborted; });
    if (!aborted) return std::nullopt;
    return Error{ErrorKind::kInternal, "communicator " + std::to_string(id_) + " was aborted"};
  }
  TrafficCounter traffic() const override { return {sent_->load(), operations_}; }

 private:
  static void check_reducible(const Tensor& t) {
    RS_CHECK(t.dtype() == DType::kF32 || t.dtype() == DType::kF64, "reductions are fp32 or fp64");
  }

  // Room for an own contribution that the operation would overwrite before it is used: in place only.
  Tensor scratch_if(bool in_place, const Tensor& like, int64_t count) {
    if (!in_place || size() == 1) return {};
    return device_.allocate(like.dtype(), {count}, MemCategory::kCommBuffer, "comm.in_place");
  }
  // On the worker: the own contribution, moved to its scratch if it has one.
  static const std::byte* own_contribution(const Tensor& in, int64_t at, const Tensor& scratch, int64_t count) {
    const int64_t bytes = count * size_of(in.dtype());
    if (!scratch.defined() || bytes == 0) return bytes_of(in) + at;
    std::memcpy(bytes_of(scratch), bytes_of(in) + at, size_t(bytes));
    return bytes_of(scratch);
  }

  template <class Make>
  void collective(Stream& stream, CollFunc func, const Tensor& in, const Tensor& out, int64_t count, RedOp op, int root,
                  const char* name, const Make& make) {
    Call call = begin_call(stream, OpKind::kCollective, name);
    if (call.op) {
      CollRecord record{};
      record.op = call.op;
      record.comm = id_;
      record.func = uint8_t(func), record.dtype = uint8_t(in.dtype()), record.redop = uint8_t(op);
      record.seq = seq_;
      record.count = uint64_t(count);
      record.root = root;
      emit(RecordKind::kColl, record);
      // The root of a broadcast only reads its buffer, the others only write theirs.
      if (func != CollFunc::kBroadcast || root == rank_) device_.record_access(call.op, in, AccessMode::kRead);
      if (func != CollFunc::kBroadcast || root != rank_) device_.record_access(call.op, out, AccessMode::kWrite);
    }
    ++seq_;
    call.why = ringscope::name(func);
    call.bytes = uint64_t(std::max(in.bytes(), out.bytes()));
    call.make = queued(make);
    end_call(stream, std::move(call));
  }

  void p2p(Stream& stream, const Tensor& t, int peer, Direction direction, const char* name) {
    RS_CHECK(peer >= 0 && peer < size() && peer != rank_, "a peer is another rank of the group");
    const bool send = direction == Direction::kSend;
    Call call = begin_call(stream, OpKind::kP2p, name);
    uint64_t& seq = send ? send_seq_[peer] : recv_seq_[peer];
    if (call.op) {
      P2pRecord record{};
      record.op = call.op;
      record.comm = id_;
      record.peer = uint16_t(peer);
      record.direction = uint8_t(direction), record.dtype = uint8_t(t.dtype());
      record.seq = seq;
      record.bytes = uint64_t(t.bytes());
      record.count = uint64_t(t.count());
      emit(RecordKind::kP2p, record);
      device_.record_access(call.op, t, send ? AccessMode::kRead : AccessMode::kWrite);
    }
    ++seq;
    call.why = send ? "send" : "recv";
    call.bytes = uint64_t(t.bytes());
    call.track = {member_.fifo(true, send ? rank_ : peer, send ? peer : rank_), send};
    call.make = queued([=, m = member_] {
      Phase phase;
      phase.transfers.push_back(send ? m.sending(peer, bytes_of(t), t.bytes(), true)
                                     : m.receiving(peer, bytes_of(t), t.bytes(), true));
      return std::vector<Phase>{std::move(phase)};
    });
    end_call(stream, std::move(call));
  }

  // A copy whose tensors hold no account (tensor.h).
  template <class Make>
  static std::function<std::vector<Phase>()> queued(const Make& make) {
    Buffer::DropAccounts mark;
    return [copy = std::make_shared<Make>(make)] { return (*copy)(); };
  }

  Call begin_call(Stream& stream, OpKind kind, const char* name) {
    Call call;
    call.name = name;
    ++operations_;
    if (!rs_enabled()) return call;
    call.op = rs_next_op();
    if (depth_ > 0 && group_op_ == 0) group_op_ = call.op;
    OpEnqueueRecord record{};
    record.op = call.op;
    record.where = device_.where().pack();
    record.name = device_.intern(name);
    record.kind = uint16_t(kind);
    record.group = depth_ > 0 ? group_op_ : 0;
    emit(RecordKind::kOpEnqueue, record, stream.id());
    return call;
  }

  void end_call(Stream& stream, Call call) {
    if (calls_.empty()) stream_ = &stream;
    RS_CHECK(stream_ == &stream, "the calls of a group are on one stream");
    calls_.push_back(std::move(call));
    if (depth_ == 0) enqueue_calls();
  }

  void enqueue_calls() {
    StreamOp op;
    op.counts_as_kernel = false;
    op.ends_itself = true;
    op.name = calls_[0].name;  // a group goes by its first call
    op.where = device_.where();
    for (const Call& call : calls_) op.bytes += call.bytes;
    for (const Call& call : calls_)
      if (call.op) op.ids.push_back(call.op);
    const char* why = calls_.size() == 1 ? calls_[0].why : "a group of communications";
    auto tracks = std::make_shared<std::vector<Track>>(make_tracks(stream_->id()));
    calls_.clear();
    group_op_ = 0;
    op.run = [fifos = member_.fifos, tracks, why] { return run_tracks(*fifos, *tracks, why); };
    device_.enqueue(*stream_, std::move(op));
  }

  // Collectives go in call order, and so do several sends, or several receives, with one peer.
  std::vector<Track> make_tracks(uint16_t lane) {
    std::vector<Track> tracks;
    std::map<std::pair<Fifo*, bool>, size_t> track_of;
    for (Call& call : calls_) {
      const auto [entry, fresh] = track_of.try_emplace(call.track, tracks.size());
      if (fresh) tracks.emplace_back();
      tracks[entry->second].calls.push_back({std::move(call.make), [op = call.op, lane, sent = sent_](uint64_t bytes) {
                                               sent->fetch_add(bytes, std::memory_order_relaxed);
                                               if (op) emit(RecordKind::kOpEnd, OpEndRecord{op, bytes}, lane);
                                             }});
    }
    return tracks;
  }

  std::shared_ptr<CommWorld> world_;
  Device& device_;
  std::vector<int> ranks_;
  int rank_;
  uint32_t id_;
  Axis axis_;
  Member member_;
  std::shared_ptr<std::atomic<uint64_t>> sent_;
  uint64_t operations_ = 0, seq_ = 0;
  std::vector<uint64_t> send_seq_, recv_seq_;
  int splits_ = 0;

  int depth_ = 0;  // group nesting
  uint64_t group_op_ = 0;
  Stream* stream_ = nullptr;  // of the open group's first call
  std::vector<Call> calls_;
};

std::unique_ptr<Communicator> ThreadCommunicator::split(int color, int key, Axis axis, const char* name) {
  CommWorld& world = *world_;
  const std::pair<uint32_t, int> place{id_, splits_++};
  world.sched.update(world.channel, [&] {
    auto& forming = world.splits[place];
    forming.votes.resize(ranks_.size(), {-1, 0});
    forming.votes[rank_] = {color, key};
    ++forming.joined;
  });
  if (!world.sched.block_until(world.channel, [&] { return world.splits[place].joined == size(); },
                               {"the other ranks to split a communicator"}))
    return nullptr;
  if (color < 0) return nullptr;
  std::vector<std::pair<std::pair<int, int>, int>> members;  // ((key, group rank), global rank)
  world.sched.update(world.channel, [&] {
    for (int r = 0; r < size(); ++r)
      if (world.splits[place].votes[r].first == color)
        members.push_back({{world.splits[place].votes[r].second, r}, ranks_[r]});
  });
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& member : members) ranks.push_back(member.second);
  return comm_init(world_, device_, ranks, axis, name);
}

}  // namespace

namespace {

// What a rank asks for, before it waits for the others: a creation that never ends is in the trace. Returns the op id.
uint64_t record_creation(Device& device, uint32_t id, const std::vector<int>& ranks, int group_rank, Axis axis,
                         const char* name, int nth) {
  if (!rs_enabled()) return 0;
  CommRecord comm{};
  comm.comm = id;
  comm.size = uint32_t(ranks.size());
  comm.name = rs_intern(name);
  comm.axis = uint16_t(axis);
  comm.group_rank = uint16_t(group_rank);
  comm.creation = uint64_t(nth);
  emit(RecordKind::kComm, comm);
  for (size_t r = 0; r < ranks.size(); ++r)
    emit(RecordKind::kCommRank, CommRankRecord{id, uint32_t(r), uint64_t(ranks[r])});
  OpEnqueueRecord op{};
  op.op = rs_next_op();
  op.where = device.where().pack();
  op.name = comm.name;
  op.kind = uint16_t(OpKind::kCommInit);
  emit(RecordKind::kOpEnqueue, op, device.first_lane());
  emit(RecordKind::kOpStart, OpStartRecord{op.op}, device.first_lane());
  return op.op;
}

}  // namespace

std::unique_ptr<Communicator> comm_init(const std::shared_ptr<CommWorld>& world, Device& device,
                                        const std::vector<int>& ranks, Axis axis, const char* name) {
  const auto own = std::find(ranks.begin(), ranks.end(), device.rank());
  RS_CHECK(own != ranks.end(), "a rank creates communicators that it belongs to");
  const int group_rank = int(own - ranks.begin());
  CommWorld::Forming* forming = nullptr;
  int creation = 0;
  world->sched.update(world->channel, [&] {
    creation = world->created[device.rank()]++;
    const int nth = world->calls[{ranks, device.rank()}]++;
    forming = &world->forming[{ranks, nth}];
    if (forming->joined++ == 0) {
      forming->id = world->next_id++;
      forming->fifos = std::make_shared<FifoSet>(world->sched, int(ranks.size()), world->options);
    }
  });
  const uint64_t op = record_creation(device, forming->id, ranks, group_rank, axis, name, creation);
  if (!world->sched.block_until(world->channel, [&] { return forming->joined == int(ranks.size()); },
                                {"the other ranks to create a communicator"}))
    return nullptr;
  if (op) emit(RecordKind::kOpEnd, OpEndRecord{op, 0}, device.first_lane());
  return std::make_unique<ThreadCommunicator>(world, device, ranks, group_rank, forming->id, axis, forming->fifos);
}

}  // namespace ringscope
