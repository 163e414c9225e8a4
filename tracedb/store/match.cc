// Both ends of a transfer, and the record that a wait bound: one pass over a table collects, one over its gaps fills in.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "tracedb/model/enums.h"
#include "tracedb/store/derive.h"
#include "tracedb/store/statement.h"

namespace ringscope {
namespace {

constexpr int kSend = int(Direction::kSend);

// The transfers from one rank to another on one communicator: operation ids by sequence number, per direction.
struct Channel {
  using Ops = std::vector<std::pair<int64_t, int64_t>>;  // (sequence, op id)
  Ops side[2];
  int64_t find(int direction, int64_t seq) const {
    const Ops& ops = side[direction];
    const auto at = std::lower_bound(ops.begin(), ops.end(), std::pair<int64_t, int64_t>{seq, INT64_MIN});
    return at == ops.end() || at->first != seq ? 0 : at->second;
  }
};

// A transfer whose other side is not known yet.
struct Open {
  int64_t id, seq;
  const Channel* channel;
  int direction;
};

// Sets one column of the rows given as (value, id).
Status fill(Store& store, const std::string& sql, const std::vector<std::pair<int64_t, int64_t>>& values) {
  Statement update(store.handle(), sql);
  for (const auto& [value, id] : values) {
    update.bind(1, value);
    update.bind(2, id);
    update.step();
    if (!update.ok()) break;
    update.reset();
  }
  return update.status(store.path());
}

class Transfers {
 public:
  explicit Transfers(Store& store) : store_(store) {}

  Status match() {
    if (auto ok = read_members(); !ok) return ok;
    if (auto ok = collect(); !ok) return ok;
    for (auto& [key, channel] : channels_)
      for (Channel::Ops& ops : channel.side)
        if (!std::is_sorted(ops.begin(), ops.end())) std::sort(ops.begin(), ops.end());
    std::vector<std::pair<int64_t, int64_t>> found;
    for (const Open& open : open_)
      if (const int64_t other = open.channel->find(1 - open.direction, open.seq)) found.emplace_back(other, open.id);
    return fill(store_, "UPDATE p2p SET match_op = ? WHERE id = ?", found);
  }

 private:
  Status read_members() {
    Statement s(store_.handle(), "SELECT comm, group_rank, rank FROM comm_rank");
    while (s.step()) members_[{s.integer(0), s.integer(1)}] = s.integer(2);
    return s.status(store_.path());
  }

  Status collect() {
    Statement s(store_.handle(),
                "SELECT id, op_id, comm, rank, peer, seq, direction, match_op IS NULL FROM p2p ORDER BY id");
    while (s.step()) {
      const auto peer = members_.find({s.integer(2), s.integer(4)});
      if (peer == members_.end()) continue;
      const int direction = s.integer(6) == kSend ? 0 : 1;
      const int64_t self = s.integer(3), other = peer->second, seq = s.integer(5);
      Channel& channel = channels_[{s.integer(2), direction == 0 ? self : other, direction == 0 ? other : self}];
      channel.side[direction].emplace_back(seq, s.integer(1));
      if (s.integer(7)) open_.push_back({s.integer(0), seq, &channel, direction});
    }
    return s.status(store_.path());
  }

  Store& store_;
  std::map<std::pair<int64_t, int64_t>, int64_t> members_;  // (comm, group rank) -> rank
  std::map<std::tuple<int64_t, int64_t, int64_t>, Channel> channels_;
  std::vector<Open> open_;
};

}  // namespace

Status match_transfers(Store& store) { return Transfers(store).match(); }

Status bind_waits(Store& store) {
  std::unordered_map<int64_t, int64_t> recorded;  // key -> stream
  std::vector<std::pair<int64_t, int64_t>> open;  // (key, id)
  {
    Statement s(store.handle(),
                "SELECT id, kind, key, stream, from_stream IS NULL FROM sync WHERE key <> 0 ORDER BY id");
    while (s.step()) {
      if (s.integer(1) == int64_t(SyncKind::kRecord)) recorded[s.integer(2)] = s.integer(3);
      else if (s.integer(1) == int64_t(SyncKind::kWait) && s.integer(4)) open.emplace_back(s.integer(2), s.integer(0));
    }
    if (auto ok = s.status(store.path()); !ok) return ok;
  }
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const auto& [key, id] : open)
    if (const auto record = recorded.find(key); record != recorded.end()) found.emplace_back(record->second, id);
  return fill(store, "UPDATE sync SET from_stream = ? WHERE id = ?", found);
}

}  // namespace ringscope
