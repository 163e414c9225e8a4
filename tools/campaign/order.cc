#include "tools/campaign/order.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

namespace ringscope::campaign {
namespace {

using Bits = std::vector<uint64_t>;

// Which nodes come before which, as one row of bits each. Nodes are the items, in order, and what joins groups.
class Before {
 public:
  explicit Before(const std::vector<Item>& items) : words_((items.size() + 63) / 64), before_(items.size()) {
    for (uint32_t i = 0; i < items.size(); ++i) add(items[i], i);
  }
  bool ordered(uint32_t first, uint32_t second) const { return before_[second][first / 64] >> (first % 64) & 1; }

 private:
  // What a stream holds: everything before its end.
  struct Queue {
    Bits done, group_entry;
    uint64_t group = 0;
  };

  void join(Bits& into, const Bits& from) const {
    into.resize(words_);
    for (size_t w = 0; w < from.size(); ++w) into[w] |= from[w];
  }
  void set(Bits& bits, uint32_t node) const {
    bits.resize(words_);
    bits[node / 64] |= uint64_t(1) << (node % 64);
  }

  void add(const Item& item, uint32_t node) {
    Bits& own = before_[node];
    own.resize(words_);
    Queue& queue = queues_[item.stream];
    switch (item.kind) {
      case Item::Kind::kOp:
        if (item.group && item.group == queue.group) {
          join(own, queue.group_entry);  // beside the others of its group
        } else {
          queue.group = item.group;
          queue.group_entry = queue.done;
          join(own, queue.done);
        }
        join(own, host_);
        join(queue.done, own);
        set(queue.done, node);
        break;
      case Item::Kind::kRecord: records_[item.key] = queue.done; break;
      case Item::Kind::kWait:
        queue.group = 0;
        if (const auto record = records_.find(item.key); record != records_.end()) join(queue.done, record->second);
        break;
      case Item::Kind::kHostSync: join(host_, queue.done); break;
      case Item::Kind::kHostRead:  // here and now: behind what the host waited for, in front of what it issues
        join(own, host_);
        set(host_, node);
        break;
    }
  }

  size_t words_;
  std::vector<Bits> before_;
  std::unordered_map<uint32_t, Queue> queues_;
  std::unordered_map<uint64_t, Bits> records_;
  Bits host_;
};

struct Touch {
  uint32_t item = 0;
  AccessRow access;
};

bool writes(const AccessRow& a) { return a.mode != AccessMode::kRead; }
bool overlap(const AccessRow& a, const AccessRow& b) { return a.begin < b.end && b.begin < a.end; }

bool is_transfer(const TraceView& view, const Item& item) {
  const OpKind kind = view.ops[item.row].kind;
  return kind == OpKind::kP2p || kind == OpKind::kCollective;
}

// `first` was issued first.
std::vector<const char*> ids_of(bool first_transfers, bool first_writes, bool second_transfers, bool second_writes) {
  if (first_writes && second_writes) return {"race.write_write"};
  if (!first_writes) {
    if (!first_transfers) return {"race.overwrite_before_read"};
    if (!second_transfers) return {"race.send_buffer_reused"};
    return {"race.send_buffer_reused", "race.overwrite_before_read"};
  }
  // What one transfer writes and another sends has not arrived, and is not ready.
  if (first_transfers && second_transfers) return {"race.read_before_arrival", "race.send_before_ready"};
  return {second_transfers ? "race.send_before_ready" : "race.read_before_arrival"};
}

std::map<uint64_t, std::vector<Touch>> touches_of(const Timeline& timeline) {
  std::map<uint64_t, std::vector<Touch>> by_buffer;
  for (uint32_t i = 0; i < timeline.items.size(); ++i)
    for (const AccessRow& access : timeline.accesses[i]) by_buffer[access.buffer].push_back({i, access});
  return by_buffer;
}

// The record of the same event name before the one of this key, of those that were made; 0 = none.
uint64_t record_before(const std::vector<Item>& items, const std::vector<char>& gone, std::string_view name,
                       uint64_t key) {
  uint64_t before = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    if (item.kind != Item::Kind::kRecord || item.name != name || (gone[i] && item.key != key)) continue;
    if (item.key == key) return before;
    before = item.key;
  }
  return 0;
}

// Where the operation in front of a record begins in the timeline: a group call is one operation, statistics are none.
std::optional<size_t> operation_in_front(const std::vector<Item>& items, size_t at) {
  std::optional<size_t> front;
  for (size_t i = at; i-- > 0;) {
    const Item& item = items[i];
    if (item.kind != Item::Kind::kOp || item.stream != items[at].stream || is_statistic(item.name)) continue;
    if (!front) {
      front = i;
      if (item.group == 0) break;
    } else if (item.group == items[*front].group) {
      front = i;
    } else {
      break;
    }
  }
  return front;
}

void rebind_waits(std::vector<Item>& items, uint64_t from, uint64_t to) {
  for (Item& item : items)
    if (item.kind == Item::Kind::kWait && item.key == from) item.key = to;
}

}  // namespace

