// The arithmetic of the LSE merge for one (query, head), usable from host and device code: plain functions.
// A partial is (O, l) with O = sum_j exp(s_j - l) v_j and l = log sum_j exp(s_j); identity (0, -inf).
//   l = max(lA, lB) + log1p(exp(-|lA - lB|)),  O = exp(lA - l) OA + exp(lB - l) OB
// (Ring attention's merge; weights in fp64: in fp32 the error grows with the number of parts.)
#pragma once

#include <cmath>

#ifdef __CUDACC__
#define RS_HOST_DEVICE __host__ __device__
#else
#define RS_HOST_DEVICE
#endif

namespace ringscope {

// Weights of the two O, and which of them count. An underflowed weight counts: 0 * NaN is NaN.
struct MergeWeights {
  double a, b, lse;
  bool use_a, use_b;
};

RS_HOST_DEVICE inline MergeWeights merge_weights(double lse_a, double lse_b) {
  const bool no_a = std::isinf(lse_a) && lse_a < 0, no_b = std::isinf(lse_b) && lse_b < 0;
  if (no_a && no_b) return {1.0, 1.0, lse_a, true, true};
  if (no_b) return {std::exp(lse_a - lse_a), 0.0, lse_a, true, false};  // 1, or NaN as below
  if (no_a) return {0.0, std::exp(lse_b - lse_b), lse_b, false, true};
  const double high = lse_a > lse_b ? lse_a : lse_b, low = lse_a > lse_b ? lse_b : lse_a;
  const double lse = high + std::log1p(std::exp(low - high));
  return {std::exp(lse_a - lse), std::exp(lse_b - lse), lse, true, true};
}

// A part without scores above -inf (lse = -inf) does not count beside one that has some, whatever its O holds. Of two
// such parts the sum stays: 0, or NaN where a row saw nothing but scores of -inf.
template <class T>
RS_HOST_DEVICE inline T merge_value(const MergeWeights& w, T a, T b) {
  if (!w.use_b) return T(w.a * a);
  if (!w.use_a) return T(w.b * b);
  return T(w.a * a + w.b * b);
}

}  // namespace ringscope
