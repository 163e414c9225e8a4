// Element-wise kernels with an exponential or a hash in them, on raw pointers: compiled once per instruction
// set (isa_*.cc) and chosen at run time. In and out may be the same array.
#pragma once

#include <cstdint>

namespace ringscope::pointwise {

template <class T>
struct Table {
  void (*gelu)(const T* x, int64_t n, T* y);
  void (*gelu_backward)(const T* x, const T* dy, int64_t n, T* dx);
  // One row: y = silu(gate) * up.
  void (*swiglu)(const T* gate, const T* up, int64_t n, T* y);
  void (*swiglu_backward)(const T* gate, const T* up, const T* dy, int64_t n, T* d_gate, T* d_up);
  // One row: y[j] = x[j] * kept_factor where the element drawn from (key, first + j) is kept, else x[j] * 0.
  void (*dropout)(const T* x, uint64_t key, uint64_t first, double p, int64_t n, T* y);
  // Sum of exp(x - m), in fp64; and y = factor * exp(x - m).
  double (*sum_exp)(const T* x, T m, int64_t n);
  void (*scaled_exp)(const T* x, T m, T factor, int64_t n, T* y);
};

struct Kernels {
  Table<float> f32;
  Table<double> f64;
};

// The best this processor runs; decided once.
const Kernels& best();
const Kernels& avx512();
const Kernels& avx2();
const Kernels& baseline();

template <class T>
const Table<T>& best_for();
template <>
inline const Table<float>& best_for<float>() {
  return best().f32;
}
template <>
inline const Table<double>& best_for<double>() {
  return best().f64;
}

}  // namespace ringscope::pointwise
