#include "runtime/train/tensor_stats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "probes/recorder/emit.h"

namespace ringscope {
namespace {

enum Column { kLow, kHigh, kNorm, kBad, kColumns };  // a checksum as two exact fp64 halves

template <class F>
TensorStat with_values(const Tensor& tensor, F&& stat) {
  const size_t n = size_t(tensor.count());
  return tensor.dtype() == DType::kF64 ? stat(std::span<const double>(tensor.data<double>(), n))
                                       : stat(std::span<const float>(tensor.data<float>(), n));
}

// A fused weight has several names.
std::string checkpoint_names(const ParameterSpec& spec) {
  std::string names;
  for (const Piece& piece : spec.pieces)
    if (names.find(piece.name) == std::string::npos) names += (names.empty() ? "" : "+") + piece.name;
  return names.empty() ? spec.name : names;
}

constexpr int kLanes = 8;  // sums that do not wait for each other: a sum of its own for every lane of a vector

template <class T>
double sum_of_squares(std::span<const T> values) {
  std::array<double, kLanes> sums{};
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += double(values[i + lane]) * double(values[i + lane]);
  for (; i < values.size(); ++i) sums[0] += double(values[i]) * double(values[i]);
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

// A multiplication carries differences upwards only, so that flipped signs could cancel; the shifts bring them down.
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}
// Every bit of the hash depends on every bit of it before (the finisher of MurmurHash3).
uint64_t finish(uint64_t hash) {
  hash = (hash ^ hash >> 33) * 0xFF51AFD7ED558CCD;
  hash = (hash ^ hash >> 33) * 0xC4CEB9FE1A85EC53;
  return hash ^ hash >> 33;
}

// Over 64-bit words, word i in lane i mod 8, then over the lanes; the last word is filled up with zeros.
uint64_t checksum(const void* memory, size_t bytes) {
  const char* from = static_cast<const char*>(memory);
  std::array<uint64_t, kLanes> lanes;
  for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = uint64_t(lane);
  const auto take = [&](int lane, size_t at, size_t n) {
    uint64_t word = 0;
    std::memcpy(&word, from + at, n);
    lanes[lane] = mix(lanes[lane], word);
  };
  size_t at = 0;
  for (; at + 8 * kLanes <= bytes; at += 8 * kLanes)
    for (int lane = 0; lane < kLanes; ++lane) take(lane, at + 8 * size_t(lane), 8);
  for (int lane = 0; at < bytes; at += 8, ++lane) take(lane, at, std::min<size_t>(8, bytes - at));
  uint64_t sum = bytes;
  for (const uint64_t lane : lanes) sum = finish(mix(sum, finish(lane)));
  return sum;
}

uint32_t low_half(uint64_t word) { return uint32_t(word); }
uint32_t high_half(uint64_t word) { return uint32_t(word >> 32); }

}  // namespace

template <class T>
TensorStat size_stat(std::span<const T> values) {
  TensorStat out;
  out.norm = std::sqrt(sum_of_squares(values));
  if (!std::isfinite(out.norm))
    for (const T value : values) out.bad += !std::isfinite(value);
  return out;
}
template <class T>
TensorStat tensor_stat(std::span<const T> values) {
  TensorStat out = size_stat(values);
  out.checksum = checksum(values.data(), values.size_bytes());
  return out;
}
template TensorStat tensor_stat(std::span<const float>);
template TensorStat tensor_stat(std::span<const double>);

Tensor TensorStats::measure(const char* kernel, std::vector<Tensor> reads, TensorStat (*stat)(const Tensor&)) {
  Device& device = *context_.device;
  const Tensor values =
      device.allocate(DType::kF64, {int64_t(reads.size()), kColumns}, MemCategory::kStatistics, "parameter statistics");
  device.launch(*context_.compute, kernel, std::span<const Tensor>(reads), std::span<const Tensor>(&values, 1),
                [reads, values, stat] {
                  double* row = values.data<double>();
                  for (const Tensor& tensor : reads) {
                    const TensorStat of = stat(tensor);
                    row[kLow] = low_half(of.checksum);
                    row[kHigh] = high_half(of.checksum);
                    row[kNorm] = of.norm;
                    row[kBad] = double(of.bad);
                    row += kColumns;
                  }
                });
  return values;
}

void TensorStats::take_local(ParameterStore& store) {
  if (!rs_enabled()) return;
  std::vector<Tensor> reads;
  for (Parameter& p : store.all()) reads.push_back(p.grad);
  local_ = measure("statistics.local_gradients", std::move(reads),
                   [](const Tensor& t) { return with_values(t, [](auto values) { return size_stat(values); }); });
}

void TensorStats::take(ParameterStore& store) {
  if (!rs_enabled()) return;
  std::vector<Tensor> reads;
  for (Parameter& p : store.all()) reads.insert(reads.end(), {p.grad, p.value});
  values_ = measure("statistics.parameters", std::move(reads),
                    [](const Tensor& t) { return with_values(t, [](auto values) { return tensor_stat(values); }); });
}

bool TensorStats::flush(ParameterStore& store) {
  static constexpr TensorRole kLocal[] = {TensorRole::kLocalGradient};
  static constexpr TensorRole kReduced[] = {TensorRole::kGradient, TensorRole::kParameter};
  return record(store, local_, kLocal) && record(store, values_, kReduced);
}

bool TensorStats::record(ParameterStore& store, Tensor& taken, std::span<const TensorRole> roles) {
  if (!taken.defined()) return true;
  Device& device = *context_.device;
  const std::vector<double> values = device.read_back(*context_.compute, taken, "parameter statistics");
  taken = Tensor();
  if (values.empty()) return false;
  if (names_.empty())
    for (const Parameter& p : store.all()) names_.push_back(rs_intern(checkpoint_names(p.spec).c_str()));
  const double* row = values.data();
  size_t index = 0;
  for (const Parameter& p : store.all()) {
    ScopedWhere place(device, [&](Where& w) { w.layer = int16_t(p.spec.layer), w.pass = Pass::kOptimizer; });
    for (const TensorRole role : roles) {
      TensorStatRecord record{};
      record.where = device.where().pack();
      record.name = names_[index];
      record.role = uint16_t(role);
      record.part = p.spec.replicated ? 0xFFFF : uint16_t(context_.coord.tp);
      record.count = uint64_t(p.value.count());
      record.checksum = uint64_t(row[kHigh]) << 32 | uint64_t(row[kLow]);
      record.norm = row[kNorm];
      record.bad = uint64_t(row[kBad]);
      emit(RecordKind::kTensorStat, record);
      row += kColumns;
    }
    ++index;
  }
  return true;
}

}  // namespace ringscope
