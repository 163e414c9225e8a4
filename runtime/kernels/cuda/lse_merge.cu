// A warp a row, so that the row's lse is read by all lanes before lane 0 replaces it.
#include <cuda_runtime.h>

#include "runtime/kernels/cuda/lse_merge.h"

namespace ringscope::cuda {
namespace {

constexpr int kWarps = 8;  // rows of one block

template <class T>
__global__ void merge_kernel(LseMerge<T> m) {
  const int lane = int(threadIdx.x) % kLanes;
  const int64_t row = int64_t(blockIdx.x) * kWarps + int(threadIdx.x) / kLanes;
  if (row >= m.rows) return;
  const double lse = merge_lane(m, row, lane);
  __syncwarp();
  if (lane == 0) m.lse[row] = lse;
}

template <class T>
int launch(const LseMerge<T>& m, void* stream) {
  if (m.rows == 0) return cudaSuccess;
  const unsigned blocks = unsigned((m.rows + kWarps - 1) / kWarps);
  merge_kernel<<<blocks, kWarps * kLanes, 0, static_cast<cudaStream_t>(stream)>>>(m);
  return cudaGetLastError();
}

}  // namespace

int lse_merge(const LseMerge<float>& m, void* stream) { return launch(m, stream); }
int lse_merge(const LseMerge<double>& m, void* stream) { return launch(m, stream); }

}  // namespace ringscope::cuda
