#include "runtime/train/tensor_stats.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/kernels/checksum.h"

namespace ringscope {
namespace {

template <class F>
void with_values(const Tensor& tensor, F&& stat) {
  const size_t n = size_t(tensor.count());
  if (tensor.dtype() == DType::kF64) stat(std::span<const double>(tensor.data<double>(), n));
  else stat(std::span<const float>(tensor.data<float>(), n));
}

// A fused weight has several names.
std::string checkpoint_names(const ParameterSpec& spec) {
  std::string names;
  for (const Piece& piece : spec.pieces)
    if (names.find(piece.name) == std::string::npos) names += (names.empty() ? "" : "+") + piece.name;
  return names.empty() ? spec.name : names;
}

constexpr int kLanes = 8;  // sums that do not wait for each other: a sum of its own for every lane of a vector

// splitmix64 (Steele, Lea, Flood 2014).
uint64_t spread(uint64_t x) {
  x += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

// In [-1, -1/2] or [1/2, 1]: no element counts for little, and no two for the same.
double factor(uint64_t key) {
  const uint64_t bits = spread(key);
  const double size = 0.5 + double(bits >> 12) * 0x1p-53;
  return bits & 1 ? size : -size;
}

// Element i of a tensor is multiplied by factor(i mod kBlock) x factor(its block): drawn once, read in a row.
constexpr size_t kBlock = 1024;
const std::array<double, kBlock>& block_factors() {
  static const auto table = [] {
    std::array<double, kBlock> factors{};
    for (size_t i = 0; i < kBlock; ++i) factors[i] = factor(i);
    return factors;
  }();
  return table;
}

struct Sums {
  double squares = 0, projection = 0;
};

template <class T>
Sums sums_of_block(std::span<const T> values) {
  const double* factors = block_factors().data();
  std::array<double, kLanes> squares{}, products{};
  const auto add = [&](size_t i, int lane) {
    const double value = double(values[i]);
    squares[lane] += value * value;
    products[lane] += value * factors[i];
  };
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) add(i + size_t(lane), lane);
  for (; i < values.size(); ++i) add(i, 0);
  Sums sums;
  for (int lane = 0; lane < kLanes; ++lane) sums.squares += squares[lane], sums.projection += products[lane];
  return sums;
}

template <class T>
Sums sums_of(std::span<const T> values) {
  Sums sums;
  for (size_t at = 0; at < values.size(); at += kBlock) {
    const Sums block = sums_of_block(values.subspan(at, std::min(kBlock, values.size() - at)));
    sums.squares += block.squares;
    sums.projection += block.projection * factor(~(at / kBlock));
  }
  return sums;
}

// Of what has no checksum of its own: equal bits have equal sums, and others next to never.
uint64_t fingerprint(const TensorStat& stat) {
  return kernels::checksum_finish(
             kernels::checksum_mix(std::bit_cast<uint64_t>(stat.norm), std::bit_cast<uint64_t>(stat.projection))) |
         1;
}

template <class T>
void add_sums(std::span<const T> values, TensorStat& out) {
  const Sums sums = sums_of(values);
  out.norm = std::sqrt(sums.squares);
  out.projection = sums.projection;
  if (!std::isfinite(out.norm))
    for (const T value : values) out.bad += !std::isfinite(value);
}

// Elements of a tensor whose update is recorded whole.
constexpr uint64_t kSamples = 2;
uint64_t sampled_element(size_t parameter, uint64_t sample, uint64_t count) {
  // One of each half, so that what spares half of a tensor shows too.
  const uint64_t half = count / kSamples, first = sample * half;
  return first +
         spread(parameter * kSamples + sample) % (sample + 1 < kSamples ? std::max<uint64_t>(1, half) : count - first);
}

double element_of(const Tensor& flat, uint64_t at) {
  return flat.dtype() == DType::kF64 ? flat.data<double>()[at] : double(flat.data<float>()[at]);
}

}  // namespace

template <class T>
TensorStat tensor_stat(std::span<const T> values) {
  TensorStat out;
  add_sums(values, out);
  out.checksum = kernels::checksum(values.data(), values.size_bytes());
  return out;
}
template TensorStat tensor_stat(std::span<const float>);
template TensorStat tensor_stat(std::span<const double>);

void TensorStats::intern_names(ParameterStore& store) {
  if (names_.empty())
    for (const Parameter& p : store.all()) names_.push_back(rs_intern(checkpoint_names(p.spec).c_str()));
}

TensorStats::Item TensorStats::item(Parameter& p, size_t index, const Tensor& tensor, TensorRole role) {
  ScopedWhere place(*context_.device, [&](Where& w) { w.layer = int16_t(p.spec.layer), w.pass = Pass::kOptimizer; });
  Item item{tensor, {}};
  item.record.where = context_.device->where().pack();
  item.record.name = names_[index];
  item.record.role = uint16_t(role);
  item.record.part = p.spec.replicated ? 0xFFFF : uint16_t(context_.coord.tp);
  item.record.count = uint64_t(tensor.count());
  return item;
}

// Gradients lie in few buckets: what is read is declared by bucket, everything else by tensor.
std::vector<Tensor> TensorStats::gradients(ParameterStore& store, bool replicated_only) {
  std::vector<Tensor> reads;
  for (const GradBucket& bucket : store.buckets())
    if (bucket.replicated || !replicated_only) reads.push_back(bucket.grads);
  return reads;
}

void TensorStats::measure(const char* kernel, const std::vector<Tensor>& reads, std::vector<Item> items,
                          std::vector<Sample> samples) {
  context_.device->launch(*context_.compute, kernel, std::span<const Tensor>(reads), std::span<const Tensor>(),
                          [items = std::move(items), samples = std::move(samples), before = before_] {
                            for (const Item& item : items) record(item);
                            for (size_t i = 0; i < samples.size(); ++i) record(samples[i], (*before)[i]);
                          });
}

void TensorStats::record(const Item& item) {
  TensorStat stat;
  const bool sums = !item.second.defined();
  with_values(item.tensor, [&](auto values) {
    if (sums) add_sums(values, stat);
    if (item.copies == Copies::kChecksum)
      stat.checksum = kernels::checksum(values.data(), values.size_bytes(), 0,
                                        sums ? nullptr : item.second.data<typename decltype(values)::element_type>());
  });
  if (item.copies == Copies::kFingerprint) stat.checksum = fingerprint(stat);
  TensorStatRecord full = item.record;
  full.checksum = stat.checksum;
  full.norm = sums ? stat.norm : std::numeric_limits<double>::quiet_NaN();
  full.bad = stat.bad;
  full.projection = stat.projection;
  emit(RecordKind::kTensorStat, full, 0, sums ? kHasProjection : 0);
}

// The optimizer's inputs but the gradient are what it left in the step before.
void TensorStats::record(const Sample& sample, std::array<double, 3>& before) {
  UpdateSampleRecord full = sample.record;
  full.gradient = element_of(sample.gradient, full.element);
  full.value_before = before[0], full.m_before = before[1], full.v_before = before[2];
  before = {element_of(sample.value, full.element), element_of(sample.m, full.element),
            element_of(sample.v, full.element)};
  full.value_after = before[0], full.m_after = before[1], full.v_after = before[2];
  emit(RecordKind::kUpdateSample, full);
}

std::vector<TensorStats::Sample> TensorStats::samples(ParameterStore& store) {
  std::vector<Sample> out;
  size_t index = 0;
  for (Parameter& p : store.all()) {
    const Item like = item(p, index, p.value, TensorRole::kParameter);
    for (uint64_t i = 0; i < kSamples && like.record.count > 0; ++i) {
      Sample& sample = out.emplace_back(Sample{p.grad, p.value, p.m, p.v, {}});
      sample.record.where = like.record.where;
      sample.record.name = like.record.name;
      sample.record.part = like.record.part;
      sample.record.element = sampled_element(index, i, like.record.count);
    }
    ++index;
  }
  return out;
}

void TensorStats::start(ParameterStore& store) {
  if (!rs_enabled()) return;
  intern_names(store);
  std::vector<Tensor> reads;
  for (Parameter& p : store.all()) reads.insert(reads.end(), {p.value, p.m, p.v});
  context_.device->launch(*context_.compute, "statistics.start", std::span<const Tensor>(reads),
                          std::span<const Tensor>(), [samples = samples(store), before = before_] {
                            for (const Sample& s : samples)
                              before->push_back({element_of(s.value, s.record.element),
                                                 element_of(s.m, s.record.element), element_of(s.v, s.record.element)});
                          });
}

// What is no replica has no checksum: own gradients are alike only where TP ranks computed the same of the same rows.
void TensorStats::take_local(ParameterStore& store) {
  if (!rs_enabled()) return;
  std::vector<Item> items;
  for (Parameter& p : store.all()) {
    items.push_back(item(p, items.size(), p.grad, TensorRole::kLocalGradient));
    items.back().copies = p.spec.replicated && !context_.sequence_parallel() ? Copies::kFingerprint : Copies::kNone;
  }
  measure("statistics.local_gradients", gradients(store), std::move(items));
}

void TensorStats::take_over_tp(ParameterStore& store) {
  if (!rs_enabled()) return;
  std::vector<Item> items;
  size_t index = 0;
  for (Parameter& p : store.all()) {
    if (p.spec.replicated) {
      items.push_back(item(p, index, p.grad, TensorRole::kGradientOverTp));
      items.back().copies = Copies::kFingerprint;
    }
    ++index;
  }
  measure("statistics.gradients_over_tp", gradients(store, true), std::move(items));
}

void TensorStats::take_over_cp(ParameterStore& store) {
  if (!rs_enabled()) return;
  std::vector<Item> items;
  for (Parameter& p : store.all()) {
    items.push_back(item(p, items.size(), p.grad, TensorRole::kGradientOverCp));
    items.back().copies = Copies::kFingerprint;
  }
  measure("statistics.gradients_over_cp", gradients(store), std::move(items));
}

void TensorStats::take(ParameterStore& store) {
  if (!rs_enabled()) return;
  std::vector<Tensor> reads = gradients(store);
  std::vector<Item> items;
  size_t index = 0;
  for (Parameter& p : store.all()) {
    reads.insert(reads.end(), {p.value, p.m, p.v});
    items.push_back(item(p, index, p.grad, TensorRole::kGradient));
    items.push_back(item(p, index, p.value, TensorRole::kParameter));
    items.push_back(item(p, index, p.m, TensorRole::kMoments));
    items.back().second = p.v;
    ++index;
  }
  measure("statistics.parameters", reads, std::move(items), samples(store));
}

}  // namespace ringscope
