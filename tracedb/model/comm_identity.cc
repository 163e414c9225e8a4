#include "tracedb/model/comm_identity.h"

#include <algorithm>

namespace ringscope {
namespace {

bool complete(const std::vector<int32_t>& ranks) { return std::find(ranks.begin(), ranks.end(), -1) == ranks.end(); }

}  // namespace

bool CommIdentity::is(const Known& known, const CommRow& comm) {
  if (!known.name.empty() && !comm.name.empty() && known.name != comm.name) return false;
  if (known.ranks.size() != comm.ranks.size()) return false;
  for (size_t i = 0; i < comm.ranks.size(); ++i)
    if (known.ranks[i] >= 0 && comm.ranks[i] >= 0 && known.ranks[i] != comm.ranks[i]) return false;
  return true;
}

void CommIdentity::known(const CommRow& comm) {
  const size_t at = known_.size();
  known_.push_back({comm.comm, comm.name, comm.ranks});
  used_.insert(comm.comm);
  if (complete(comm.ranks)) by_members_[comm.ranks].push_back(at);
  else by_size_[comm.ranks.size()].push_back(at);
}

void CommIdentity::learn(size_t at, const CommRow& comm) {
  Known& known = known_[at];
  if (complete(known.ranks)) return;
  for (size_t i = 0; i < comm.ranks.size(); ++i) known.ranks[i] = std::max(known.ranks[i], comm.ranks[i]);
  if (!complete(known.ranks)) return;
  std::erase(by_size_[known.ranks.size()], at);
  by_members_[known.ranks].push_back(at);
}

uint32_t CommIdentity::identify(int process, const CommRow& comm) {
  std::set<uint32_t>& claims = claims_[process];
  const auto fits = [&](size_t at) { return is(known_[at], comm) && !claims.contains(known_[at].comm); };
  const auto first_of = [&](const std::vector<size_t>& candidates) {
    const auto found = std::find_if(candidates.begin(), candidates.end(), fits);
    return found == candidates.end() ? known_.size() : *found;
  };
  size_t at = known_.size();
  if (complete(comm.ranks)) {
    at = first_of(by_members_[comm.ranks]);
    if (at == known_.size()) at = first_of(by_size_[comm.ranks.size()]);
  } else {  // any of its size may be it
    for (at = 0; at < known_.size() && !fits(at);) ++at;
  }
  if (at == known_.size()) {
    CommRow fresh = comm;
    if (used_.contains(fresh.comm)) fresh.comm = *used_.rbegin() + 1;
    known(fresh);
  } else {
    learn(at, comm);
  }
  claims.insert(known_[at].comm);
  return known_[at].comm;
}

}  // namespace ringscope
