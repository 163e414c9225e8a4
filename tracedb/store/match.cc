// Both ends of a transfer, and the record that a wait bound. Two passes over a table each: one collects, one fills in.
#include <algorithm>
#include <map>
#include <unordered_map>
#include <vector>

#include "tracedb/model/enums.h"
#include "tracedb/store/derive.h"
#include "tracedb/store/statement.h"

namespace ringscope {
namespace {

// The transfers from one rank to another on one communicator: operation ids by sequence number, per direction.
struct Channel {
  struct Side {
    std::vector<std::pair<int64_t, int64_t>> ops;  // (sequence, op id); in order unless the file is damaged
    int64_t find(int64_t seq) const {
      const auto at = std::lower_bound(ops.begin(), ops.end(), std::pair<int64_t, int64_t>{seq, INT64_MIN});
      return at == ops.end() || at->first != seq ? 0 : at->second;
    }
  } side[2];
};

struct Transfer {
  int64_t id, op, comm, source, destination, seq;
  int direction;
};

class Transfers {
 public:
  explicit Transfers(Store& store) : store_(store) {}

  Status match() {
    if (auto ok = read_members(); !ok) return ok;
    if (auto ok = collect(); !ok) return ok;
    for (auto& [key, channel] : channels_)
      for (Channel::Side& side : channel.side) std::sort(side.ops.begin(), side.ops.end());
    return fill();
  }

 private:
  Status read_members() {
    Statement s(store_.handle(), "SELECT comm, group_rank, rank FROM comm_rank");
    while (s.step()) members_[{s.integer(0), s.integer(1)}] = s.integer(2);
    return s.status(store_.path());
  }

  // Of every transfer whose peer is known.
  template <class Visit>
  Status each(const char* condition, Visit visit) const {
    Statement s(store_.handle(), std::string("SELECT id, op_id, comm, rank, peer, seq, direction FROM p2p ") +
                                     condition + " ORDER BY id");
    while (s.step()) {
      const auto peer = members_.find({s.integer(2), s.integer(4)});
      if (peer == members_.end()) continue;
      const bool send = s.integer(6) == int64_t(Direction::kSend);
      visit(Transfer{s.integer(0), s.integer(1), s.integer(2), send ? s.integer(3) : peer->second,
                     send ? peer->second : s.integer(3), s.integer(5), send ? 0 : 1});
    }
    return s.status(store_.path());
  }
  static std::tuple<int64_t, int64_t, int64_t> key(const Transfer& t) { return {t.comm, t.source, t.destination}; }

  Status collect() {
    return each("", [&](const Transfer& t) { channels_[key(t)].side[t.direction].ops.emplace_back(t.seq, t.op); });
  }

  Status fill() {
    Statement update(store_.handle(), "UPDATE p2p SET match_op = ? WHERE id = ?");
    std::vector<std::pair<int64_t, int64_t>> found;  // (id, other op): no update while the table is read
    if (auto ok = each("WHERE match_op IS NULL",
                       [&](const Transfer& t) {
                         if (const int64_t other = channels_[key(t)].side[1 - t.direction].find(t.seq))
                           found.emplace_back(t.id, other);
                       });
        !ok)
      return ok;
    for (const auto& [id, other] : found) {
      update.bind(1, other);
      update.bind(2, id);
      update.step();
      if (!update.ok()) return update.status(store_.path());
      update.reset();
    }
    return {};
  }

  Store& store_;
  std::map<std::pair<int64_t, int64_t>, int64_t> members_;  // (comm, group rank) -> rank
  std::map<std::tuple<int64_t, int64_t, int64_t>, Channel> channels_;
};

}  // namespace

Status match_transfers(Store& store) { return Transfers(store).match(); }

Status bind_waits(Store& store) {
  std::unordered_map<int64_t, int64_t> recorded;  // key -> stream
  {
    Statement s(store.handle(),
                "SELECT key, stream FROM sync WHERE kind = " + std::to_string(int(SyncKind::kRecord)) + " ORDER BY id");
    while (s.step()) recorded[s.integer(0)] = s.integer(1);
    if (auto ok = s.status(store.path()); !ok) return ok;
  }
  std::vector<std::pair<int64_t, int64_t>> found;
  {
    Statement s(store.handle(), "SELECT id, key FROM sync WHERE kind = " + std::to_string(int(SyncKind::kWait)) +
                                    " AND key <> 0 AND from_stream IS NULL ORDER BY id");
    while (s.step())
      if (const auto record = recorded.find(s.integer(1)); record != recorded.end())
        found.emplace_back(s.integer(0), record->second);
    if (auto ok = s.status(store.path()); !ok) return ok;
  }
  Statement update(store.handle(), "UPDATE sync SET from_stream = ? WHERE id = ?");
  for (const auto& [id, stream] : found) {
    update.bind(1, stream);
    update.bind(2, id);
    update.step();
    if (!update.ok()) return update.status(store.path());
    update.reset();
  }
  return {};
}

}  // namespace ringscope
