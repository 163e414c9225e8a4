#include "runtime/kernels/attention_row.h"

#include <cmath>
#include <vector>

#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/cpu/rng.h"
#include "runtime/layout/layout.h"

namespace ringscope::kernels {
namespace {

// The dropout factor of a key of this query row: the generator's contract in kernels.h.
class Kept {
 public:
  Kept(const AttentionDropout& d, const RowQuery& query) : p_(d.p) {
    if (p_ == 0) return;
    key_ = rng::fold(rng::mix(d.seed ^ 0xA77E4710ull), uint64_t(uint32_t(d.step)));
    key_ = rng::fold(key_, uint64_t(uint32_t(d.layer)));
    key_ = rng::fold(key_, uint64_t(uint32_t(query.sample)));
    key_ = rng::fold(key_, uint64_t(d.first_head + query.head));
    key_ = rng::fold(key_, uint64_t(uint32_t(query.row)));
  }
  double factor(int32_t key_row) const {
    if (p_ == 0) return 1;
    const uint64_t drawn = rng::draw(rng::mix(key_ ^ rng::word(uint64_t(uint32_t(key_row)))));
    return drawn >= rng::threshold(p_) ? 1 / (1 - p_) : 0;
  }

 private:
  double p_;
  uint64_t key_ = 0;
};

struct Product {
  double sum = 0, size = 0;  // of terms, of their absolute values
};
constexpr int kLanes = 4;  // sums that do not wait for each other

template <class T>
Product product(const double* a, const T* b, int64_t n) {
  double sum[kLanes] = {}, size[kLanes] = {};
  int64_t x = 0;
  for (; x + kLanes <= n; x += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) {
      const double term = a[x + lane] * double(b[x + lane]);
      sum[lane] += term;
      size[lane] += std::fabs(term);
    }
  for (; x < n; ++x) sum[0] += a[x] * double(b[x]), size[0] += std::fabs(a[x] * double(b[x]));
  return {(sum[0] + sum[1]) + (sum[2] + sum[3]), (size[0] + size[1]) + (size[2] + size[3])};
}

template <class T>
RowValues row_of(const RowQuery& query, const RowKeys& keys, const AttentionDropout& dropout) {
  const int64_t heads = query.q.dim(1), groups = keys.kv.dim(2), d = query.q.dim(2);
  const int64_t group = query.head / (heads / groups), stride = groups * d;
  const T* q = query.q.data<T>() + (query.token * heads + query.head) * d;
  const T* k = keys.kv.data<T>() + keys.first * stride + group * d;
  const T* v = k + keys.kv.count() / 2;
  const double scale = 1 / std::sqrt(double(d));
  std::vector<double> scaled(static_cast<size_t>(d)), factors(scaled.size());
  for (int64_t x = 0; x < d; ++x) scaled[size_t(x)] = scale * double(q[x]), factors[size_t(x)] = row_factor(x);

  RowValues out{-INFINITY, -INFINITY, 0, 0, 0, 0};
  std::vector<double> scores;
  std::vector<int64_t> seen;
  for (size_t j = 0; j < keys.row.size(); ++j) {
    if (!may_see(query.row, query.document, keys.row[j], keys.document[j])) continue;
    const Product score = product(scaled.data(), k + int64_t(j) * stride, d);
    seen.push_back(int64_t(j));
    scores.push_back(score.sum);
    out.score_noise = std::fmax(out.score_noise, score.size * std::sqrt(double(d)));
    out.m = score.sum > out.m ? score.sum : out.m;
  }
  out.visible = uint32_t(seen.size());
  if (seen.empty()) return out;
  const Kept kept(dropout, query);
  double sum = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    const double p = std::exp(scores[i] - out.m);
    const Product value = product(factors.data(), v + seen[i] * stride, d);
    const double weight = p * kept.factor(keys.row[size_t(seen[i])]);
    sum += p;
    out.out += weight * value.sum;
    out.out_size += weight * value.size;
  }
  out.lse = out.m + std::log(sum);
  out.out /= sum;
  out.out_size /= sum;
  return out;
}

}  // namespace

double row_factor(int64_t x) {
  const uint64_t bits = rng::mix(uint64_t(x) + 1);
  const double size = 0.5 + double(bits >> 12) * 0x1p-52;  // [0.5, 1.5)
  return bits & 1 ? size : -size;
}

double row_product(const Tensor& o, int64_t at) {
  const int64_t d = o.dim(o.rank() - 1);
  double sum = 0;
  by_type(o.dtype(), [&](auto zero) {
    const auto* row = o.data<decltype(zero)>() + at;
    for (int64_t x = 0; x < d; ++x) sum += row_factor(x) * double(row[x]);
  });
  return sum;
}

RowValues attention_row(const RowQuery& query, const RowKeys& keys, const AttentionDropout& dropout) {
  RowValues out{};
  by_type(query.q.dtype(), [&](auto zero) { out = row_of<decltype(zero)>(query, keys, dropout); });
  return out;
}

}  // namespace ringscope::kernels
