// The kernels, as launches: every function enqueues one kernel on a stream with its byte ranges. The only
// callers are runtime/attention, runtime/model and runtime/train. Plain loops live in kernels/cpu.
//
// dtype: fp32 or fp64 for all floating tensors of one call, unless stated. Accumulation: fp64 for fp64, fp32
// for fp32; sums over tokens for the loss, LSE and merge weights: fp64 always.
// NaN and infinity go where the float64 formula takes them (tests/runtime/kernels/nonfinite_test.cc): no kernel turns one
// into a number. What a mask or a label excludes is no term of the formula; a weight or a dropout factor of 0 is one.
// Shapes: T tokens (batch x local sequence, flattened), H hidden, D head size, HQ local query heads, HK local
// K/V heads, V local vocabulary. int32 tensors: rows, documents, token ids, labels.
#pragma once

#include <cstdint>

#include "runtime/device/device.h"

namespace ringscope::kernels {

// ---- linear algebra -------------------------------------------------------------------------------------
// C[M,N] = op(A) op(B) (+ C when accumulate). op(X) = X or X^T; A is [M,K] or [K,M], B is [K,N] or [N,K].
void gemm(Device&, Stream&, const char* name, const Tensor& a, bool transpose_a, const Tensor& b, bool transpose_b,
          const Tensor& c, bool accumulate);
void add_bias(Device&, Stream&, const char* name, const Tensor& y, const Tensor& bias);             // y[T,N] += bias[N]
void bias_grad(Device&, Stream&, const char* name, const Tensor& dy, const Tensor& dbias);          // += column sums
void add(Device&, Stream&, const char* name, const Tensor& x, const Tensor& y, const Tensor& out);  // out = x + y
void accumulate(Device&, Stream&, const char* name, const Tensor& x, const Tensor& into);           // into += x
void scale(Device&, Stream&, const char* name, const Tensor& x, double factor);
void fill(Device&, Stream&, const char* name, const Tensor& x, double value);
void copy(Device&, Stream&, const char* name, const Tensor& from, const Tensor& to);  // same count
// Host values to the device (loader, checkpoint). `values` is copied at the call.
void upload_i32(Device&, Stream&, const char* name, const Tensor& to, std::vector<int32_t> values);
void upload(Device&, Stream&, const char* name, const Tensor& to, std::vector<double> values);

// ---- norms: x[T,H], w[H], b[H]; mean and rstd are fp64 [T] ------------------------------------------------
void layer_norm(Device&, Stream&, const Tensor& x, const Tensor& w, const Tensor& b, double eps, const Tensor& y,
                const Tensor& mean, const Tensor& rstd);
// dx is written; dw and db are added to.
void layer_norm_backward(Device&, Stream&, const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& mean,
                         const Tensor& rstd, const Tensor& dx, const Tensor& dw, const Tensor& db);
void rms_norm(Device&, Stream&, const Tensor& x, const Tensor& w, double eps, const Tensor& y, const Tensor& rstd);
void rms_norm_backward(Device&, Stream&, const Tensor& dy, const Tensor& x, const Tensor& w, const Tensor& rstd,
                       const Tensor& dx, const Tensor& dw);

// ---- activations ------------------------------------------------------------------------------------------
void gelu_tanh(Device&, Stream&, const Tensor& x, const Tensor& y);
void gelu_tanh_backward(Device&, Stream&, const Tensor& x, const Tensor& dy, const Tensor& dx);
// gate_up[T, 2F]: gate in columns 0..F-1, up in F..2F-1; y[T,F] = silu(gate) * up
void swiglu(Device&, Stream&, const Tensor& gate_up, const Tensor& y);
void swiglu_backward(Device&, Stream&, const Tensor& gate_up, const Tensor& dy, const Tensor& d_gate_up);

// ---- dropout ----------------------------------------------------------------------------------------------
// Counter generator keyed by (seed, step, global sample, layer, use, global position, feature): any layout gives
// the same mask. position and sample are int32 [T] (global row in the sequence, global sample index). Kept
// elements are scaled by 1/(1-p). The backward pass is the same call on dy.
struct DropoutKey {
  uint64_t seed = 0;
  int32_t step = 0, layer = 0, use = 0;
  int32_t first_feature = 0;  // global index of column 0
};
void dropout(Device&, Stream&, const char* name, const Tensor& x, double p, DropoutKey, const Tensor& position,
             const Tensor& sample, const Tensor& y);

// ---- embedding --------------------------------------------------------------------------------------------
// y[T,H] = table[token - first_row] where the token lies in this part, else 0 (vocabulary-parallel).
void embedding(Device&, Stream&, const Tensor& tokens, const Tensor& table, int64_t first_row, const Tensor& y);
void embedding_backward(Device&, Stream&, const Tensor& tokens, const Tensor& dy, int64_t first_row,
                        const Tensor& dtable);  // added to
// y[T,H] += table[position]; backward adds into dtable.
void add_position_embedding(Device&, Stream&, const Tensor& position, const Tensor& table, const Tensor& y);
void position_embedding_backward(Device&, Stream&, const Tensor& position, const Tensor& dy, const Tensor& dtable);

// ---- attention inputs ---------------------------------------------------------------------------------------
// qkv[T, (HQ+2*HK)*D] -> q[T,HQ,D], kv[2,T,HK,D] (K then V). rope_base > 0 rotates q and K by position (half
// split pairs: element i with i + D/2, angle position * base^(-2i/D)).
void split_qkv(Device&, Stream&, const Tensor& qkv, int64_t heads_q, int64_t heads_kv, double rope_base,
               const Tensor& position, const Tensor& q, const Tensor& kv);
// Inverse, for gradients: rotates back and joins. dq and dkv are in q's dtype.
void join_qkv(Device&, Stream&, const Tensor& dq, const Tensor& dkv, double rope_base, const Tensor& position,
              const Tensor& dqkv);

// ---- attention ----------------------------------------------------------------------------------------------
// Token facts of one side of an attention call: int32 [T]; T = batch x local tokens, batch outermost.
struct TokenInfo {
  Tensor row;       // global row in the sequence
  Tensor document;  // -1 = padding
  int64_t batch = 1;
};
// Attention weight dropout: keyed by (seed, step, sample, layer, head, query row, key row).
struct AttentionDropout {
  double p = 0;
  uint64_t seed = 0;
  int32_t step = 0, layer = 0;
  int32_t first_head = 0;  // global index of local query head 0
  Tensor sample;           // int32 [batch], global sample index
};
// Partial attention of q over one K/V block, written (not merged): o[Tq,HQ,D] in q's dtype, lse fp64 [Tq,HQ]
// (natural; -inf and o = 0 where a row sees nothing), m fp64 [Tq,HQ] = maximum of the scaled scores. A row that sees
// scores of -inf only: o = NaN, lse = -inf. NaN among its scores: o and lse are NaN, m is the maximum of the others.
// Mask: layout's may_see on rows and documents. Query head h uses K/V head h / (HQ/HK). Memory is linear in T.
void flash_forward(Device&, Stream&, const Tensor& q, const Tensor& kv, const TokenInfo& qi, const TokenInfo& ki,
                   double scale, const AttentionDropout&, const Tensor& o, const Tensor& lse, const Tensor& m);
// d[Tq,HQ] fp64 = sum_d dO * O
void attention_delta(Device&, Stream&, const Tensor& o, const Tensor& d_o, const Tensor& d);
// With the final lse: dq[Tq,HQ,D] += , dkv[2,Tk,HK,D] += (both in q's dtype).
void flash_backward(Device&, Stream&, const Tensor& q, const Tensor& kv, const Tensor& d_o, const Tensor& lse,
                    const Tensor& d, const TokenInfo& qi, const TokenInfo& ki, double scale, const AttentionDropout&,
                    const Tensor& dq, const Tensor& dkv);
// (o, lse) := merge of (o, lse) and (part_o, part_lse); identity (0, -inf); weights exp(l_i - l) in fp64. Beside
// a part with an lse above -inf, one of -inf does not count.
void lse_merge(Device&, Stream&, const Tensor& o, const Tensor& lse, const Tensor& part_o, const Tensor& part_lse);
// Three-step softmax pieces over one shard: given m_used [Tq,HQ] fp64 (-inf = row sees nothing anywhere):
// u[Tq,HQ,D] = sum_j exp(s_j - m) v_j, z fp64 [Tq,HQ] = sum_j exp(s_j - m).
void score_max(Device&, Stream&, const Tensor& q, const Tensor& kv, const TokenInfo& qi, const TokenInfo& ki,
               double scale, const Tensor& m);
void exp_sum(Device&, Stream&, const Tensor& q, const Tensor& kv, const TokenInfo& qi, const TokenInfo& ki,
             double scale, const AttentionDropout&, const Tensor& m, const Tensor& u, const Tensor& z);
// o = u / z, lse = m + log z; rows with m = -inf or z = 0: o = 0, lse = -inf
void softmax_normalise(Device&, Stream&, const Tensor& u, const Tensor& m, const Tensor& z, const Tensor& o,
                       const Tensor& lse);

// ---- loss: vocabulary-parallel cross entropy ---------------------------------------------------------------
// logits[T,V] (columns >= valid_columns are vocabulary padding), labels int32 [T], -1 = not counted.
void row_max(Device&, Stream&, const Tensor& logits, int64_t valid_columns, const Tensor& m);  // m fp64 [T]
// sum_exp and target fp64 [T]: sum exp(logit - m) over own columns; target logit when it lies here, else 0.
void sum_exp_target(Device&, Stream&, const Tensor& logits, int64_t valid_columns, const Tensor& m,
                    const Tensor& labels, int64_t first_column, const Tensor& sum_exp, const Tensor& target);
// totals fp64 [2] += {sum of (log sum_exp + m - target), number} over counted tokens.
void loss_sum(Device&, Stream&, const Tensor& m, const Tensor& sum_exp, const Tensor& target, const Tensor& labels,
              const Tensor& totals);
// dlogits[T,V] = (softmax - onehot) / divisor for counted tokens, else 0. divisor: fp64 [1] on the device.
void cross_entropy_backward(Device&, Stream&, const Tensor& logits, int64_t valid_columns, const Tensor& m,
                            const Tensor& sum_exp, const Tensor& labels, int64_t first_column, const Tensor& divisor,
                            const Tensor& dlogits);

// ---- optimizer ----------------------------------------------------------------------------------------------
void sum_of_squares(Device&, Stream&, const Tensor& x, const Tensor& total);  // total fp64 [1] +=
struct AdamW {
  double lr = 0, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0;
  int64_t step = 1;  // from 1
};
// w, m, v updated in place; decay first: w *= 1 - lr*weight_decay. g is multiplied by *clip (fp64 [1]).
void adamw(Device&, Stream&, const Tensor& w, const Tensor& g, const Tensor& m, const Tensor& v, const Tensor& clip,
           AdamW);
// *clip = min(1, max_norm / (sqrt(*total) + 1e-6)); max_norm <= 0: 1
void clip_factor(Device&, Stream&, const Tensor& total, double max_norm, const Tensor& clip);

}  // namespace ringscope::kernels
