#include "runtime/attention/softmax_log.h"

#include <cmath>
#include <limits>

#include "probes/recorder/emit.h"

namespace ringscope {
namespace {

constexpr int kSamplesPerChunk = 1024;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// Natural LSE of the part, from its own sum relative to the maximum that was used. Unknown when that maximum
// does not describe the part (a broken maximum of -inf leaves no sum to read).
double own_lse(double m_own, double m_used, double sum_own) {
  if (std::isinf(m_own) && m_own < 0) return m_own;
  if (!std::isfinite(m_used) || !(sum_own > 0)) return kUnknown;
  return m_used + std::log(sum_own);
}

}  // namespace

SoftmaxLog::SoftmaxLog(Device& device, int head) : device_(device), head_(head) {}

bool SoftmaxLog::enabled() const { return rs_enabled() != 0; }

SoftmaxLog::Handle SoftmaxLog::open(const std::vector<SampledRow>& rows, int kv_owner, int parts,
                                    SoftmaxMethod method) {
  if (!enabled() || rows.empty()) return {};
  Handle handle{int(samples_.size()), int(rows.size())};
  for (const SampledRow& row : rows) {
    if (chunks_.empty() || used_ == kSamplesPerChunk) {
      chunks_.push_back(
          device_.allocate(DType::kF64, {kSamplesPerChunk, kFields}, MemCategory::kStatistics, "softmax statistics"));
      used_ = 0;
    }
    samples_.push_back({row, kv_owner, parts, method, device_.where(), int(chunks_.size()) - 1, used_ * kFields});
    ++used_;
  }
  return handle;
}

void SoftmaxLog::take(Stream& stream, const Handle& handle, Field field, const Tensor& tensor) {
  if (handle.first < 0) return;
  struct Copy {
    Tensor to;
    int64_t to_index, from_index;
  };
  std::vector<Copy> copies;
  std::vector<Tensor> reads, writes;
  const int64_t heads = tensor.count() / tensor.dim(0);
  for (int i = 0; i < handle.count; ++i) {
    const Sample& sample = samples_[handle.first + i];
    const Tensor to = chunks_[sample.chunk][sample.slot / kFields];
    copies.push_back({to, field, sample.row.local * heads});
    reads.push_back(tensor.rows(sample.row.local, sample.row.local + 1));
    writes.push_back(to);
  }
  device_.launch(stream, "statistics.softmax", reads, writes, [copies, tensor] {
    for (const Copy& copy : copies) copy.to.data<double>()[copy.to_index] = tensor.data<double>()[copy.from_index];
  });
}

bool SoftmaxLog::flush(Stream& stream) {
  if (samples_.empty()) return true;
  std::vector<std::vector<double>> values;
  for (const Tensor& chunk : chunks_) {
    values.push_back(device_.read_back(stream, chunk, "statistics"));
    if (values.back().empty()) return false;
  }
  for (const Sample& sample : samples_) {
    const double* v = &values[sample.chunk][sample.slot];
    const bool three_step = sample.method == SoftmaxMethod::kGlobalThreeStep;
    const bool result = sample.kv_owner == kResult;
    SoftmaxRowRecord record{};
    record.where = sample.where.pack();
    record.position = uint32_t(sample.row.row);
    record.head = uint16_t(head_);
    record.kv_owner = uint16_t(sample.kv_owner);
    record.sample = uint32_t(sample.row.sample);
    record.method = uint16_t(sample.method);
    record.parts = uint16_t(sample.parts);
    record.m_own = result ? kUnknown : v[kMOwn];
    record.m_used = three_step && !result ? v[kMUsed] : kUnknown;
    record.sum_used = three_step && !result ? v[kSumUsed] : kUnknown;
    record.lse_own = result ? kUnknown : three_step ? own_lse(v[kMOwn], v[kMUsed], v[kSumOwn]) : v[kLseOwn];
    record.lse_result = result ? v[kLseResult] : kUnknown;
    emit(RecordKind::kSoftmaxRow, record);
  }
  samples_.clear();
  chunks_.resize(1);  // keep one for the next step
  used_ = 0;
  return true;
}

}  // namespace ringscope
