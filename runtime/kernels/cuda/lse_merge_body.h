// What one lane of a warp does in the LSE merge of one row, as a plain function: the CUDA kernel calls it,
// and a host-compiled twin runs the same lanes in a loop, so that the arithmetic and the indices are tested
// without a GPU.
#pragma once

#include <cstdint>

#include "runtime/kernels/lse_merge_math.h"

namespace ringscope::cuda {

constexpr int kLanes = 32;

// One row is one (token, head): o and part_o [rows, d], lse and part_lse fp64 [rows].
template <class T>
struct LseMerge {
  T* o;
  double* lse;
  const T* part_o;
  const double* part_lse;
  int64_t rows, d;
};

// Merges this lane's elements of the row and returns the row's new lse, which one lane stores after all have
// read.
template <class T>
RS_HOST_DEVICE inline double merge_lane(const LseMerge<T>& m, int64_t row, int lane) {
  const MergeWeights w = merge_weights(m.lse[row], m.part_lse[row]);
  for (int64_t x = lane; x < m.d; x += kLanes)
    m.o[row * m.d + x] = merge_value(w, m.o[row * m.d + x], m.part_o[row * m.d + x]);
  return w.lse;
}

}  // namespace ringscope::cuda
