#include "runtime/attention/softmax_log.h"

#include <cmath>
#include <limits>
#include <span>

#include "probes/recorder/emit.h"

namespace ringscope {
namespace {

constexpr int kRowsPerChunk = 1024;
constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

// The kernels' exp ends at exp(-87): further below the maximum that was used, a sum holds that end and not the part.
constexpr double kDeepestPart = 80;

// Natural LSE of the part, from its own sum relative to the maximum that was used. Unknown when that maximum
// does not describe the part (a broken maximum of -inf leaves no sum to read, one far above leaves the end of exp).
double own_lse(double m_own, double m_used, double sum_own) {
  if (std::isinf(m_own) && m_own < 0) return m_own;
  if (!std::isfinite(m_used) || !(sum_own > 0) || m_used - m_own > kDeepestPart) return kUnknown;
  return m_used + std::log(sum_own);
}

// Values of a watched tensor, in its row of the statistics tensor.
enum WatchField { kNorm, kNotNumbers, kWatchFields };
static_assert(int(kWatchFields) <= int(SoftmaxLog::kFields));

template <class T>
void watch_values(std::span<const T> values, double* out) {
  constexpr size_t kLanes = 8;  // sums that do not wait for each other
  double lanes[kLanes] = {}, sum = 0;
  int64_t bad = 0;
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += double(values[i + lane]) * double(values[i + lane]);
  for (; i < values.size(); ++i) sum += double(values[i]) * double(values[i]);
  for (const double lane : lanes) sum += lane;
  if (!std::isfinite(sum))
    for (const T value : values) bad += !std::isfinite(value);
  out[kNorm] = std::sqrt(sum);
  out[kNotNumbers] = double(bad);
}

// Values of a summary, in its row of the statistics tensor.
enum SummaryField { kEmpty, kBad, kMin, kMax, kMean, kSummaryFields };
static_assert(int(kSummaryFields) <= int(SoftmaxLog::kFields));

void summarise_rows(std::span<const double> lse, double* out) {
  int64_t empty = 0, bad = 0;
  double least = kUnknown, most = kUnknown, sum = 0;
  for (const double value : lse) {
    if (!std::isfinite(value)) {
      ++(value < 0 ? empty : bad);
      continue;
    }
    least = std::fmin(least, value);  // a NaN gives way
    most = std::fmax(most, value);
    sum += value;
  }
  const int64_t finite = int64_t(lse.size()) - empty - bad;
  out[kEmpty] = double(empty);
  out[kBad] = double(bad);
  out[kMin] = least;
  out[kMax] = most;
  out[kMean] = finite ? sum / double(finite) : kUnknown;
}

}  // namespace

SoftmaxLog::SoftmaxLog(Device& device, int head, int slice) : device_(device), head_(head), slice_(slice) {}

bool SoftmaxLog::enabled() const { return rs_enabled() != 0; }

SoftmaxLog::Slot SoftmaxLog::next_slot() {
  if (chunks_.empty() || used_ == kRowsPerChunk) {
    chunks_.push_back(
        device_.allocate(DType::kF64, {kRowsPerChunk, kFields}, MemCategory::kStatistics, "softmax statistics"));
    used_ = 0;
  }
  return {int(chunks_.size()) - 1, used_++};
}

SoftmaxLog::Handle SoftmaxLog::open(const std::vector<SampledRow>& rows, int kv_owner, int parts,
                                    SoftmaxMethod method) {
  if (!enabled() || rows.empty()) return {};
  Handle handle{int(samples_.size()), int(rows.size())};
  for (const SampledRow& row : rows) samples_.push_back({row, kv_owner, parts, method, device_.where(), next_slot()});
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
    const Tensor to = chunks_[sample.slot.chunk][sample.slot.row];
    copies.push_back({to, field, sample.row.local * heads});
    reads.push_back(tensor.rows(sample.row.local, sample.row.local + 1));
    writes.push_back(to);
  }
  device_.launch(stream, "statistics.softmax", reads, writes, [copies, tensor] {
    for (const Copy& copy : copies) copy.to.data<double>()[copy.to_index] = tensor.data<double>()[copy.from_index];
  });
}

