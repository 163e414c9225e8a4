// What the processes of one spool folder count for themselves, as ids that are unique in the job. Ring ids, and with them
// operations, are unique in the folder already. Streams, buffers, events and keys get the process's number into their
// upper 16 bits (0 for the first: its ids stay as they are); communicators are identified by who their members are
// (CommIdentity). Numbers and identities are kept in tables process and comm_of, so that a later import finds the same.
//
// Life: begin, collect every definition of a communicator, identify; then translate. All inside the caller's transaction.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/comm_identity.h"
#include "tracedb/spool/spool.h"
#include "tracedb/store/store.h"

namespace ringscope::spool {

// Process tokens as tables hold them.
std::string token_text(uint64_t token);
uint64_t token_of(const Cell& text);

class JobIds {
 public:
  explicit JobIds(Store& store) : store_(store) {}

  // One process's numbers. Fetched once a ring: every row asks it.
  struct Process {
    uint16_t number = 0;
    std::unordered_map<uint32_t, uint32_t> comms;  // its own number -> the job's
    uint64_t id(uint64_t local) const { return local == 0 ? 0 : local ^ uint64_t(number) << 48; }  // 0 means none
    uint32_t stream(uint16_t lane) const { return uint32_t(number) << 16 | lane; }
    uint32_t comm(uint32_t local) const {
      const auto found = comms.find(local);
      return found == comms.end() ? local : found->second;
    }
  };

  // Known processes keep their numbers, new ones get the next.
  Status begin(const std::vector<RingReader>& rings);
  void collect(const RingReader& ring, const CommRecord& record, const std::string& name);
  void collect(const RingReader& ring, const CommRankRecord& record);
  Status identify();

  const Process& of(const RingReader& ring) const { return processes_.at(ring.process_token()); }
  // Number of the ring's thread within its rank. A thread that was bound to its rank again has several rings.
  uint16_t thread_of(const RingReader& ring);

 private:
  struct Communicator {  // as one process told it
    CommRow row;
    uint64_t creation = UINT64_MAX;              // the earliest of its ranks'
    std::map<uint32_t, uint64_t> creation_of{};  // by group rank
  };
  static void set_member(Communicator& comm, uint32_t group_rank, int rank);
  Status read_known(CommIdentity& identity);
  Status write(uint64_t token, uint32_t local, const Communicator& comm);

  Store& store_;
  std::map<uint64_t, Process> processes_;                         // by token
  std::map<int, std::vector<std::pair<uint64_t, int>>> threads_;  // of a rank: (process, tid) in order of appearance
  std::map<uint64_t, std::map<uint32_t, Communicator>> communicators_;  // by process and its own number
};

}  // namespace ringscope::spool
