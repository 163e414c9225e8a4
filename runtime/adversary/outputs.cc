#include "runtime/adversary/outputs.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace ringscope {
namespace {

bool is_floating(DType type) { return type == DType::kF32 || type == DType::kF64; }

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.buffer() == b.buffer() && a.offset_bytes() < b.offset_bytes() + b.bytes() &&
         b.offset_bytes() < a.offset_bytes() + a.bytes();
}

// The input that could be taken for output `i` by mistake: same type and count, other memory. Null = none. Of several,
// the k-th for the k-th output that has the same choice.
const Tensor* like_input(std::span<const Tensor> reads, std::span<const Tensor> writes, size_t i) {
  const Tensor& out = writes[i];
  const auto alike = [&](const Tensor& t) { return t.dtype() == out.dtype() && t.count() == out.count(); };
  size_t skip = size_t(std::count_if(writes.begin(), writes.begin() + std::ptrdiff_t(i), alike));
  const Tensor* found = nullptr;
  for (const Tensor& read : reads) {
    if (!alike(read) || std::any_of(writes.begin(), writes.end(), [&](const Tensor& w) { return same_bytes(read, w); }))
      continue;
    found = &read;
    if (skip-- == 0) break;
  }
  return found;
}

template <class F>
void for_floats(const Tensor& t, F change) {
  if (t.dtype() == DType::kF64) std::for_each_n(t.data<double>(), t.count(), change);
  else std::for_each_n(t.data<float>(), t.count(), change);
}

void change(const Tensor& out, MutationOp op, double value) {
  if (op == MutationOp::kZero) {
    const int64_t rows = out.dim(0), row_bytes = rows ? out.bytes() / rows : 0;
    std::memset(out.data<std::byte>(), 0, size_t((rows + 1) / 2 * row_bytes));
    return;
  }
  if (!is_floating(out.dtype())) return;
  if (op == MutationOp::kScale) for_floats(out, [=](auto& x) { x = std::decay_t<decltype(x)>(double(x) * value); });
  if (op == MutationOp::kShift) for_floats(out, [=](auto& x) { x = std::decay_t<decltype(x)>(double(x) + value); });
  if (op == MutationOp::kNan)
    for_floats(out, [](auto& x) { x = std::numeric_limits<std::decay_t<decltype(x)>>::quiet_NaN(); });
}

}  // namespace

std::vector<Site::Output> outputs_of(const Launch& launch) {
  std::vector<Site::Output> out;
  for (size_t i = 0; i < launch.writes.size(); ++i)
    out.push_back(
        {launch.writes[i].dtype(), launch.writes[i].count(), like_input(launch.reads, launch.writes, i) != nullptr});
  return out;
}

std::function<void()> with_changed_output(const Launch& launch, MutationOp op, double value) {
  std::vector<Tensor> writes(launch.writes.begin(), launch.writes.end());
  std::vector<std::pair<Tensor, Tensor>> copies;  // (from, to)
  if (op == MutationOp::kInput)
    for (size_t i = 0; i < writes.size(); ++i)
      if (const Tensor* from = like_input(launch.reads, launch.writes, i)) copies.emplace_back(*from, writes[i]);
  return Device::without_accounts([fn = launch.fn, writes, copies, op, value] {
    fn();
    for (const auto& [from, to] : copies) std::memcpy(to.data<std::byte>(), from.data<std::byte>(), size_t(to.bytes()));
    if (op != MutationOp::kInput)
      for (const Tensor& out : writes) change(out, op, value);
  });
}

std::function<void()> with_kept_output(const Launch& launch, KeptOutput keep) {
  std::vector<Tensor> writes(launch.writes.begin(), launch.writes.end());
  return Device::without_accounts([fn = launch.fn, writes, keep] {
    fn();
    keep->clear();
    for (const Tensor& out : writes) {
      const std::byte* from = out.data<std::byte>();
      keep->emplace_back(from, from + out.bytes());
    }
  });
}

std::function<void()> with_previous_output(const Launch& launch, KeptOutput kept) {
  std::vector<Tensor> writes(launch.writes.begin(), launch.writes.end());
  return Device::without_accounts([fn = launch.fn, writes, kept] {
    fn();
    for (size_t i = 0; i < writes.size(); ++i)
      std::memcpy(writes[i].data<std::byte>(), (*kept)[i].data(), (*kept)[i].size());
  });
}

}  // namespace ringscope
