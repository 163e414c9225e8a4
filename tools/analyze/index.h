// TraceIndex: what several rules need from a TraceView, computed once. Read-only afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/analyze/dealt_rows.h"
#include "tracedb/model/finding.h"
#include "tracedb/model/trace_view.h"

namespace ringscope {

// Rows by their number in a sequence. The first ones may be missing: a buffer that wraps forgets its beginning.
struct Numbered {
  uint64_t first = 0;          // number of rows[0]
  std::vector<uint32_t> rows;  // kNoRow where none was recorded
  bool empty() const { return rows.empty(); }
  uint64_t end() const { return first + rows.size(); }
  uint32_t at(uint64_t n) const { return n >= first && n < end() ? rows[size_t(n - first)] : kNoRow; }
  void put(uint64_t n, uint32_t row);  // in any order; a number far from the others is damage and is dropped
};

// The calls of one member on one communicator, in its own sequence: rows in colls by seq.
struct MemberCalls {
  int rank = -1;      // global; -1 = unknown
  bool seen = false;  // the trace has operations of this rank
  Numbered calls;
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
  const DealtRows dealt;
  bool stalled = false;          // somebody declared a stall: the run itself, or its launcher
  bool ended = false;            // the run says how it ended, in whatever way
  std::vector<CommCalls> comms;  // as view.comms

  const CommRow* comm(uint32_t id) const;
  const CommCalls* calls(uint32_t id) const;
  int group_rank(uint32_t comm, int rank) const;  // -1 = not a member
  // Rows [first, last) of ops of a rank.
  std::pair<uint32_t, uint32_t> ops_of(int rank) const;
  // Rows [first, last) of syncs of a rank.
  std::pair<size_t, size_t> syncs_of(int rank) const;
  bool seen(int rank) const { return ops_.contains(rank); }
  const std::vector<int>& ranks() const { return ranks_; }  // that have operations, sorted
  std::string stream_name(uint32_t stream) const;
  const BufferRow* buffer(uint64_t id) const;
  const RankRow* rank(int rank) const;
  const RankExitRow* exit_of(int rank) const;
  // Nothing of this rank is missing between two times; 0 = open on that side. A communication whose call is not there
  // is a loss at its time. Cheap: losses are sorted by rank.
  bool lossless(int rank, int64_t from_ns = 0, int64_t to_ns = 0) const;
  // The CP group of a rank: its communicator's members, or those with equal other coordinates. Empty = not known.
  std::vector<int> cp_members(int rank) const;
  std::optional<GroupRef> cp_group(int rank) const;
  // When the rank first enqueued something in this step; 0 = unknown.
  int64_t step_ns(int rank, int step) const;
  // Ranks that are inside an operation which did not complete, or that a stall left blocked, sorted.
  const std::vector<int>& blocked() const { return blocked_; }

 private:
  void index_ops();
  void index_comms();
  void index_calls();

  std::unordered_map<uint32_t, size_t> comm_row_;
  std::unordered_map<uint64_t, int> group_rank_;  // by (row in comms, rank)
  std::unordered_map<int, std::pair<uint32_t, uint32_t>> ops_;
  std::unordered_map<int, std::pair<size_t, size_t>> syncs_;
  std::unordered_map<uint32_t, size_t> stream_;
  std::unordered_map<uint64_t, size_t> buffer_;
  std::unordered_map<int, size_t> rank_row_, exit_row_;
  std::unordered_map<int, size_t> cp_comm_;                  // rank -> row in comms
  std::unordered_map<int, std::vector<size_t>> losses_;      // rank -> rows in lost; -1 = any rank
  std::unordered_map<int, std::vector<int64_t>> half_lost_;  // rank -> times of communications without their call
  std::map<std::pair<int, int>, int64_t> step_ns_;
  std::vector<int> blocked_, ranks_;
};

// A communication whose call the trace holds too: where that record is lost, nothing is concluded from the rest.
inline bool is_call(const OpRow& op) { return op.coll != kNoRow || op.p2p != kNoRow; }
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
