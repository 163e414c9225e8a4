// Parameters of one rank: local parts of the checkpoint's tensors, with gradients in flat buckets so that one
// all-reduce a bucket reduces them, and the optimizer's moments.
//
// A local parameter is a matrix [rows, cols] (vectors: cols = 1) in nn.Linear's orientation, y = x W^T. Its
// pieces say which rows of it are which rows of a checkpoint tensor; a fused weight (q, k, v) has several, and
// rows without a piece are padding (vocabulary) and stay zero.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/model/context.h"
#include "runtime/model/host_tensor.h"
#include "tracedb/base/result.h"

namespace ringscope {

struct Piece {
  std::string name;                 // in the checkpoint
  std::vector<int64_t> full_shape;  // as stored there
  bool transposed = false;          // stored [in, out]
  int64_t local_row = 0, rows = 0;  // rows of the local parameter
  int64_t full_row = 0;             // first row (output feature) in the full tensor
  int64_t full_col = 0;             // first column (input feature)
};

enum class Init : uint8_t { kNormal, kOne, kZero };

struct ParameterSpec {
  const char* name = "";
  int64_t rows = 0, cols = 1;
  std::vector<Piece> pieces;
  Init init = Init::kNormal;
  double init_std = 0.02;
  bool decay = true;        // weight decay: everything with two or more dimensions
  bool replicated = false;  // same on every TP rank; gradients are partial sums there with sequence parallelism
  int layer = -1;           // bucket: a layer's, or -1 for embedding and head; replicated ones share one bucket
};

struct Parameter {
  ParameterSpec spec;
  Tensor value, grad, m, v;
};

// One flat gradient tensor. layer: as in ParameterSpec.
struct GradBucket {
  int layer = -1;
  bool replicated = false;
  Tensor grads;
};

class ParameterStore {
 public:
  explicit ParameterStore(RankContext& context) : context_(context) {}

  int add(ParameterSpec spec);  // before allocate(); returns the handle
  void allocate();              // values, buckets, moments
  Parameter& operator[](int handle) { return parameters_[handle]; }
  std::vector<Parameter>& all() { return parameters_; }
  std::vector<GradBucket>& buckets() { return buckets_; }

  // Random start, keyed by (seed, checkpoint name, element): the same under any layout.
  void initialise(uint64_t seed);
  // Errors (kData) name a missing, extra or misshapen tensor. `all_names` come from the whole model, so call it
  // with the same store layout on every rank.
  Status load(const HostTensors& checkpoint);
  void zero_grads();

  // Own pieces (of value or gradient) as full-shape fragments; the caller merges ranks. False = stopped.
  struct Fragment {
    Piece piece;
    int64_t cols = 0;
    std::vector<double> values;  // rows x cols
  };
  [[nodiscard]] bool export_fragments(Tensor Parameter::*what, std::vector<Fragment>& out);

 private:
  void upload(Parameter& parameter, const std::function<double(const Piece&, int64_t row, int64_t col)>& value);
  RankContext& context_;
  std::vector<Parameter> parameters_;
  std::vector<GradBucket> buckets_;
};

// Writes a fragment into the full tensors (created on first use).
void merge_fragment(const ParameterStore::Fragment& fragment, HostTensors& into);

}  // namespace ringscope
