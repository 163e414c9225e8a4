// TensorStats: what the trace says of every parameter once a step: norm, checksum, a linear projection and the count of
// non-numbers of its gradient, before it is reduced and after each reduction; of its value and moments behind the
// optimizer; and of a few elements all that the optimizer read and wrote.
//
// Replicas (CP, DP, and TP where a tensor is not split) must agree bit by bit. Gradients before the last reduction
// differ by right; their projections must add up. Every kernel writes down what it saw itself, on its stream, so that
// a run that stands still later does not hide it. With the recorder off every call returns at once.
// Thread rule: the rank's host task.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "probes/recorder/emit.h"
#include "runtime/model/parameters.h"

namespace ringscope {

struct TensorStat {
  uint64_t checksum = 0;  // of the memory, by 64-bit words (a hash in eight lanes)
  double norm = 0;        // Euclidean, summed in fp64
  double projection = 0;  // sum of element i x factor i, summed in fp64; factors are fixed and lie in [-1, 1]
  uint64_t bad = 0;       // NaN or infinite elements
};
// T = float or double.
template <class T>
TensorStat tensor_stat(std::span<const T> values);

class TensorStats {
 public:
  explicit TensorStats(RankContext& context) : context_(context) {}

  // Before the first step: elements that the optimizer will change.
  void start(ParameterStore& store);
  // This rank's own gradients: before the first reduction.
  void take_local(ParameterStore& store);
  // Gradients of what TP replicates, reduced over TP and nothing else.
  void take_over_tp(ParameterStore& store);
  // Gradients that wait for their reduction over DP.
  void take_over_cp(ParameterStore& store);
  // Reduced gradients, values and moments: behind the optimizer's kernels, so that values are the updated ones.
  void take(ParameterStore& store);

 private:
  // How copies are told from each other.
  enum class Copies { kNone, kFingerprint, kChecksum };
  // A tensor and what is known of its row beforehand.
  struct Item {
    Tensor tensor;
    TensorStatRecord record{};
    Copies copies = Copies::kChecksum;
    Tensor second;  // if defined, the checksum is of both tensors, and nothing else is computed
  };
  struct Sample {
    Tensor gradient, value, m, v;  // flat
    UpdateSampleRecord record{};
  };
  using Before = std::vector<std::array<double, 3>>;  // value, m, v by sample

  Item item(Parameter& parameter, size_t index, const Tensor& tensor, TensorRole role);
  static std::vector<Tensor> gradients(ParameterStore& store, bool replicated_only = false);
  void measure(const char* kernel, const std::vector<Tensor>& reads, std::vector<Item> items,
               std::vector<Sample> samples = {});
  static void record(const Item& item);
  static void record(const Sample& sample, std::array<double, 3>& before);
  std::vector<Sample> samples(ParameterStore& store);
  void intern_names(ParameterStore& store);

  RankContext& context_;
  std::vector<uint32_t> names_;  // interned, by parameter
  // Of the samples, as the last step left them: touched by kernels of the compute stream only.
  std::shared_ptr<Before> before_ = std::make_shared<Before>();
};

}  // namespace ringscope
