// The CUDA kernel itself. Without a GPU the launch must say so, and the test says that it could not run
// further.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/kernels/cuda/lse_merge.h"
#include "runtime/oracle/oracle.h"
#include "tests/runtime/kernels/merge_cases.h"

namespace ringscope {
namespace {

template <class T>
T* on_gpu(const std::vector<T>& values) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, values.size() * sizeof(T)), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), cudaSuccess);
  return static_cast<T*>(p);
}

template <class T>
void check_on_gpu(double limit) {
  testing::MergeCase<T> c(129, 70);
  const oracle::AttentionResult want = c.expected();
  cuda::LseMerge<T> m{on_gpu(c.o), on_gpu(c.lse), on_gpu(c.part_o), on_gpu(c.part_lse), c.rows, c.d};
  ASSERT_EQ(cuda::lse_merge(m, nullptr), int(cudaSuccess));
  ASSERT_EQ(cudaMemcpy(c.o.data(), m.o, c.o.size() * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(c.lse.data(), m.lse, c.lse.size() * 8, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_LE(testing::distance(std::vector<double>(c.o.begin(), c.o.end()), want.o), limit);
  EXPECT_LE(testing::distance(c.lse, want.lse), 1e-14);
  for (void* p : {(void*)m.o, (void*)m.lse, (void*)m.part_o, (void*)m.part_lse}) cudaFree(p);
}

TEST(CudaMerge, MatchesOracle) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    cudaGetLastError();
    double lse = 0;
    float o = 0;
    EXPECT_NE(cuda::lse_merge({&o, &lse, &o, &lse, 1, 1}, nullptr), int(cudaSuccess));
    GTEST_SKIP() << "no GPU on this machine: the kernel was compiled and linked, not run";
  }
  check_on_gpu<float>(1e-6);
  check_on_gpu<double>(1e-13);
}

}  // namespace
}  // namespace ringscope
