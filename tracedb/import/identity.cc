#include "tracedb/import/identity.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>

#include "tracedb/spool/spool.h"
#include "tracedb/store/store.h"

namespace ringscope {
namespace {

std::string token_text(uint64_t token) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, token);
  return text;
}

void add_start(SourceIdentity& identity, int64_t start_ns) {
  if (identity.start_ns == 0 || start_ns < identity.start_ns) identity.start_ns = start_ns;
}

// Communicators as their members wrote them down, each its own part.
class Groups {
 public:
  void describe(int64_t comm, Axis axis, int64_t size) {
    groups_[comm].axis = axis;
    groups_[comm].size = size;
  }
  void add_member(int64_t comm, int64_t group_rank, int rank) { groups_[comm].members[group_rank] = rank; }

  void add_whole_ones_to(SourceIdentity& identity) const {
    for (const auto& [comm, group] : groups_) {
      if (group.size == 0 || int64_t(group.members.size()) != group.size) continue;
      std::vector<int> ranks;
      for (const auto& [group_rank, rank] : group.members) ranks.push_back(rank);
      identity.groups.emplace(group.axis, std::move(ranks));
    }
  }

 private:
  struct Group {
    Axis axis = Axis::kUnknown;
    int64_t size = 0;
    std::map<int64_t, int> members;  // by group rank
  };
  std::map<int64_t, Group> groups_;
};

void read_group(const Group& g, SourceIdentity& identity, Groups& groups) {
  switch (g.kind) {
    case RecordKind::kRank: {
      const auto r = g.as<RankRecord>();
      identity.world = r.world;
      identity.sizes = {r.tp_size, r.cp_size, r.dp_size, r.pp_size};
      break;
    }
    case RecordKind::kComm: {
      const auto r = g.as<CommRecord>();
      groups.describe(r.comm, Axis(r.axis), r.size);
      break;
    }
    case RecordKind::kCommRank: {
      const auto r = g.as<CommRankRecord>();
      groups.add_member(r.comm, r.group_rank, int(r.rank));
      break;
    }
    default: break;
  }
}

int64_t integer(const Cell& cell) {
  const auto* value = std::get_if<int64_t>(&cell);
  return value ? *value : 0;
}

}  // namespace

Result<SourceIdentity> spool_identity(const std::string& path) {
  auto contents = read_spool(path);
  if (!contents) return tl::unexpected(contents.error());
  SourceIdentity identity;
  Groups groups;
  std::set<int> named;
  for (const ProcessNames& process : contents->processes) identity.processes.insert(token_text(process.token));
  for (const RingReader& ring : contents->rings) {
    identity.processes.insert(token_text(ring.process_token()));
    if (ring.rank() >= 0) named.insert(ring.rank());
    identity.rows += int64_t(ring.loss().recovered);
    add_start(identity, ring.start_ns());
    ring.for_each(1, [&](const Group& g) {
      if (g.kind == RecordKind::kOpEnqueue && ring.rank() >= 0) identity.ranks.insert(ring.rank());
      else read_group(g, identity, groups);
    });
  }
  if (identity.ranks.empty()) identity.ranks = std::move(named);
  groups.add_whole_ones_to(identity);
  return identity;
}

Result<SourceIdentity> database_identity(const std::string& path) {
  auto store = Store::open(path);
  if (!store) return tl::unexpected(store.error());
  Status status;
  const auto each = [&](const char* sql, auto visit) {
    if (!status) return;
    auto rows = store->query(sql);
    if (!rows) status = tl::unexpected(rows.error());
    else std::for_each(rows->rows.begin(), rows->rows.end(), visit);
  };
  using Row = std::vector<Cell>;
  SourceIdentity identity;
  Groups groups;
  each("SELECT process, min(start_ns) FROM thread GROUP BY process", [&](const Row& row) {
    identity.processes.insert(to_text(row[0]));
    add_start(identity, integer(row[1]));
  });
  const auto add_rank = [&](const Row& row) { identity.ranks.insert(int(integer(row[0]))); };
  each("SELECT DISTINCT rank FROM op", add_rank);
  if (identity.ranks.empty()) each("SELECT rank FROM thread WHERE rank >= 0 UNION SELECT rank FROM rank", add_rank);
  each("SELECT world, tp_size, cp_size, dp_size, pp_size FROM rank LIMIT 1", [&](const Row& row) {
    identity.world = integer(row[0]);
    identity.sizes = {integer(row[1]), integer(row[2]), integer(row[3]), integer(row[4])};
  });
  each("SELECT comm, axis, size FROM comm",
       [&](const Row& row) { groups.describe(integer(row[0]), Axis(integer(row[1])), integer(row[2])); });
  each("SELECT comm, group_rank, rank FROM comm_rank",
       [&](const Row& row) { groups.add_member(integer(row[0]), integer(row[1]), int(integer(row[2]))); });
  each("SELECT coalesce(sum(rows), 0) FROM source", [&](const Row& row) { identity.rows = integer(row[0]); });
  if (!status) return tl::unexpected(status.error());
  groups.add_whole_ones_to(identity);
  return identity;
}

}  // namespace ringscope
