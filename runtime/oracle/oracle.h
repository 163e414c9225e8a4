// Oracle: attention, its merge and the loss in plain float64, written to be read and believed, not to be
// fast. The yardstick of tests and of numeric checks; shares no code with the kernels. Quadratic time, no
// blocking.
//
// Layout, as in the kernels: batch outermost; q, o, d_o, dq [batch*tq, hq, d]; k, v, dk, dv [batch*tk, hk,
// d]; rows and documents per token [batch*tq], [batch*tk]; lse, m [batch*tq, hq]. Query head h reads K/V head
// h / (hq/hk). A sample attends to itself only; the mask is layout's may_see.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace ringscope::oracle {

struct Attention {
  int64_t batch = 1, tq = 0, tk = 0;  // tokens of one sample
  int64_t hq = 1, hk = 1, d = 1;
  double scale = 1;
  std::vector<double> q, k, v;
  std::vector<int32_t> q_row, q_document, k_row, k_document;
  // Dropout on the weights: what the weight of a pair is multiplied by (0 or 1/(1-p)). Empty: no dropout.
  std::function<double(int64_t sample, int64_t head, int32_t q_row, int32_t k_row)> keep;
};

// o and lse (natural logarithm of the sum of exp of the visible scaled scores, without dropout), m their
// maximum among those that are numbers. A row that sees nothing: o = 0, lse = m = -inf; one whose scores are all -inf:
// o = NaN. Otherwise NaN and infinity go where the formulas take them; a masked pair is in none of them.
struct AttentionResult {
  std::vector<double> o, lse, m;
};
AttentionResult attention(const Attention&);

// Gradients of sum(d_o * o). `lse` and `delta` (sum over d of d_o * o, per row and head) may be those of a
// longer sequence of which k and v are a part; with those of attention() itself the gradient is the whole
// one.
struct AttentionGradient {
  std::vector<double> dq, dk, dv;
};
AttentionGradient attention_backward(const Attention&, const std::vector<double>& d_o, const std::vector<double>& lse,
                                     const std::vector<double>& delta);
std::vector<double> attention_delta(const std::vector<double>& o, const std::vector<double>& d_o, int64_t d);

// Partial results over disjoint keys become the result over all of them. Identity: o = 0, lse = -inf; a part with
// lse = -inf counts (o is added) only where all parts have it.
AttentionResult merge(const std::vector<AttentionResult>& parts, int64_t d);

// Cross entropy: sum over positions whose label is >= 0, their number, and d(sum/count)/dlogits.
struct Loss {
  double sum = 0;
  int64_t count = 0;
  std::vector<double> d_logits;
  double mean() const { return count > 0 ? sum / double(count) : 0; }
};
Loss cross_entropy(const std::vector<double>& logits, int64_t vocabulary, const std::vector<int32_t>& labels);

// Shards of a sequence back in the order of the global rows: out[rows[r][i]] = shards[r][i], `width` values a
// row.
std::vector<double> gather_rows(const std::vector<std::vector<double>>& shards,
                                const std::vector<std::vector<int32_t>>& rows, int64_t width);

}  // namespace ringscope::oracle
