// Rows of attention_row put together: one query row of one head of one attention call, block by block, as kernels put it
// out and as fp64 arithmetic makes it; and how far apart the two can lie for no other reason than rounding.
#pragma once

#include <map>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

struct AttentionCallRow {
  std::map<int, size_t> recomputed, put_out;  // rows in attention_rows, by the owner of the keys
  size_t result = SIZE_MAX;                   // the whole row, as put out
  int parts = 0;                              // blocks that it is made of
  // Every block was computed again.
  bool complete() const { return parts > 0 && recomputed.size() == size_t(parts); }
  size_t any() const {
    return result != SIZE_MAX ? result : (recomputed.empty() ? put_out : recomputed).begin()->second;
  }
  SoftmaxMethod method(const std::vector<AttentionRow>& rows) const { return rows[any()].method; }
};

struct AttentionCallRows {
  std::vector<AttentionCallRow> rows;  // by place
  int64_t contradictory = 0;           // rows that cannot be: left out, with what belongs to them
};
AttentionCallRows collect_attention_rows(const TraceIndex& index);

// Ranks whose share of a row of three steps in this place (ring step left out) was a number, though the whole row is none:
// a NaN in it is not theirs.
std::vector<int> ranks_with_numbers(const TraceIndex& index, const Where& place);

// What a value may differ by; infinite where the numbers are so large that nothing can be told.
struct RowBounds {
  double m = 0, lse = 0, out = 0;
};
// Of one recomputed block against a kernel in its arithmetic. Rounding of a score: sums of D products, each at most
// u |q_x k_x| off, in any order; 16 standard deviations of a random walk. A log-sum-exp and an output row inherit twice
// that (once in the weights, once in their sum), and add the roundings of exp, of the sum over the keys and of the
// result.
RowBounds row_bounds(const AttentionRow& recomputed);

// The whole row that recomputed blocks make, and its bounds against what merges or reductions in this arithmetic give.
struct WholeRow {
  double lse = 0, out = 0;
  RowBounds bounds;
  bool known = true;  // every value is a number (or -inf), and the bounds are finite
};
WholeRow whole_row(const std::vector<AttentionRow>& rows, const AttentionCallRow& row);

}  // namespace ringscope
