// The named faults: each a real bug that a real team shipped, off unless asked for. Every one is a row of mutations
// (runtime/config/fault_mutations.h); nothing of the program that runs knows of them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tracedb/base/result.h"

namespace ringscope {

enum class FaultId {
  kNone,
  kRingEarlyExit,         // ring loop one step short on one rank
  kCrossGroupOrder,       // two diagonal ranks reduce over CP before TP
  kCrossGroupOrderOne,    // clean twin: one rank only; cannot deadlock
  kOpMismatch,            // one rank calls another collective
  kSkipAllReduce,         // one rank skips an all-reduce
  kRankExit,              // one rank exits
  kRingBufferReuse,       // WAR: no wait for the compute that reads the buffer before receiving into it
  kRingUseBeforeArrival,  // RAW: no wait for the receive before attention reads the block
  kNoGlobalMax,
  kNoGlobalSum,
  kSumForMax,
  kLastPartWins,
  kPositionRestart,
  kZigzagOnContiguous,
  kPerRankMean,
};

struct FaultRow {  // one line of `ringscope faults`
  FaultId id;
  std::string_view name;  // "ring-early-exit"
  std::string_view what;
  std::string_view finding;   // "" for a clean twin
  std::string_view implied;   // comma-separated findings that follow from it
  std::string_view outcome;   // hang | corrupt | slow | none
  std::string_view ranks;     // which ranks must be accused, in words
  std::string_view keys;      // comma-separated: rank,layer,step,ring_step
  std::string_view layout;    // flags it needs
  std::string_view imitates;  // address of the public report
};
std::span<const FaultRow> fault_rows();
const FaultRow* find_fault(std::string_view name);

// NAME[:key=value,...]. Unknown names and keys, and keys that the fault does not have: kUsage with the nearest
// known one. Not given: rank 1, layer 0, step 1 for a bug of one rank at one place; a bug that sits in the code
// of every rank and layer (softmax, merge, positions, mean) is everywhere unless narrowed; every ring step.
struct FaultPlan {
  FaultId id = FaultId::kNone;
  int rank = 1, layer = 0, step = 1, ring_step = -1;
  bool rank_given = false, layer_given = false;  // written in the text, not defaults
};
// A bug of one rank and one layer; the others sit in the code of every rank and layer unless the keys narrow them.
// One-time bugs (early exit, wrong or skipped operation, exit, exchanged order) happen at exactly `step`, bugs that stay
// in the program (races, softmax, merge, positions, mean) from `step` onwards.
bool sits_in_one_place(FaultId id);
Result<FaultPlan> parse_fault(std::string_view text);
// As parse_fault reads it, with the keys that narrow it written out. "" for no fault.
std::string to_text(const FaultPlan& plan);

}  // namespace ringscope
