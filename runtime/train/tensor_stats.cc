#include "runtime/train/tensor_stats.h"

#include <cmath>
#include <cstring>

#include "probes/recorder/emit.h"

namespace ringscope {
namespace {

enum Column { kLow, kHigh, kNorm, kBad, kColumns };  // a checksum as two exact fp64 halves

TensorStat stat_of(const Tensor& tensor) {
  const size_t n = size_t(tensor.count());
  return tensor.dtype() == DType::kF64 ? tensor_stat(std::span<const double>(tensor.data<double>(), n))
                                       : tensor_stat(std::span<const float>(tensor.data<float>(), n));
}

// A fused weight has several names.
std::string checkpoint_names(const ParameterSpec& spec) {
  std::string names;
  for (const Piece& piece : spec.pieces)
    if (names.find(piece.name) == std::string::npos) names += (names.empty() ? "" : "+") + piece.name;
  return names.empty() ? spec.name : names;
}

uint32_t low_half(uint64_t word) { return uint32_t(word); }
uint32_t high_half(uint64_t word) { return uint32_t(word >> 32); }

}  // namespace

template <class T>
TensorStat tensor_stat(std::span<const T> values) {
  TensorStat out;
  double squares = 0;
  for (const T value : values) {
    out.bad += !std::isfinite(value);
    squares += double(value) * double(value);
  }
  out.norm = std::sqrt(squares);
  out.checksum = 0xcbf29ce484222325;
  const char* bytes = reinterpret_cast<const char*>(values.data());
  for (size_t at = 0; at < values.size_bytes(); at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + at, std::min<size_t>(8, values.size_bytes() - at));
    out.checksum = (out.checksum ^ word) * 0x100000001b3;
  }
  return out;
}
template TensorStat tensor_stat(std::span<const float>);
template TensorStat tensor_stat(std::span<const double>);

void TensorStats::take(ParameterStore& store) {
  if (!rs_enabled()) return;
  Device& device = *context_.device;
  std::vector<Tensor> reads;
  for (Parameter& p : store.all()) reads.insert(reads.end(), {p.grad, p.value});
  values_ =
      device.allocate(DType::kF64, {int64_t(reads.size()), kColumns}, MemCategory::kStatistics, "parameter statistics");
  device.launch(*context_.compute, "statistics.parameters", std::span<const Tensor>(reads),
                std::span<const Tensor>(&values_, 1), [reads, to = values_] {
                  double* row = to.data<double>();
                  for (const Tensor& tensor : reads) {
                    const TensorStat stat = stat_of(tensor);
                    row[kLow] = low_half(stat.checksum);
                    row[kHigh] = high_half(stat.checksum);
                    row[kNorm] = stat.norm;
                    row[kBad] = double(stat.bad);
                    row += kColumns;
                  }
                });
}

bool TensorStats::flush(ParameterStore& store) {
  if (!values_.defined()) return true;
  Device& device = *context_.device;
  const std::vector<double> values = device.read_back(*context_.compute, values_, "parameter statistics");
  values_ = Tensor();
  if (values.empty()) return false;
  if (names_.empty())
    for (const Parameter& p : store.all()) names_.push_back(rs_intern(checkpoint_names(p.spec).c_str()));
  const double* row = values.data();
  size_t index = 0;
  for (const Parameter& p : store.all()) {
    ScopedWhere place(device, [&](Where& w) { w.layer = int16_t(p.spec.layer), w.pass = Pass::kOptimizer; });
    for (const TensorRole role : {TensorRole::kGradient, TensorRole::kParameter}) {
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
