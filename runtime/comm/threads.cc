// The thread backend: ranks are tasks of one sched, a communicator is a set of FIFOs in shared memory.
//
// Algorithms are direct: reduce-scatter sends chunk j straight to rank j, which adds the contributions in
// ascending group rank; all-gather sends the own part to everybody. Bytes sent equal a ring's; sums do not depend
// on timing. An operation is a list of phases (all-reduce has two), a phase a list of transfers and what to do
// when they are done; the operations of one group run their first phases together, then their second ones.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <atomic>
#include <map>


#include "probes/recorder/emit.h"
#include "runtime/comm/transfer.h"
#include "runtime/device/inside_launch.h"
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
  Channel channel;                                        // guards the rest, through sched's update
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

template <class T>
void combine(T* into, const T* from, int64_t n, RedOp op) {
  switch (op) {
    case RedOp::kMax:
      for (int64_t i = 0; i < n; ++i) into[i] = std::max(into[i], from[i]);
      break;
    case RedOp::kMin:
      for (int64_t i = 0; i < n; ++i) into[i] = std::min(into[i], from[i]);
      break;
    default:
      for (int64_t i = 0; i < n; ++i) into[i] += from[i];
  }
}

// out = the parts added in order; parts[own] is read from `own_data`.
template <class T>
void reduce_parts(const std::vector<const T*>& parts, int64_t n, RedOp op, T* out) {
  std::vector<T> sum(parts[0], parts[0] + n);
  for (size_t r = 1; r < parts.size(); ++r) combine(sum.data(), parts[r], n, op);
  if (op == RedOp::kAvg)
    for (T& v : sum) v /= T(parts.size());
  std::copy(sum.begin(), sum.end(), out);
}

struct Phase {
  std::vector<Transfer> transfers;
  std::function<void()> finish;  // on the worker, when the transfers are done; may be empty
};

// One call. Phases are made when it starts, because they need addresses.
struct Call {
  uint64_t op = 0;                          // 0 = recorder off
  std::function<std::vector<Phase>()> make;
  const char* why = "";
  uint64_t bytes_sent = 0;
};

