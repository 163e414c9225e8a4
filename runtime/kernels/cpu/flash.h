// The blocked attention kernels on raw pointers, compiled once per instruction set (isa_*.cc) and chosen
// at run time. One call runs on the calling thread.
//
// Layout: q, o, dq [batch*tq, hq, d]; k, v and gradients [batch*tk, hk, d]; rows and documents int32 per
// token; lse, m, z, delta fp64 [batch*tq, hq]. Scores are scale * q.k; a query sees a key when layout's
// may_see says so.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringscope::flash {

struct Dropout {
  double p = 0;
  uint64_t key = 0;  // folded from seed, step and layer
  int32_t first_head = 0;
  const int32_t* sample = nullptr;  // [batch]
};

enum class Mode : int {
  kOnline,    // o normalised, lse, m written
  kMaxOnly,   // m written
  kFixedMax,  // m read; o = sum exp(s - m) v (not normalised), lse = z = sum exp(s - m)
};

template <class T>
struct Forward {
  const T *q, *k, *v;
  const int32_t *q_row, *q_document, *k_row, *k_document;
  int64_t batch, tq, tk, hq, hk, d;  // tq, tk: per sample
  double scale;
  Dropout dropout;
  Mode mode;
  T* o;
  double *lse, *m;
};

template <class T>
struct Backward {
  const T *q, *k, *v, *d_o;
  const double *lse, *delta;
  const int32_t *q_row, *q_document, *k_row, *k_document;
  int64_t batch, tq, tk, hq, hk, d;
  double scale;
  Dropout dropout;
  T *dq, *dk, *dv;  // added to
};

// Scratch: elements of T, 64-byte aligned, given by the caller; linear in the tokens of one sample. `static`:
// a copy compiled for one instruction set must not be the one that the linker picks for all.
static inline int64_t padded_dim(int64_t d) { return (d + 15) / 16 * 16; }
static inline int64_t packed_elements(int64_t tk, int64_t d) { return (tk + 63) / 64 * 64 * (d + padded_dim(d)); }
static inline int64_t scratch_elements(int64_t tk, int64_t d) {
  return packed_elements(tk, d) + 64 * 64 * 4 + 64 * padded_dim(d) * 10;
}

struct Kernels {
  const char* isa;
  int vector_bytes;
  void (*forward_f32)(const Forward<float>&, float* scratch);
  void (*forward_f64)(const Forward<double>&, double* scratch);
  void (*backward_f32)(const Backward<float>&, float* scratch);
  void (*backward_f64)(const Backward<double>&, double* scratch);
};

// The best this processor runs; decided once.
const Kernels& best();
const Kernels& avx512();
const Kernels& avx2();
const Kernels& baseline();

}  // namespace ringscope::flash
