#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/layout/layout.h"
#include "runtime/oracle/oracle.h"
#include "tracedb/base/check.h"

namespace ringscope::oracle {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

double dot(const double* a, const double* b, int64_t d) {
  double sum = 0;
  for (int64_t x = 0; x < d; ++x) sum += a[x] * b[x];
  return sum;
}

// One query token i (counted through the batch) and one of its heads.
struct Row {
  const Attention& a;
  int64_t i, head;

  int64_t sample() const { return i / a.tq; }
  int64_t stat_at() const { return i * a.hq + head; }
  int64_t q_at() const { return stat_at() * a.d; }
  int64_t k_at(int64_t j) const { return (j * a.hk + head / (a.hq / a.hk)) * a.d; }
  double score(int64_t j) const { return a.scale * dot(&a.q[q_at()], &a.k[k_at(j)], a.d); }
  double keep(int64_t j) const { return a.keep ? a.keep(sample(), head, a.q_row[i], a.k_row[j]) : 1; }

  std::vector<int64_t> visible() const {
    std::vector<int64_t> keys;
    for (int64_t j = sample() * a.tk; j < (sample() + 1) * a.tk; ++j)
      if (may_see(a.q_row[i], a.q_document[i], a.k_row[j], a.k_document[j])) keys.push_back(j);
    return keys;
  }
};

template <class Visit>
void each_row(const Attention& a, Visit visit) {
  RS_CHECK(a.hk > 0 && a.hq % a.hk == 0, "query heads are a multiple of K/V heads");
  RS_CHECK(int64_t(a.q.size()) == a.batch * a.tq * a.hq * a.d, "q has its shape");
  RS_CHECK(int64_t(a.k.size()) == a.batch * a.tk * a.hk * a.d && a.v.size() == a.k.size(), "k, v have their shape");
  for (int64_t i = 0; i < a.batch * a.tq; ++i)
    for (int64_t head = 0; head < a.hq; ++head) visit(Row{a, i, head});
}

}  // namespace

AttentionResult attention(const Attention& a) {
  AttentionResult out;
  out.o.assign(a.q.size(), 0);
  out.lse.assign(a.batch * a.tq * a.hq, kMinusInfinity);
  out.m = out.lse;
  each_row(a, [&](const Row& row) {
    const std::vector<int64_t> keys = row.visible();
    if (keys.empty()) return;
    double m = kMinusInfinity, sum = 0;
    for (int64_t j : keys) m = std::max(m, row.score(j));
    for (int64_t j : keys) sum += std::exp(row.score(j) - m);
    for (int64_t j : keys) {
      const double weight = std::exp(row.score(j) - m) / sum * row.keep(j);
      for (int64_t x = 0; x < a.d; ++x) out.o[row.q_at() + x] += weight * a.v[row.k_at(j) + x];
    }
    out.m[row.stat_at()] = m;
    const bool none = std::all_of(keys.begin(), keys.end(), [&](int64_t j) { return row.score(j) == kMinusInfinity; });
    out.lse[row.stat_at()] = none ? kMinusInfinity : m + std::log(sum);  // log 0; o keeps the NaN of 0/0
  });
  return out;
}

// P = exp(s - lse); dV = keep P dO; dP = keep dO.v; dS = P (dP - delta); dQ = scale dS k; dK = scale dS q.
AttentionGradient attention_backward(const Attention& a, const std::vector<double>& d_o, const std::vector<double>& lse,
                                     const std::vector<double>& delta) {
  AttentionGradient g;
  g.dq.assign(a.q.size(), 0);
  g.dk.assign(a.k.size(), 0);
  g.dv.assign(a.v.size(), 0);
  each_row(a, [&](const Row& row) {
    for (int64_t j : row.visible()) {
      const int64_t q = row.q_at(), k = row.k_at(j);
      const double p = std::exp(row.score(j) - lse[row.stat_at()]), keep = row.keep(j);
      const double dp = keep * dot(&d_o[q], &a.v[k], a.d);
      const double ds = a.scale * p * (dp - delta[row.stat_at()]);
      for (int64_t x = 0; x < a.d; ++x) {
        g.dv[k + x] += keep * p * d_o[q + x];
        g.dq[q + x] += ds * a.k[k + x];
        g.dk[k + x] += ds * a.q[q + x];
      }
    }
  });
  return g;
}

std::vector<double> attention_delta(const std::vector<double>& o, const std::vector<double>& d_o, int64_t d) {
  std::vector<double> delta;
  for (size_t at = 0; at < o.size(); at += size_t(d)) delta.push_back(dot(&o[at], &d_o[at], d));
  return delta;
}

}  // namespace ringscope::oracle
