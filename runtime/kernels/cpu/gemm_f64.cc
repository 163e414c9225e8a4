// fp64 by Eigen: oneDNN has none on the CPU.
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>

#include "runtime/kernels/cpu/gemm.h"

namespace ringscope::cpu {

void gemm_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b,
              int64_t ldb, double* c, bool accumulate) {
  using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using View = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
  const View av(a, ta ? k : m, ta ? m : k, Eigen::OuterStride<>(lda));
  const View bv(b, tb ? n : k, tb ? k : n, Eigen::OuterStride<>(ldb));
  Eigen::Map<Matrix> cv(c, m, n);
  if (!accumulate) cv.setZero();
  if (ta && tb) cv.noalias() += av.transpose() * bv.transpose();
  else if (ta) cv.noalias() += av.transpose() * bv;
  else if (tb) cv.noalias() += av * bv.transpose();
  else cv.noalias() += av * bv;
}

}  // namespace ringscope::cpu
