// TraceIndex: what several rules need from a TraceView, computed once. Read-only afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tracedb/model/finding.h"
#include "tracedb/model/trace_view.h"

namespace ringscope {

// The calls of one member on one communicator, in its own sequence.
struct MemberCalls {
  int rank = 0;       // global
  bool seen = false;  // the trace has operations of this rank
  bool lossless = false;
  std::vector<uint32_t> coll;  // row in colls by seq; kNoRow where none was recorded
  uint32_t at(size_t seq) const { return seq < coll.size() ? coll[seq] : kNoRow; }
};

struct CommCalls {
  const CommRow* comm = nullptr;
  std::vector<MemberCalls> members;  // by group rank
};

class TraceIndex {
 public:
  explicit TraceIndex(const TraceView& view);
  TraceIndex(const TraceIndex&) = delete;

  const TraceView& view;
  bool stalled = false;          // the run declared a stall
  std::vector<CommCalls> comms;  // as view.comms

  const CommRow* comm(uint32_t id) const;
  const CommCalls* calls(uint32_t id) const;
  // Rows [first, last) of ops of a rank.
  std::pair<uint32_t, uint32_t> ops_of(int rank) const;
  std::string stream_name(uint32_t stream) const;
  const BufferRow* buffer(uint64_t id) const;
  const RankRow* rank(int rank) const;
  const RankExitRow* exit_of(int rank) const;
  // The CP group of a rank: its communicator's members, or those with equal other coordinates. Empty = not known.
  std::vector<int> cp_members(int rank) const;
  std::optional<GroupRef> cp_group(int rank) const;
  // When the rank first enqueued something in this step; 0 = unknown.
  int64_t step_ns(int rank, int step) const;
  // Ranks that a stall left blocked inside an operation, sorted.
  const std::vector<int>& blocked() const { return blocked_; }

 private:
  std::unordered_map<uint32_t, size_t> comm_row_;
  std::unordered_map<int, std::pair<uint32_t, uint32_t>> ops_;
  std::unordered_map<uint32_t, size_t> stream_;
  std::unordered_map<uint64_t, size_t> buffer_;
  std::map<std::pair<int, int>, int64_t> step_ns_;
  std::vector<int> blocked_;
};

inline bool is_comm(const OpRow& op) { return op.kind == OpKind::kCollective || op.kind == OpKind::kP2p; }

// A finding with severity and fix from the catalogue. Aborts on an id that is not in it.
Finding make_finding(std::string_view id);
GroupRef group_ref(const CommRow& comm);
// "cp" from the axis, or the name up to the bracket.
std::string group_name(const CommRow& comm);
std::string group_text(const GroupRef& group);            // "cp[0,2]"
std::string place_text(const Where& where);               // "step 1, layer 0, forward, ring step 2"; "" if unknown
std::string ranks_text(const std::vector<int>& ranks);    // "rank 1", "ranks 0-2"
std::string op_name(const TraceIndex&, uint32_t op_row);  // "all_reduce", "recv", or the kernel's name
std::string number_text(double value);                    // shortest useful digits
void sort_unique(std::vector<int>& ranks);
// Order in which one rank passes the places of a step: step, pass, microbatch inside, layer (backward falls).
bool earlier(const Where& a, const Where& b);

}  // namespace ringscope