void SoftmaxLog::summarise(Stream& stream, const Tensor& lse, int parts, SoftmaxMethod method) {
  if (!enabled()) return;
  const Summary& summary = summaries_.emplace_back(Summary{lse.count(), parts, method, device_.where(), next_slot()});
  const Tensor to = chunks_[summary.slot.chunk][summary.slot.row];
  device_.launch(stream, "statistics.lse", {lse}, {to},
                 [lse, to] { summarise_rows(std::span(lse.data<double>(), size_t(lse.count())), to.data<double>()); });
}

void SoftmaxLog::watch(Stream& stream, std::span<const Watched> tensors) {
  if (!enabled()) return;
  std::vector<Tensor> reads, writes;
  for (const Watched& watched : tensors) {
    const Watch& watch =
        watches_.emplace_back(Watch{watched.name, watched.role, watched.tensor.count(), device_.where(), next_slot()});
    reads.push_back(watched.tensor);
    writes.push_back(chunks_[watch.slot.chunk][watch.slot.row]);
  }
  device_.launch(stream, "statistics.attention", reads, writes, [reads, writes] {
    for (size_t i = 0; i < reads.size(); ++i) {
      const size_t n = size_t(reads[i].count());
      double* out = writes[i].data<double>();
      if (reads[i].dtype() == DType::kF64) watch_values(std::span<const double>(reads[i].data<double>(), n), out);
      else watch_values(std::span<const float>(reads[i].data<float>(), n), out);
    }
  });
}

bool SoftmaxLog::flush(Stream& stream) {
  if (samples_.empty() && summaries_.empty() && watches_.empty()) return true;
  std::vector<std::vector<double>> values;
  for (size_t i = 0; i < chunks_.size(); ++i) {  // of the last one only what was written
    const Tensor taken = chunks_[i].rows(0, i + 1 == chunks_.size() ? used_ : kRowsPerChunk);
    values.push_back(device_.read_back(stream, taken, "statistics"));
    if (values.back().empty()) return false;
  }
  const auto at = [&](const Slot& slot) { return &values[slot.chunk][slot.row * kFields]; };
  for (const Sample& sample : samples_) record(sample, at(sample.slot));
  for (const Summary& summary : summaries_) record(summary, at(summary.slot));
  for (const Watch& watch : watches_) record(watch, at(watch.slot));
  samples_.clear();
  summaries_.clear();
  watches_.clear();
  chunks_.resize(1);  // keep one for the next step
  used_ = 0;
  return true;
}

void SoftmaxLog::record(const Sample& sample, const double* v) const {
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

void SoftmaxLog::record(const Summary& summary, const double* v) const {
  SoftmaxStatRecord record{};
  record.where = summary.where.pack();
  record.rows = uint32_t(summary.rows);
  record.empty = uint32_t(v[kEmpty]);
  record.bad = uint32_t(v[kBad]);
  record.method = uint16_t(summary.method);
  record.parts = uint16_t(summary.parts);
  record.lse_min = v[kMin];
  record.lse_max = v[kMax];
  record.lse_mean = v[kMean];
  emit(RecordKind::kSoftmaxStat, record);
}

void SoftmaxLog::record(const Watch& watch, const double* v) const {
  TensorStatRecord record{};
  record.where = watch.where.pack();
  record.name = rs_intern(watch.name);
  record.role = uint16_t(watch.role);
  record.part = uint16_t(slice_);
  record.count = uint64_t(watch.count);
  record.norm = v[kNorm];
  record.bad = uint64_t(v[kNotNumbers]);
  emit(RecordKind::kTensorStat, record);
}

}  // namespace ringscope
