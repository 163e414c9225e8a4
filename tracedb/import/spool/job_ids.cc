#include "tracedb/import/spool/job_ids.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "tracedb/store/rows.h"

namespace ringscope::spool {

std::string token_text(uint64_t token) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, token);
  return text;
}
uint64_t token_of(const Cell& text) { return std::strtoull(std::get<std::string>(text).c_str(), nullptr, 16); }

Status JobIds::begin(const std::vector<RingReader>& rings) {
  auto rows = store_.query("SELECT process, number FROM process");
  if (!rows) return tl::unexpected(rows.error());
  uint16_t next = 0;
  for (const auto& row : rows->rows) {
    const auto number = uint16_t(std::get<int64_t>(row[1]));
    processes_[token_of(row[0])].number = number;
    next = std::max<uint16_t>(next, uint16_t(number + 1));
  }
  for (const RingReader& ring : rings) {
    const auto [it, fresh] = processes_.try_emplace(ring.process_token());
    if (!fresh) continue;
    it->second.number = next++;
    const Cell values[] = {token_text(it->first), int64_t(it->second.number)};
    if (auto ok = store_.run("INSERT INTO process VALUES(?, ?)", values); !ok) return ok;
  }
  auto known = store_.query("SELECT process, local, comm FROM comm_of");
  if (!known) return tl::unexpected(known.error());
  for (const auto& row : known->rows)
    processes_[token_of(row[0])].comms[uint32_t(std::get<int64_t>(row[1]))] = uint32_t(std::get<int64_t>(row[2]));
  return {};
}

uint16_t JobIds::thread_of(const RingReader& ring) {
  auto& threads = threads_[ring.rank()];
  const std::pair<uint64_t, int> self{ring.process_token(), ring.tid()};
  const auto found = std::find(threads.begin(), threads.end(), self);
  if (found != threads.end()) return uint16_t(found - threads.begin());
  threads.push_back(self);
  return uint16_t(threads.size() - 1);
}

void JobIds::set_member(Communicator& comm, uint32_t group_rank, int rank) {
  if (group_rank >= kMostMembers) return;  // damage
  if (comm.row.ranks.size() <= group_rank) comm.row.ranks.resize(group_rank + 1, -1);
  comm.row.ranks[group_rank] = rank;
}

void JobIds::collect(const RingReader& ring, const CommRankRecord& r) {
  set_member(communicators_[ring.process_token()][r.comm], r.group_rank, int(r.rank));
}

void JobIds::collect(const RingReader& ring, const CommRecord& r, const std::string& name) {
  Communicator& comm = communicators_[ring.process_token()][r.comm];
  comm.row.axis = Axis(r.axis);
  comm.row.name = name;
  if (r.size <= kMostMembers && comm.row.ranks.size() < r.size) comm.row.ranks.resize(r.size, -1);
  if (ring.rank() >= 0) set_member(comm, r.group_rank, ring.rank());
  comm.creation = std::min(comm.creation, r.creation);
  comm.creation_of[r.group_rank] = r.creation;
}

Status JobIds::identify() {
  CommIdentity identity;
  if (auto ok = read_known(identity); !ok) return ok;
  for (auto& [token, locals] : communicators_) {
    Process& process = processes_.at(token);
    std::vector<std::pair<uint64_t, uint32_t>> order;  // of creation
    for (const auto& [local, comm] : locals) order.emplace_back(comm.creation, local);
    std::sort(order.begin(), order.end());
    for (const auto& [creation, local] : order) {
      Communicator& comm = locals[local];
      comm.row.comm = local;
      const auto [known, fresh] = process.comms.try_emplace(local);
      if (fresh) known->second = identity.identify(process.number, comm.row);
      comm.row.comm = known->second;
      if (auto ok = write(token, local, comm); !ok) return ok;
    }
  }
  return {};
}

// What earlier imports found.
Status JobIds::read_known(CommIdentity& identity) {
  auto comms = read_comms(store_);
  if (!comms) return tl::unexpected(comms.error());
  for (const CommRow& comm : *comms) identity.known(comm);
  for (const auto& [token, process] : processes_)
    for (const auto& [local, comm] : process.comms) identity.claimed(process.number, comm);
  return {};
}

Status JobIds::write(uint64_t token, uint32_t local, const Communicator& comm) {
  const int64_t id = comm.row.comm;
  const int64_t creation = comm.creation == UINT64_MAX ? 0 : int64_t(comm.creation);
  const Cell of[] = {token_text(token), int64_t(local), id};
  if (auto ok = store_.run("INSERT OR IGNORE INTO comm_of VALUES(?, ?, ?)", of); !ok) return ok;
  const Cell values[] = {id, creation, int64_t(comm.row.axis), comm.row.name, int64_t(comm.row.ranks.size())};
  if (auto ok = store_.run("INSERT INTO comm VALUES(?, ?, ?, ?, ?) ON CONFLICT(comm) DO UPDATE SET creation = "
                           "min(creation, excluded.creation)",
                           values);
      !ok)
    return ok;
  for (size_t at = 0; at < comm.row.ranks.size(); ++at) {
    if (comm.row.ranks[at] < 0) continue;
    const auto created = comm.creation_of.find(uint32_t(at));
    const Cell member[] = {id, int64_t(at), int64_t(comm.row.ranks[at]),
                           created == comm.creation_of.end() ? Cell() : Cell(int64_t(created->second))};
    if (auto ok = store_.run("INSERT INTO comm_rank VALUES(?, ?, ?, ?) ON CONFLICT(comm, group_rank) DO UPDATE SET "
                             "creation = coalesce(excluded.creation, creation)",
                             member);
        !ok)
      return ok;
  }
  return {};
}

}  // namespace ringscope::spool
