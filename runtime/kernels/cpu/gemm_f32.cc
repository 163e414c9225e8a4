// fp32 by oneDNN: run-time instruction-set dispatch, the best measured library on small shapes too.
#include <dnnl.h>
#include <omp.h>

#include "runtime/kernels/cpu/gemm.h"
#include "tracedb/base/check.h"

namespace ringscope::cpu {

void gemm_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
              int64_t ldb, float* c, bool accumulate) {
  // Ranks are threads already: a team per call would oversubscribe the cores and change the order of sums.
  static thread_local const bool one_thread = (omp_set_num_threads(1), true);
  (void)one_thread;
  const dnnl_status_t status =
      dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, 1.0f, a, lda, b, ldb, accumulate ? 1.0f : 0.0f, c, n);
  RS_CHECK(status == dnnl_success, "oneDNN refused a matrix product");
}

}  // namespace ringscope::cpu
