#include "runtime/model/parameters.h"

#include <cmath>
#include <functional>
#include <numbers>

#include "runtime/kernels/kernels.h"
#include "tracedb/base/check.h"

namespace ringscope {
namespace {

// splitmix64 (Steele, Lea, Flood 2014): a full-period mix good enough to key starting weights.
uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ x >> 27) * 0x94D049BB133111EBull;
  return x ^ x >> 31;
}

uint64_t hash_text(const std::string& text) {
  uint64_t h = 0xCBF29CE484222325ull;  // FNV-1a
  for (unsigned char c : text) h = (h ^ c) * 0x100000001B3ull;
  return h;
}

// Standard normal by Box-Muller from two keyed uniforms.
double normal(uint64_t key) {
  const double u1 = (double(mix(key) >> 11) + 0.5) * 0x1p-53;
  const double u2 = double(mix(key ^ 0xD1B54A32D192ED03ull) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2);
}

// Index of (row, col) of a piece in the stored full tensor.
int64_t full_index(const Piece& piece, int64_t row, int64_t col) {
  const int64_t r = piece.full_row + row, c = piece.full_col + col;
  if (piece.full_shape.size() == 1) return r;
  return piece.transposed ? c * piece.full_shape[1] + r : r * piece.full_shape[1] + c;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += (i ? "," : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

int ParameterStore::add(ParameterSpec spec) {
  parameters_.push_back({std::move(spec), {}, {}, {}, {}});
  return int(parameters_.size()) - 1;
}

void ParameterStore::allocate() {
  // Bucket order: layers ascending, embedding and head, then what TP ranks replicate.
  const auto key = [](const ParameterSpec& s) { return s.replicated ? 1 << 20 : s.layer < 0 ? 1 << 19 : s.layer; };
  std::map<int, std::vector<Parameter*>> by_bucket;
  for (Parameter& p : parameters_) by_bucket[key(p.spec)].push_back(&p);
  Device& device = *context_.device;
  for (auto& [order, members] : by_bucket) {
    int64_t count = 0;
    for (Parameter* p : members) count += p->spec.rows * p->spec.cols;
    GradBucket bucket{members[0]->spec.replicated ? -1 : members[0]->spec.layer, members[0]->spec.replicated, {}};
    bucket.grads = device.allocate(context_.dtype(), {count}, MemCategory::kGradient, "grad.bucket");
    int64_t offset = 0;
    for (Parameter* p : members) {
      const int64_t rows = p->spec.rows, cols = p->spec.cols;
      const auto shaped = [&](const Tensor& t) { return cols == 1 ? t : t.reshape({rows, cols}); };
      p->value = shaped(device.allocate(context_.dtype(), {rows * cols}, MemCategory::kParameter, p->spec.name));
      p->m = shaped(device.allocate(context_.dtype(), {rows * cols}, MemCategory::kOptimizer, "adam.m"));
      p->v = shaped(device.allocate(context_.dtype(), {rows * cols}, MemCategory::kOptimizer, "adam.v"));
      p->grad = shaped(bucket.grads.rows(offset, offset + rows * cols));
      kernels::fill(device, *context_.compute, "adam.zero", p->m, 0);
      kernels::fill(device, *context_.compute, "adam.zero", p->v, 0);
      offset += rows * cols;
    }
    buckets_.push_back(bucket);
  }
}

void ParameterStore::upload(Parameter& parameter, const std::function<double(const Piece&, int64_t, int64_t)>& value) {
  const int64_t cols = parameter.spec.cols;
  std::vector<double> values(parameter.spec.rows * cols, 0.0);
  for (const Piece& piece : parameter.spec.pieces)
    for (int64_t r = 0; r < piece.rows; ++r)
      for (int64_t c = 0; c < cols; ++c) values[(piece.local_row + r) * cols + c] = value(piece, r, c);
  kernels::upload(*context_.device, *context_.compute, "parameter.upload", parameter.value, std::move(values));
}

void ParameterStore::initialise(uint64_t seed) {
  for (Parameter& parameter : parameters_) {
    const ParameterSpec& spec = parameter.spec;
    upload(parameter, [&](const Piece& piece, int64_t r, int64_t c) {
      if (spec.init == Init::kOne) return 1.0;
      if (spec.init == Init::kZero) return 0.0;
      const uint64_t key = mix(seed) ^ hash_text(piece.name);
      return spec.init_std * normal(mix(key) + uint64_t(full_index(piece, r, c)) * 0x9E3779B97F4A7C15ull);
    });
  }
}

Status ParameterStore::load(const HostTensors& checkpoint) {
  for (Parameter& parameter : parameters_) {
    for (const Piece& piece : parameter.spec.pieces) {
      const auto found = checkpoint.find(piece.name);
      if (found == checkpoint.end()) return data_error("the checkpoint has no tensor '" + piece.name + "'");
      if (found->second.shape != piece.full_shape)
        return data_error("checkpoint tensor '" + piece.name + "' has shape " + shape_text(found->second.shape) +
                          ", the model needs " + shape_text(piece.full_shape));
    }
    upload(parameter, [&](const Piece& piece, int64_t r, int64_t c) {
      return checkpoint.at(piece.name).values[full_index(piece, r, c)];
    });
  }
  return {};
}

void ParameterStore::zero_grads() {
  for (GradBucket& bucket : buckets_) kernels::fill(*context_.device, *context_.compute, "grad.zero", bucket.grads, 0);
}

bool ParameterStore::export_fragments(Tensor Parameter::*what, std::vector<Fragment>& out) {
  for (Parameter& parameter : parameters_) {
    const std::vector<double> values = context_.device->read_back(*context_.compute, parameter.*what, "export");
    if (values.empty()) return false;
    const int64_t cols = parameter.spec.cols;
    for (const Piece& piece : parameter.spec.pieces)
      out.push_back(
          {piece,
           cols,
           {values.begin() + piece.local_row * cols, values.begin() + (piece.local_row + piece.rows) * cols}});
  }
  return true;
}

void merge_fragment(const ParameterStore::Fragment& fragment, HostTensors& into) {
  HostTensor& full = into[fragment.piece.name];
  if (full.values.empty()) {
    int64_t count = 1;
    for (int64_t extent : fragment.piece.full_shape) count *= extent;
    full = {fragment.piece.full_shape, std::vector<double>(count, 0.0)};
  }
  for (int64_t r = 0; r < fragment.piece.rows; ++r)
    for (int64_t c = 0; c < fragment.cols; ++c)
      full.values[full_index(fragment.piece, r, c)] = fragment.values[r * fragment.cols + c];
}

}  // namespace ringscope
