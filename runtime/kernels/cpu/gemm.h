// Matrix products on raw pointers, one library a file. Row-major: C[M,N] = op(A) op(B) (+ C);
// single-threaded.
#pragma once

#include <cstdint>

namespace ringscope::cpu {
void gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
              int64_t ldb, float* c, bool accumulate);
void gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b,
              int64_t ldb, double* c, bool accumulate);
}  // namespace ringscope::cpu
