// Mutation: one change at a seam, as data. The program that is changed knows nothing of it: runtime/adversary stands
// between a rank's host program and its device and communicators.
//
//   OP@NAME[:key=value,...]      "drop@grad.weight_cp:rank=1,step=2,layer=0"
//
// OP                                                   acts on
//   drop                                               calls, kernels, records, waits: never issued
//   twice                                              calls, kernels
//   swap                                               calls: with the rank's next one on that stream; creations: likewise
//   split                                              calls of a group: each goes alone
//   func=all_reduce|all_gather|reduce_scatter|broadcast|all_to_all|send|recv     calls
//   count=N|half  dtype=fp32|fp64|int32|int64  redop=sum|max|min|avg  root=R  peer=R  comm=tp|cp|dp     calls
//   early                                              records: before the operation in front of them
//   stale                                              records: the event keeps its name's record before; waits: for that
//   never                                              records: the event stays without a record
//   stream=compute|cp|dp                               waits: that stream waits instead
//   scale=X shift=X zero nan previous input            kernels: what became of their output (zero: its first half of rows)
//   offset=K next_rank restart halves layout=contiguous|zigzag duplicate         uploads
//   exit kill hang pause=SECONDS                       any: the host program, in front of the site
// NAME is a site's name, or a pattern with *. Keys narrow: rank=1|0-3|1+3, step=2|2-|1-3, microbatch, layer, ring_step,
// pass=forward|backward|optimizer, kind=call|kernel|record|wait|upload|create, n (the n-th match of each rank, from 0).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/fault/site.h"
#include "tracedb/base/result.h"

namespace ringscope {

enum class MutationOp : uint8_t {
  kDrop,
  kTwice,
  kSwap,
  kSplit,
  kFunc,
  kCount,
  kDtype,
  kRedop,
  kRoot,
  kPeer,
  kComm,
  kEarly,
  kStale,
  kNever,
  kStream,
  kScale,
  kShift,
  kZero,
  kNan,
  kPrevious,
  kInput,
  kOffset,
  kNextRank,
  kRestart,
  kHalves,
  kLayout,
  kDuplicate,
  kExit,
  kKill,
  kHang,
  kPause
};
struct MutationOpRow {
  MutationOp op;
  std::string_view name;
  std::string_view value;  // what follows "=", in words; "" = nothing
  std::vector<SiteKind> acts_on;
};
std::span<const MutationOpRow> mutation_ops();

struct SiteFilter {
  std::string name = "*";
  std::vector<std::pair<int, int>> ranks;  // inclusive; empty = every rank
  int step_from = -1, step_to = -1;        // inclusive; -1 = open
  int microbatch = -1, layer = -1, ring_step = -1;
  std::optional<Pass> pass;
  std::optional<SiteKind> kind;
  int n = -1;  // the n-th of a rank's matches; -1 = all

  // All but n.
  bool matches(const Site& site) const;
};

struct Mutation {
  MutationOp op = MutationOp::kDrop;
  std::string value;  // as written; "" = none
  SiteFilter site;
};

// kUsage: unknown operation or key (with the nearest known one), a value that cannot be read.
Result<Mutation> parse_mutation(std::string_view text);
std::string to_text(const Mutation& mutation);

// The sites it acts on, by rank: indices in ascending order. Kinds that the operation does not act on are left out.
std::vector<std::vector<uint32_t>> sites_of(const Mutation& mutation, const SiteTable& sites);

}  // namespace ringscope