class ThreadCommunicator : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<CommWorld> world, Device& device, std::vector<int> ranks, int rank, uint32_t id,
                     Axis axis, const char* name, std::shared_ptr<FifoSet> fifos)
      : world_(std::move(world)), device_(device), ranks_(std::move(ranks)), rank_(rank), id_(id), axis_(axis),
        fifos_(std::move(fifos)), sent_(std::make_shared<std::atomic<uint64_t>>(0)),
        send_seq_(ranks_.size(), 0), recv_seq_(ranks_.size(), 0) {
    record_creation(name);
  }

  int rank() const override { return rank_; }
  int size() const override { return int(ranks_.size()); }
  const std::vector<int>& ranks() const override { return ranks_; }
  uint32_t id() const override { return id_; }
  Axis axis() const override { return axis_; }

  void all_reduce(Stream& stream, const Tensor& in, const Tensor& out, RedOp op, const char* name) override {
    check_reducible(in);
    collective(stream, CollFunc::kAllReduce, in, out, in.count(), op, -1, name, [=, this](Call&) {
      auto phases = reduce_scatter_phases(in, out, chunk_of(in.count()), in.count(), op, /*chunk_in_place=*/true);
      phases.push_back(gather_phase(out, chunk_of(out.count()) * size_of(out.dtype()), out.bytes()));
      return phases;
    });
  }
  void all_gather(Stream& stream, const Tensor& in, const Tensor& out, const char* name) override {
    RS_CHECK(out.count() == in.count() * size(), "all_gather: out holds size() parts");
    collective(stream, CollFunc::kAllGather, in, out, in.count(), RedOp::kNone, -1, name, [=, this](Call&) {
      std::byte* own = bytes_of(out) + rank_ * in.bytes();
      if (own != bytes_of(in)) std::memmove(own, bytes_of(in), size_t(in.bytes()));
      return std::vector<Phase>{gather_phase(out, in.bytes(), out.bytes())};
    });
  }
  void reduce_scatter(Stream& stream, const Tensor& in, const Tensor& out, RedOp op, const char* name) override {
    check_reducible(in);
    RS_CHECK(in.count() == out.count() * size(), "reduce_scatter: in holds size() parts");
    collective(stream, CollFunc::kReduceScatter, in, out, out.count(), op, -1, name, [=, this](Call&) {
      return reduce_scatter_phases(in, out, out.count(), in.count(), op, /*chunk_in_place=*/false);
    });
  }
  void broadcast(Stream& stream, const Tensor& buffer, int root, const char* name) override {
    collective(stream, CollFunc::kBroadcast, buffer, buffer, buffer.count(), RedOp::kNone, root, name, [=, this](Call&) {
      Phase phase;
      for (int peer = 0; peer < size(); ++peer) {
        if (rank_ == root && peer != root) phase.transfers.push_back(sending(peer, bytes_of(buffer), buffer.bytes()));
        if (rank_ != root && peer == root) phase.transfers.push_back(receiving(peer, bytes_of(buffer), buffer.bytes()));
      }
      return std::vector<Phase>{std::move(phase)};
    });
  }
  void all_to_all(Stream& stream, const Tensor& in, const Tensor& out, const char* name) override {
    RS_CHECK(in.count() == out.count() && in.count() % size() == 0, "all_to_all: size() equal parts");
    collective(stream, CollFunc::kAllToAll, in, out, in.count() / size(), RedOp::kNone, -1, name, [=, this](Call&) {
      const int64_t part = in.bytes() / size();
      auto source = std::make_shared<std::vector<std::byte>>(bytes_of(in), bytes_of(in) + in.bytes());
      std::memcpy(bytes_of(out) + rank_ * part, source->data() + rank_ * part, size_t(part));
      Phase phase;
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank_) continue;
        phase.transfers.push_back(sending(peer, source->data() + peer * part, part));
        phase.transfers.push_back(receiving(peer, bytes_of(out) + peer * part, part));
      }
      phase.finish = [source] {};  // holds the copy until the phase is over
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
    fifos_->sched.update(fifos_->channel, [&] { fifos_->aborted = true; });
  }
  std::optional<Error> async_error() const override {
    bool aborted = false;
    fifos_->sched.update(fifos_->channel, [&] { aborted = fifos_->aborted; });
    if (!aborted) return std::nullopt;
    return Error{ErrorKind::kInternal, "communicator " + std::to_string(id_) + " was aborted"};
  }
  TrafficCounter traffic() const override { return {sent_->load(), operations_}; }

 private:
  static std::byte* bytes_of(const Tensor& t) { return t.data<std::byte>(); }
  static void check_reducible(const Tensor& t) {
    RS_CHECK(t.dtype() == DType::kF32 || t.dtype() == DType::kF64, "reductions are fp32 or fp64");
  }
  int64_t chunk_of(int64_t count) const { return (count + size() - 1) / size(); }

  Transfer transfer(bool p2p, int from, int to, std::byte* data, int64_t bytes) const {
    Transfer t;
    auto& fifos = p2p ? fifos_->p2p : fifos_->collective;
    t.fifo = &fifos[size_t(from) * size() + to];
    t.sending = from == rank_;
    t.data = data;
    t.bytes = bytes;
    return t;
  }
  Transfer sending(int peer, std::byte* data, int64_t bytes) const { return transfer(false, rank_, peer, data, bytes); }
  Transfer receiving(int peer, std::byte* data, int64_t bytes) const { return transfer(false, peer, rank_, data, bytes); }

  // Every rank owns chunk `rank`; chunks are ceil(count / size), the last ones may be short or empty.
  // chunk_in_place: the result goes to the chunk's place in out (all-reduce), else to the start of out.
  std::vector<Phase> reduce_scatter_phases(const Tensor& in, const Tensor& out, int64_t chunk, int64_t count, RedOp op,
                                           bool chunk_in_place) {
    const int64_t element = size_of(in.dtype());
    const auto length = [=](int r) { return std::clamp<int64_t>(count - r * chunk, 0, chunk); };
    const int64_t own = length(rank_);
    auto received = std::make_shared<std::vector<std::byte>>(size_t(own) * element * size());
    Phase phase;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      phase.transfers.push_back(sending(peer, bytes_of(in) + peer * chunk * element, length(peer) * element));
      phase.transfers.push_back(receiving(peer, received->data() + peer * own * element, own * element));
    }
    phase.finish = [=, this] {
      std::byte* to = bytes_of(out) + (chunk_in_place ? rank_ * chunk * element : 0);
      const auto reduce = [&](auto zero) {
        using T = decltype(zero);
        std::vector<const T*> parts;
        for (int r = 0; r < size(); ++r)
          parts.push_back(reinterpret_cast<const T*>(r == rank_ ? bytes_of(in) + rank_ * chunk * element
                                                                : received->data() + r * own * element));
        if (own > 0) reduce_parts(parts, own, op, reinterpret_cast<T*>(to));
      };
      if (in.dtype() == DType::kF32) reduce(float{});
      else reduce(double{});
    };
    std::vector<Phase> phases;
    phases.push_back(std::move(phase));
    return phases;
  }

  // Parts of `part` bytes; every rank's own part is in place already.
  Phase gather_phase(const Tensor& out, int64_t part, int64_t total) {
    const auto length = [=](int r) { return std::clamp<int64_t>(total - r * part, 0, part); };
    Phase phase;
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == rank_) continue;
      phase.transfers.push_back(sending(peer, bytes_of(out) + rank_ * part, length(rank_)));
      phase.transfers.push_back(receiving(peer, bytes_of(out) + peer * part, length(peer)));
    }
    return phase;
  }

  template <class Make>
  void collective(Stream& stream, CollFunc func, const Tensor& in, const Tensor& out, int64_t count, RedOp op,
                  int root, const char* name, const Make& make) {
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
      device_.record_access(call.op, in, AccessMode::kRead);
      device_.record_access(call.op, out, AccessMode::kWrite);
    }
    ++seq_;
    call.why = ringscope::name(func);
    {
      Buffer::DropAccounts mark;
      call.make = [copy = std::make_shared<Make>(make)] {
        Call unused;
        return (*copy)(unused);
      };
    }
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
    const auto make = [=, this] {
      Phase phase;
      phase.transfers.push_back(send ? transfer(true, rank_, peer, bytes_of(t), t.bytes())
                                     : transfer(true, peer, rank_, bytes_of(t), t.bytes()));
      return std::vector<Phase>{std::move(phase)};
    };
    {
      Buffer::DropAccounts mark;
      call.make = [copy = std::make_shared<decltype(make)>(make)] { return (*copy)(); };
    }
    end_call(stream, std::move(call));
  }

  Call begin_call(Stream& stream, OpKind kind, const char* name) {
    Call call;
    ++operations_;
    if (!rs_enabled()) return call;
    call.op = rs_next_op();
    if (depth_ > 0 && group_op_ == 0) group_op_ = call.op;
    OpEnqueueRecord record{};
    record.op = call.op;
    record.where = device_.where().pack();
    record.name = rs_intern(name);
    record.kind = uint16_t(kind);
    record.group = depth_ > 0 ? group_op_ : 0;
    emit(RecordKind::kOpEnqueue, record, stream.id());
    return call;
  }

  void end_call(Stream& stream, Call call) {
    if (calls_.empty()) stream_ = &stream;
    calls_.push_back(std::move(call));
    if (depth_ == 0) enqueue_calls();
  }

  void enqueue_calls() {
    StreamOp op;
    op.counts_as_kernel = false;
    op.ends_itself = true;
    for (const Call& call : calls_)
      if (call.op) op.ids.push_back(call.op);
    auto calls = std::make_shared<std::vector<Call>>(std::move(calls_));
    calls_.clear();
    group_op_ = 0;
    op.run = [fifos = fifos_, sent = sent_, calls, lane = stream_->id()] { return run_calls(*fifos, *sent, *calls, lane); };
    device_.enqueue(*stream_, std::move(op));
  }

  // On the worker: all calls of a group, phase by phase.
  static bool run_calls(FifoSet& fifos, std::atomic<uint64_t>& sent, std::vector<Call>& calls, uint16_t lane) {
    std::vector<std::vector<Phase>> phases;
    size_t rounds = 0;
    for (Call& call : calls) {
      phases.push_back(call.make());
      rounds = std::max(rounds, phases.back().size());
    }
    std::vector<size_t> open(calls.size());
    for (size_t round = 0; round < rounds; ++round) {
      std::vector<Transfer> transfers;
      for (size_t c = 0; c < calls.size(); ++c) {
        open[c] = 0;
        if (round >= phases[c].size()) continue;
        for (Transfer& t : phases[c][round].transfers) {
          t.op = c;
          ++open[c];
          transfers.push_back(t);
        }
      }
      order_same_peer(transfers);
      const auto finish_call = [&](size_t c) {
        if (phases[c][round].finish) phases[c][round].finish();
        if (round + 1 == phases[c].size() && calls[c].op) emit(RecordKind::kOpEnd, OpEndRecord{calls[c].op, calls[c].bytes_sent}, lane);
      };
      for (size_t c = 0; c < calls.size(); ++c)
        if (round < phases[c].size() && open[c] == 0) finish_call(c);
      const bool done = run_transfers(fifos, transfers, calls[0].why, [&](size_t i) {
        const Transfer& t = transfers[i];
        if (t.sending) {
          sent.fetch_add(uint64_t(t.bytes), std::memory_order_relaxed);
          calls[t.op].bytes_sent += uint64_t(t.bytes);
        }
        if (--open[t.op] == 0) finish_call(t.op);
      });
      if (!done) return false;
    }
    return true;
  }

  // Several sends, or several receives, with one peer go in call order.
  static void order_same_peer(std::vector<Transfer>& transfers) {
    std::map<std::pair<Fifo*, bool>, int> last;
    for (size_t i = 0; i < transfers.size(); ++i) {
      auto [entry, fresh] = last.try_emplace({transfers[i].fifo, transfers[i].sending}, int(i));
      if (fresh) continue;
      transfers[i].after = entry->second;
      entry->second = int(i);
    }
  }

  void record_creation(const char* name) {
    int creation = 0;
    world_->sched.update(world_->channel, [&] { creation = world_->created[device_.rank()]++; });
    if (!rs_enabled()) return;
    CommRecord record{};
    record.comm = id_;
    record.size = uint32_t(size());
    record.name = rs_intern(name);
    record.axis = uint16_t(axis_);
    record.group_rank = uint16_t(rank_);
    record.creation = uint64_t(creation);
    emit(RecordKind::kComm, record);
    for (int r = 0; r < size(); ++r) emit(RecordKind::kCommRank, CommRankRecord{id_, uint32_t(r), uint64_t(ranks_[r])});
  }

  std::shared_ptr<CommWorld> world_;
  Device& device_;
  std::vector<int> ranks_;
  int rank_;
  uint32_t id_;
  Axis axis_;
  std::shared_ptr<FifoSet> fifos_;
  std::shared_ptr<std::atomic<uint64_t>> sent_;
  uint64_t operations_ = 0, seq_ = 0;
  std::vector<uint64_t> send_seq_, recv_seq_;
  int splits_ = 0;

  int depth_ = 0;               // group nesting
  uint64_t group_op_ = 0;
  Stream* stream_ = nullptr;    // of the open group's first call
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
      if (world.splits[place].votes[r].first == color) members.push_back({{world.splits[place].votes[r].second, r}, ranks_[r]});
  });
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& member : members) ranks.push_back(member.second);
  return comm_init(world_, device_, ranks, axis, name);
}

}  // namespace

std::unique_ptr<Communicator> comm_init(const std::shared_ptr<CommWorld>& world, Device& device,
                                        const std::vector<int>& ranks, Axis axis, const char* name) {
  const auto own = std::find(ranks.begin(), ranks.end(), device.rank());
  RS_CHECK(own != ranks.end(), "a rank creates communicators that it belongs to");
  CommWorld::Forming* forming = nullptr;
  world->sched.update(world->channel, [&] {
    const int nth = world->calls[{ranks, device.rank()}]++;
    forming = &world->forming[{ranks, nth}];
    if (forming->joined++ == 0) {
      forming->id = world->next_id++;
      forming->fifos = std::make_shared<FifoSet>(world->sched, int(ranks.size()), world->options);
    }
  });
  if (!world->sched.block_until(world->channel, [&] { return forming->joined == int(ranks.size()); },
                                {"the other ranks to create a communicator"}))
    return nullptr;
  return std::make_unique<ThreadCommunicator>(world, device, ranks, int(own - ranks.begin()), forming->id, axis, name,
                                              forming->fifos);
}

}  // namespace ringscope
