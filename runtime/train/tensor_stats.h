// TensorStats: norm, checksum and count of non-numbers of every parameter and its reduced gradient, once a step, for
// the trace. Replicas (CP, DP, and TP where a tensor is not split) must agree bit by bit: the view v_replica_mismatch
// compares the checksums. Of gradients that are not reduced yet norm and count only: they differ by right, and a NaN
// in one is everywhere behind the reduction.
//
// Two kernels a step; with the recorder off every call returns at once. Thread rule: the rank's host task.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/model/model.h"

namespace ringscope {

struct TensorStat {
  uint64_t checksum = 0;  // of the memory, by 64-bit words (a hash in eight lanes)
  double norm = 0;        // Euclidean, summed in fp64
  uint64_t bad = 0;       // NaN or infinite elements
};
// T = float or double.
template <class T>
TensorStat tensor_stat(std::span<const T> values);

class TensorStats {
 public:
  explicit TensorStats(RankContext& context) : context_(context) {}

  // Enqueues the kernel over this rank's own gradients: before the first reduction.
  void take_local(ParameterStore& store);
  // Enqueues the kernel over reduced gradients and values: behind the optimizer's, so that values are the updated ones.
  void take(ParameterStore& store);
  // Reads back what take_local() and take() left and records it. False = stopped.
  [[nodiscard]] bool flush(ParameterStore& store);

 private:
  Tensor measure(const char* kernel, std::vector<Tensor> reads, TensorStat (*stat)(const Tensor&));
  // Moves a statistics tensor to the host and records its rows: of every parameter the roles in turn.
  [[nodiscard]] bool record(ParameterStore& store, Tensor& values, std::span<const TensorRole> roles);

  RankContext& context_;
  std::vector<uint32_t> names_;  // interned, by parameter
  Tensor local_, values_;        // fp64 [tensors, 4]: checksum halves, norm, bad; undefined = nothing taken
};

}  // namespace ringscope
