// Which communicators of several processes are one. Processes number their communicators for themselves; what they share
// is who the members are and in which order each created its own. The n-th communicator of a process with certain
// members (and name, where both have one) is the n-th such communicator of every other process.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope {

class CommIdentity {
 public:
  // The job's id of `comm` as process number `process` knows it; members that it does not know are -1. Call in the
  // process's order of creation. The first process keeps its own ids as far as they are free.
  uint32_t identify(int process, const CommRow& comm);
  // What an earlier import found; `comm.comm` is the job's id.
  void known(const CommRow& comm);
  void claimed(int process, uint32_t comm) { claims_[process].insert(comm); }

 private:
  struct Known {
    uint32_t comm = 0;
    std::string name;
    std::vector<int32_t> ranks;
  };
  static bool is(const Known& known, const CommRow& comm);
  void learn(size_t at, const CommRow& comm);  // members that were unknown

  std::vector<Known> known_;
  std::map<size_t, std::vector<size_t>> by_size_;                   // rows of known_ that lack members
  std::map<std::vector<int32_t>, std::vector<size_t>> by_members_;  // rows of known_ that are complete
  std::map<int, std::set<uint32_t>> claims_;
  std::set<uint32_t> used_;
};

}  // namespace ringscope
