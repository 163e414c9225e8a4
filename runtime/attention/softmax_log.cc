#include "runtime/attention/softmax_log.h"

#include <cmath>
#include <limits>
#include <span>

#include "probes/recorder/emit.h"

namespace ringscope {
namespace {

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

template <class T>
void watch_values(std::span<const T> values, TensorStatRecord& out) {
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
  out.count = values.size();
  out.norm = std::sqrt(sum);
  out.bad = uint64_t(bad);
}

void summarise_rows(std::span<const double> lse, SoftmaxStatRecord& out) {
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
  out.rows = uint32_t(lse.size());
  out.empty = uint32_t(empty);
  out.bad = uint32_t(bad);
  out.lse_min = least;
  out.lse_max = most;
  out.lse_mean = finite ? sum / double(finite) : kUnknown;
}

}  // namespace

// Shared by the launches that fill it and, on the same stream, the last of them that writes it down.
struct SoftmaxLog::Samples {
  struct Sample {
    SampledRow row;
    double value[kFields];
  };
  std::vector<Sample> samples;
  unsigned taken = 0;  // bit per field
  Where where;
  int kv_owner = 0, parts = 0, local_head = 0, head = 0;
  SoftmaxMethod method = SoftmaxMethod::kLseMerge;

  bool result() const { return kv_owner == kResult; }
  bool three_step() const { return method == SoftmaxMethod::kGlobalThreeStep; }
  unsigned needed() const {
    if (result()) return 1u << kLseResult;
    if (three_step()) return 1u << kMOwn | 1u << kMUsed | 1u << kSumOwn | 1u << kSumUsed;
    return 1u << kMOwn | 1u << kLseOwn;
  }
  void record() const {
    for (const Sample& sample : samples) {
      const double* v = sample.value;
      SoftmaxRowRecord record{};
      record.where = where.pack();
      record.position = uint32_t(sample.row.row);
      record.head = uint16_t(head);
      record.kv_owner = uint16_t(kv_owner);
      record.sample = uint32_t(sample.row.sample);
      record.method = uint16_t(method);
      record.parts = uint16_t(parts);
      record.m_own = result() ? kUnknown : v[kMOwn];
      record.m_used = three_step() && !result() ? v[kMUsed] : kUnknown;
      record.sum_used = three_step() && !result() ? v[kSumUsed] : kUnknown;
      record.lse_own = result() ? kUnknown : three_step() ? own_lse(v[kMOwn], v[kMUsed], v[kSumOwn]) : v[kLseOwn];
      record.lse_result = result() ? v[kLseResult] : kUnknown;
      emit(RecordKind::kSoftmaxRow, record);
    }
  }
};

SoftmaxLog::SoftmaxLog(Device& device, int first_head, int slice)
    : device_(device), first_head_(first_head), slice_(slice) {}

bool SoftmaxLog::enabled() const { return rs_enabled() != 0; }

int SoftmaxLog::sampled_head(const Where& where, int64_t heads) {
  return int((int64_t(where.step) + where.layer + where.microbatch + 3) % heads);  // -1 = unknown
}

SoftmaxLog::Handle SoftmaxLog::open(const std::vector<SampledRow>& rows, int kv_owner, int parts, SoftmaxMethod method,
                                    int64_t heads) {
  if (!enabled() || rows.empty()) return nullptr;
  auto handle = std::make_shared<Samples>();
  for (const SampledRow& row : rows) handle->samples.push_back({row, {}});
  handle->where = device_.where();
  handle->kv_owner = kv_owner;
  handle->parts = parts;
  handle->local_head = sampled_head(device_.where(), heads);
  handle->head = first_head_ + handle->local_head;
  handle->method = method;
  return handle;
}

void SoftmaxLog::take(Stream& stream, const Handle& handle, std::initializer_list<Taken> fields) {
  if (!handle) return;
  std::vector<Tensor> reads;
  std::vector<std::pair<Field, Tensor>> from;
  for (const Taken& taken : fields) {
    for (const Samples::Sample& sample : handle->samples)
      reads.push_back(taken.tensor.rows(sample.row.local, sample.row.local + 1));
    from.emplace_back(taken.field, taken.tensor);
  }
  device_.launch(stream, "statistics.softmax", reads, std::span<const Tensor>(), [handle, from] {
    const bool complete = (handle->taken & handle->needed()) == handle->needed();
    for (const auto& [field, tensor] : from) {
      const int64_t heads = tensor.count() / tensor.dim(0);
      for (Samples::Sample& sample : handle->samples)
        sample.value[field] = tensor.data<double>()[sample.row.local * heads + handle->local_head];
      handle->taken |= 1u << field;
    }
    if (!complete && (handle->taken & handle->needed()) == handle->needed()) handle->record();
  });
}

void SoftmaxLog::summarise(Stream& stream, const Tensor& lse, int parts, SoftmaxMethod method) {
  if (!enabled()) return;
  SoftmaxStatRecord record{};
  record.where = device_.where().pack();
  record.method = uint16_t(method);
  record.parts = uint16_t(parts);
  device_.launch(stream, "statistics.lse", {lse}, {}, [lse, record] {
    SoftmaxStatRecord full = record;
    summarise_rows(std::span(lse.data<double>(), size_t(lse.count())), full);
    emit(RecordKind::kSoftmaxStat, full);
  });
}

void SoftmaxLog::watch(Stream& stream, std::span<const Watched> tensors) {
  if (!enabled()) return;
  std::vector<Tensor> reads;
  std::vector<TensorStatRecord> records;
  for (const Watched& watched : tensors) {
    TensorStatRecord record{};
    record.where = device_.where().pack();
    record.name = device_.intern(watched.name);
    record.role = uint16_t(watched.role);
    record.part = uint16_t(slice_);
    records.push_back(record);
    reads.push_back(watched.tensor);
  }
  device_.launch(stream, "statistics.attention", reads, std::span<const Tensor>(), [reads, records] {
    for (size_t i = 0; i < reads.size(); ++i) {
      const size_t n = size_t(reads[i].count());
      TensorStatRecord full = records[i];
      if (reads[i].dtype() == DType::kF64) watch_values(std::span<const double>(reads[i].data<double>(), n), full);
      else watch_values(std::span<const float>(reads[i].data<float>(), n), full);
      emit(RecordKind::kTensorStat, full);
    }
  });
}

}  // namespace ringscope