Unordered unordered_pairs(const TraceView& view, const Timeline& timeline) {
  const Before before(timeline.items);
  Unordered out;
  for (const auto& [buffer, touches] : touches_of(timeline))
    for (size_t j = 0; j < touches.size(); ++j)
      for (size_t i = 0; i < j; ++i) {
        const Touch &first = touches[i], &second = touches[j];
        if (first.item == second.item || (!writes(first.access) && !writes(second.access))) continue;
        if (!overlap(first.access, second.access) || before.ordered(first.item, second.item)) continue;
        ++out.pairs;
        for (const char* id : ids_of(is_transfer(view, timeline.items[first.item]), writes(first.access),
                                     is_transfer(view, timeline.items[second.item]), writes(second.access)))
          out.ids.insert(id);
      }
  return out;
}

Timeline with_edges_changed(const Timeline& timeline, const Mutation& mutation, const std::vector<Site>& sites,
                            const std::vector<uint32_t>& changed) {
  Timeline out = timeline;
  std::vector<char> gone(out.items.size(), 0);
  std::vector<std::pair<size_t, size_t>> moves;  // from, to (in front of)
  for (const uint32_t site : changed) {
    const uint32_t at = timeline.item_of_site[site];
    if (at == kNoRow) continue;
    Item& item = out.items[at];
    const bool record = sites[site].kind == SiteKind::kRecord;
    switch (mutation.op) {
      case MutationOp::kNever:
      case MutationOp::kDrop: gone[at] = 1; break;
      case MutationOp::kStale:
        if (record) {
          rebind_waits(out.items, item.key, record_before(timeline.items, gone, item.name, item.key));
          gone[at] = 1;
        } else {
          item.key = record_before(timeline.items, gone, item.name, item.key);
        }
        break;
      case MutationOp::kStream:
        for (const auto& [stream, name] : out.streams)
          if (name == mutation.value) item.stream = stream;
        break;
      case MutationOp::kEarly:
        if (const auto front = operation_in_front(out.items, at)) moves.emplace_back(at, *front);
        break;
      default: break;
    }
  }
  // In ascending order of where they go: earlier moves do not shift later places wrongly, as items are copied over.
  Timeline moved;
  moved.streams = out.streams;
  std::multimap<size_t, size_t> arriving;
  for (const auto& [from, to] : moves) arriving.emplace(to, from), gone[from] = 1;
  for (size_t i = 0; i < out.items.size(); ++i) {
    for (auto [it, end] = arriving.equal_range(i); it != end; ++it) {
      moved.items.push_back(out.items[it->second]);
      moved.accesses.emplace_back();
    }
    if (gone[i]) continue;
    moved.items.push_back(out.items[i]);
    moved.accesses.push_back(out.accesses[i]);
  }
  return moved;
}

namespace {

// Bytes of a buffer that were written, as disjoint intervals.
class Written {
 public:
  void add(uint64_t begin, uint64_t end) {
    auto it = intervals_.upper_bound(begin);
    if (it != intervals_.begin() && std::prev(it)->second >= begin) --it;
    while (it != intervals_.end() && it->first <= end) {
      begin = std::min(begin, it->first);
      end = std::max(end, it->second);
      it = intervals_.erase(it);
    }
    intervals_[begin] = end;
  }
  bool covers(uint64_t begin, uint64_t end) const {
    auto it = intervals_.upper_bound(begin);
    return it != intervals_.begin() && std::prev(it)->second >= end;
  }

 private:
  std::map<uint64_t, uint64_t> intervals_;
};

}  // namespace

bool reads_unwritten(const Timeline& timeline, const std::vector<uint32_t>& left_out) {
  std::vector<char> gone(timeline.items.size(), 0);
  for (const uint32_t site : left_out)
    if (timeline.item_of_site[site] != kNoRow) gone[timeline.item_of_site[site]] = 1;
  std::map<uint64_t, Written> with, without;
  for (size_t i = 0; i < timeline.items.size(); ++i) {
    const Item& item = timeline.items[i];
    for (const AccessRow& a : timeline.accesses[i])
      if (a.mode != AccessMode::kWrite && !gone[i] && !is_statistic(item.name) &&
          with[a.buffer].covers(a.begin, a.end) && !without[a.buffer].covers(a.begin, a.end))
        return true;
    for (const AccessRow& a : timeline.accesses[i]) {
      if (!writes(a)) continue;
      with[a.buffer].add(a.begin, a.end);
      if (!gone[i]) without[a.buffer].add(a.begin, a.end);
    }
  }
  return false;
}

}  // namespace ringscope::campaign
