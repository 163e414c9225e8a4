// Layout: who owns what. Pure functions of the configuration, without I/O. The one source of truth for rank
// coordinates, process groups, sequence shards, positions, documents, padding, masks and K/V ownership.
//
// Mesh: axes tp, cp, dp, pp. `order` lists them from the smallest stride: "tp-cp-dp-pp" (default) gives
// rank = tp + TP*(cp + CP*(dp + DP*pp)); the preset "tp-pp-cp-dp" is the source article's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/enums.h"

namespace ringscope {

struct Coord {
  int tp = 0, cp = 0, dp = 0, pp = 0;
  bool operator==(const Coord&) const = default;
};

class Mesh {
 public:
  static Result<Mesh> make(int tp, int cp, int dp, int pp, std::string_view order = "tp-cp-dp-pp");
  int size(Axis axis) const;
  int world() const;
  const std::string& order() const { return order_; }
  Coord coord(int rank) const;
  int rank(const Coord&) const;

  // Global ranks of the group of `rank` along one axis, in group order. kWorld, kTpCp, kDpCp as well.
  std::vector<int> group(Axis axis, int rank) const;
  // Every group of the axis, in the one order in which all ranks create them.
  std::vector<std::vector<int>> groups(Axis axis) const;
  // The axes in the agreed order of creation and of end-of-step communication: tp, cp, dp, pp (then combined).
  static const std::vector<Axis>& creation_order();

  std::string describe() const;  // the map for people: a line per rank, then the groups of every axis

 private:
  std::array<int, 4> size_{1, 1, 1, 1};  // by Axis kTp..kPp
  std::array<int, 4> stride_{1, 1, 1, 1};
  std::string order_;
};

enum class CpLayout : uint8_t { kContiguous, kZigzag };
const char* name(CpLayout);

// A run of consecutive rows of the global (padded) sequence.
struct Run {
  int32_t start = 0, count = 0;
  bool operator==(const Run&) const = default;
};

// How one sequence of `length` tokens is cut: padded to a multiple of cp (contiguous) or 2*cp (zigzag) times
// `multiple` (TP with sequence parallelism), then dealt to the CP ranks. Rank r of zigzag owns chunks r and
// 2*CP-1-r (head and tail), in that order.
class SequenceSplit {
 public:
  static Result<SequenceSplit> make(int64_t length, int cp, CpLayout layout, int multiple = 1);
  int64_t length() const { return length_; }
  int64_t padded() const { return padded_; }
  int64_t shard() const { return padded_ / cp_; }  // tokens of every rank, padding included
  int cp() const { return cp_; }
  CpLayout layout() const { return layout_; }
  std::vector<Run> runs(int cp_rank) const;      // ascending, in storage order
  std::vector<int32_t> rows(int cp_rank) const;  // global row of each local row
  int owner(int64_t row) const;                  // CP rank that holds a global row

 private:
  int64_t length_ = 0, padded_ = 0;
  int cp_ = 1;
  CpLayout layout_ = CpLayout::kContiguous;
};

// Per token of a whole sequence: what positions, masks and labels need. Padding rows have document -1.
struct SequenceInfo {
  std::vector<int32_t> position;  // value for RoPE / learned embedding; restarts in every document
  std::vector<int32_t> document;  // id, -1 = padding
};
// Plain causal sequence of split.length() tokens, padded.
SequenceInfo plain_sequence(const SequenceSplit&);
// With explicit ids of `length` tokens each (eval); empty vectors mean plain.
Result<SequenceInfo> explicit_sequence(const SequenceSplit&, const std::vector<int64_t>& position,
                                       const std::vector<int64_t>& document);

// A stretch of tokens whose rows and positions both advance by 1 inside one document.
struct PositionRun {
  int32_t row = 0, count = 0, position = 0, document = 0;
  bool operator==(const PositionRun&) const = default;
};
std::vector<PositionRun> position_runs(const std::vector<int32_t>& rows, const std::vector<int32_t>& position,
                                       const std::vector<int32_t>& document);

// Query row i may see key row j: same document, j <= i, neither is padding. (The mask of kernels and oracle.)
inline bool may_see(int32_t row_i, int32_t doc_i, int32_t row_j, int32_t doc_j) {
  return doc_i >= 0 && doc_i == doc_j && row_j <= row_i;
}

// Validators: used by tests and by the loader. kInternal errors that name the first bad row.
Status check_cover(const SequenceSplit&);  // every row owned exactly once

// Vocabulary padded to a multiple of TP; each TP rank owns a contiguous part.
int64_t padded_vocab(int64_t vocab, int tp);

}  // namespace ringscope
