// The attention kernels against the oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "runtime/kernels/cpu/flash.h"
#include "runtime/oracle/oracle.h"
#include "tests/runtime/kernels/lab.h"

namespace ringscope {
namespace {

using testing::distance;
using testing::Lab;
using testing::normal;
using testing::Numbers;
using testing::on_device;

constexpr double kInf = std::numeric_limits<double>::infinity();

enum class Pattern { kCausal, kFull, kDocuments, kPadded, kZigzag, kLater };

// Rows and documents of `count` tokens of each sample.
void set_tokens(Pattern pattern, bool keys, int64_t batch, int64_t count, std::vector<int32_t>& row,
                std::vector<int32_t>& document) {
  for (int64_t b = 0; b < batch; ++b)
    for (int32_t i = 0; i < count; ++i) {
      int32_t r = i, d = 0;
      if (pattern == Pattern::kFull && !keys) r += 100000;
      if (pattern == Pattern::kLater && keys) r += 100000;  // no query sees any key
      if (pattern == Pattern::kDocuments) d = i < 17 + b ? 0 : i < 57 ? 1 : 2;
      if (pattern == Pattern::kPadded) d = i >= count - 9 - b ? -1 : 0;
      if (pattern == Pattern::kZigzag && !keys) r = i < count / 2 ? i : i + 40;
      row.push_back(r);
      document.push_back(d);
    }
}

oracle::Attention problem(Pattern pattern, int64_t batch, int64_t tq, int64_t tk, int64_t hq, int64_t hk, int64_t d,
                          uint32_t seed) {
  oracle::Attention a;
  a.batch = batch, a.tq = tq, a.tk = tk, a.hq = hq, a.hk = hk, a.d = d;
  a.scale = 1 / std::sqrt(double(d));
  a.q = normal(batch * tq * hq * d, seed);
  a.k = normal(batch * tk * hk * d, seed + 1);
  a.v = normal(batch * tk * hk * d, seed + 2);
  set_tokens(pattern, false, batch, tq, a.q_row, a.q_document);
  set_tokens(pattern, true, batch, tk, a.k_row, a.k_document);
  return a;
}

// A problem on the device, and its results.
struct OnDevice {
  const Lab& lab;
  const oracle::Attention& a;
  DType type;
  Tensor q, kv, o, lse, m;
  kernels::TokenInfo qi, ki;

  OnDevice(const Lab& lab, const oracle::Attention& a, DType type) : lab(lab), a(a), type(type) {
    Numbers both = a.k;
    both.insert(both.end(), a.v.begin(), a.v.end());
    q = lab.tensor(type, {a.batch * a.tq, a.hq, a.d}, a.q);
    kv = lab.tensor(type, {2, a.batch * a.tk, a.hk, a.d}, std::move(both));
    o = lab.empty(type, {a.batch * a.tq, a.hq, a.d});
    lse = lab.empty(DType::kF64, {a.batch * a.tq, a.hq});
    m = lab.empty(DType::kF64, {a.batch * a.tq, a.hq});
    qi = {lab.ints(a.q_row), lab.ints(a.q_document), a.batch};
    ki = {lab.ints(a.k_row), lab.ints(a.k_document), a.batch};
  }
  oracle::AttentionResult forward(const kernels::AttentionDropout& dropout = {}) {
    kernels::flash_forward(lab.device, lab.stream, q, kv, qi, ki, a.scale, dropout, o, lse, m);
    return {lab.read(o), lab.read(lse), lab.read(m)};
  }
  oracle::AttentionGradient backward(const Numbers& d_o, const Numbers& lse_values, const Numbers& delta,
                                     double start = 0, const kernels::AttentionDropout& dropout = {}) {
    const Tensor d_o_t = lab.tensor(type, {a.batch * a.tq, a.hq, a.d}, d_o);
    const Tensor lse_t = lab.tensor(DType::kF64, {a.batch * a.tq, a.hq}, lse_values);
    const Tensor delta_t = lab.tensor(DType::kF64, {a.batch * a.tq, a.hq}, delta);
    const Tensor dq = lab.tensor(type, {a.batch * a.tq, a.hq, a.d}, Numbers(a.q.size(), start));
    const Tensor dkv = lab.tensor(type, {2, a.batch * a.tk, a.hk, a.d}, Numbers(2 * a.k.size(), start));
    kernels::flash_backward(lab.device, lab.stream, q, kv, d_o_t, lse_t, delta_t, qi, ki, a.scale, dropout, dq, dkv);
    const Numbers both = lab.read(dkv);
    const auto half = both.begin() + int64_t(a.k.size());
    return {lab.read(dq), Numbers(both.begin(), half), Numbers(half, both.end())};
  }
};

struct Shape {
  int64_t batch, tq, tk, hq, hk, d;
};
const Shape kShapes[] = {{1, 1, 1, 1, 1, 1},   {2, 53, 53, 4, 2, 12}, {1, 130, 70, 6, 2, 64}, {1, 70, 200, 2, 1, 128},
                         {2, 96, 96, 4, 4, 8}, {1, 64, 64, 3, 1, 80}, {3, 65, 129, 2, 2, 5},  {1, 7, 300, 4, 1, 33}};
const Pattern kPatterns[] = {Pattern::kCausal, Pattern::kFull, Pattern::kDocuments, Pattern::kPadded, Pattern::kZigzag};

void each_problem(const std::function<void(const Lab&, const oracle::Attention&)>& visit) {
  on_device([&](const Lab& lab) {
    uint32_t seed = 1;
    for (const Shape& s : kShapes)
      for (Pattern pattern : kPatterns) {
        SCOPED_TRACE(::testing::Message() << "tq " << s.tq << " tk " << s.tk << " heads " << s.hq << "/" << s.hk
                                          << " d " << s.d << " pattern " << int(pattern));
        visit(lab, problem(pattern, s.batch, s.tq, s.tk, s.hq, s.hk, s.d, seed += 10));
      }
  });
}

TEST(FlashForward, MatchesOracle) {
  each_problem([](const Lab& lab, const oracle::Attention& a) {
    const auto want = oracle::attention(a);
    for (DType type : {DType::kF64, DType::kF32}) {
      const auto got = OnDevice(lab, a, type).forward();
      const double limit = type == DType::kF64 ? 1e-14 : 1e-6;
      EXPECT_LE(distance(got.o, want.o), limit);
      EXPECT_LE(distance(got.lse, want.lse), limit);
      EXPECT_LE(distance(got.m, want.m), limit);
    }
  });
}

TEST(FlashBackward, MatchesOracleAndAdds) {
  each_problem([](const Lab& lab, const oracle::Attention& a) {
    const auto forward = oracle::attention(a);
    const Numbers d_o = normal(int64_t(a.q.size()), 77);
    const Numbers delta = oracle::attention_delta(forward.o, d_o, a.d);
    const auto want = oracle::attention_backward(a, d_o, forward.lse, delta);
    for (DType type : {DType::kF64, DType::kF32}) {
      const auto got = OnDevice(lab, a, type).backward(d_o, forward.lse, delta);
      const double limit = type == DType::kF64 ? 1e-13 : 2e-6;
      if (a.tk > 1) {  // with one key the weights are constant and the gradient is rounding
        EXPECT_LE(distance(got.dq, want.dq), limit);
        EXPECT_LE(distance(got.dk, want.dk), limit);
      }
      EXPECT_LE(distance(got.dv, want.dv), limit);
    }
    const auto added = OnDevice(lab, a, DType::kF64).backward(d_o, forward.lse, delta, 3);
    Numbers dv = want.dv;
    for (double& value : dv) value += 3;
    EXPECT_LE(distance(added.dv, dv), 1e-14);
  });
}

// The oracle is checked against nothing but itself: its gradients by central differences of its values.
TEST(Oracle, GradientsByCentralDifferences) {
  oracle::Attention a = problem(Pattern::kDocuments, 2, 9, 11, 4, 2, 3, 5);
  a.keep = [](int64_t sample, int64_t head, int32_t i, int32_t j) { return (sample + head + i + 2 * j) % 3 ? 1.5 : 0; };
  const auto result = oracle::attention(a);
  const Numbers d_o = normal(int64_t(a.q.size()), 3);
  const auto g = oracle::attention_backward(a, d_o, result.lse, oracle::attention_delta(result.o, d_o, a.d));
  const auto with = [&](Numbers oracle::Attention::*part) {
    return [&a, part](const Numbers& x) {
      oracle::Attention moved = a;
      moved.*part = x;
      return oracle::attention(moved).o;
    };
  };
  EXPECT_LE(testing::gradient_error(with(&oracle::Attention::q), a.q, d_o, g.dq), 1e-9);
  EXPECT_LE(testing::gradient_error(with(&oracle::Attention::k), a.k, d_o, g.dk), 1e-9);
  EXPECT_LE(testing::gradient_error(with(&oracle::Attention::v), a.v, d_o, g.dv), 1e-9);
}

TEST(FlashForward, RowThatSeesNothingIsTheIdentity) {
  on_device([](const Lab& lab) {
    for (DType type : {DType::kF64, DType::kF32})
      for (int64_t t : {5, 64, 100}) {
        const oracle::Attention a = problem(Pattern::kLater, 1, t, t, 2, 1, 12, 9);
        OnDevice run(lab, a, type);
        const auto got = run.forward();
        EXPECT_EQ(got.o, Numbers(a.q.size(), 0));
        EXPECT_EQ(got.lse, Numbers(a.tq * a.hq, -kInf));
        EXPECT_EQ(got.m, Numbers(a.tq * a.hq, -kInf));
        // Also where only part of the rows sees something, and with the lse of such a row.
        const auto g = run.backward(normal(int64_t(a.q.size()), 1), got.lse, Numbers(got.lse.size(), 0));
        EXPECT_EQ(g.dq, Numbers(a.q.size(), 0));
        EXPECT_EQ(g.dk, Numbers(a.k.size(), 0));
      }
  });
}

TEST(FlashForward, LargeScores) {
  on_device([](const Lab& lab) {
    for (double factor : {30.0, 1000.0}) {  // scores of some hundreds and tens of thousands
      oracle::Attention a = problem(Pattern::kCausal, 1, 100, 100, 2, 1, 16, 4);
      for (double& x : a.q) x = float(x * factor);
      const auto want = oracle::attention(a);
      const auto got64 = OnDevice(lab, a, DType::kF64).forward();
      EXPECT_LE(distance(got64.o, want.o), 1e-11);
      EXPECT_LE(distance(got64.lse, want.lse), 1e-14);
      const auto got32 = OnDevice(lab, a, DType::kF32).forward();
      EXPECT_LE(distance(got32.o, want.o), 1e-6 * factor);
      EXPECT_LE(distance(got32.lse, want.lse), 1e-6);
    }
  });
}

// Every instruction set that this processor has computes the same attention.
TEST(FlashForward, InstructionSetsAgree) {
  std::vector<const flash::Kernels*> all = {&flash::baseline()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&flash::avx2());
  if (flash::best().vector_bytes == 64) all.push_back(&flash::avx512());
  const oracle::Attention a = problem(Pattern::kDocuments, 1, 150, 150, 4, 2, 20, 8);
  const auto want = oracle::attention(a);
  const Numbers d_o = normal(int64_t(a.q.size()), 2);
  const Numbers delta = oracle::attention_delta(want.o, d_o, a.d);
  const auto want_g = oracle::attention_backward(a, d_o, want.lse, delta);
  for (const flash::Kernels* kernels : all) {
    SCOPED_TRACE(kernels->isa);
    flash::Forward<double> f{};
    Numbers o(a.q.size()), lse(a.tq * a.hq), m(a.tq * a.hq), dq(a.q.size()), dk(a.k.size()), dv(a.v.size());
    Numbers scratch(flash::scratch_elements(a.tk, a.d) + 8);
    double* const aligned = reinterpret_cast<double*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
    f.q = a.q.data(), f.k = a.k.data(), f.v = a.v.data();
    f.q_row = a.q_row.data(), f.q_document = a.q_document.data();
    f.k_row = a.k_row.data(), f.k_document = a.k_document.data();
    f.batch = 1, f.tq = a.tq, f.tk = a.tk, f.hq = a.hq, f.hk = a.hk, f.d = a.d, f.scale = a.scale;
    f.mode = flash::Mode::kOnline;
    f.o = o.data(), f.lse = lse.data(), f.m = m.data();
    kernels->forward_f64(f, aligned);
    EXPECT_LE(distance(o, want.o), 1e-14);
    EXPECT_LE(distance(lse, want.lse), 1e-14);
    flash::Backward<double> b{};
    b.q = f.q, b.k = f.k, b.v = f.v, b.d_o = d_o.data(), b.lse = lse.data(), b.delta = delta.data();
    b.q_row = f.q_row, b.q_document = f.q_document, b.k_row = f.k_row, b.k_document = f.k_document;
    b.batch = 1, b.tq = a.tq, b.tk = a.tk, b.hq = a.hq, b.hk = a.hk, b.d = a.d, b.scale = a.scale;
    b.dq = dq.data(), b.dk = dk.data(), b.dv = dv.data();
    kernels->backward_f64(b, aligned);
    EXPECT_LE(distance(dq, want_g.dq), 1e-13);
    EXPECT_LE(distance(dk, want_g.dk), 1e-13);
    EXPECT_LE(distance(dv, want_g.dv), 1e-13);
  }
}

// ---- parts of the keys, merged
// -------------------------------------------------------------------------------

// Keys [begin, end) of a problem of one sample.
oracle::Attention key_part(const oracle::Attention& a, int64_t begin, int64_t end) {
  oracle::Attention part = a;
  const int64_t width = a.hk * a.d;
  part.tk = end - begin;
  part.k.assign(a.k.begin() + begin * width, a.k.begin() + end * width);
  part.v.assign(a.v.begin() + begin * width, a.v.begin() + end * width);
  part.k_row.assign(a.k_row.begin() + begin, a.k_row.begin() + end);
  part.k_document.assign(a.k_document.begin() + begin, a.k_document.begin() + end);
  return part;
}

// The ring's result: parts one after another, each merged into (o, lse), from the rank's own block backwards.
oracle::AttentionResult merged(const Lab& lab, const oracle::Attention& a, const std::vector<int64_t>& cuts, DType type,
                               const kernels::AttentionDropout& dropout = {}) {
  const Tensor o = lab.zeros(type, {a.tq, a.hq, a.d}), lse = lab.empty(DType::kF64, {a.tq, a.hq});
  kernels::fill(lab.device, lab.stream, "test.identity", lse, -kInf);
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    const oracle::Attention part = key_part(a, cuts[i], cuts[i + 1]);
    OnDevice run(lab, part, type);
    run.forward(dropout);
    kernels::lse_merge(lab.device, lab.stream, o, lse, run.o, run.lse);
  }
  return {lab.read(o), lab.read(lse), {}};
}

double median(Numbers x) {
  std::nth_element(x.begin(), x.begin() + int64_t(x.size() / 2), x.end());
  return x[x.size() / 2];
}

TEST(LseMerge, EightPartsAreAsPreciseAsOneCall) {
  on_device([](const Lab& lab) {
    Numbers ratios;
    for (uint32_t seed = 0; seed < 20; ++seed) {
      const oracle::Attention a = problem(Pattern::kCausal, 1, 256, 256, 2, 1, 64, 100 * seed + 1);
      const auto want = oracle::attention(a);
      const double one = distance(OnDevice(lab, a, DType::kF32).forward().o, want.o);
      const auto parts = merged(lab, a, {0, 32, 64, 96, 128, 160, 192, 224, 256}, DType::kF32);
      const double eight = distance(parts.o, want.o);
      EXPECT_LE(one, 1e-6);
      EXPECT_LE(eight, 1e-6);
      EXPECT_LE(distance(parts.lse, want.lse), 1e-6);
      ratios.push_back(eight / one);
    }
    EXPECT_LE(median(ratios), 1.2);
    RecordProperty("median_ratio", std::to_string(median(ratios)));
  });
}

TEST(LseMerge, AnyCutGivesTheSameInFp64) {
  on_device([](const Lab& lab) {
    const oracle::Attention a = problem(Pattern::kDocuments, 1, 90, 90, 4, 2, 12, 6);
    const auto want = oracle::attention(a);
    for (const std::vector<int64_t>& cuts : {std::vector<int64_t>{0, 90}, {0, 1, 90}, {0, 17, 57, 90}, {0, 89, 90}}) {
      const auto got = merged(lab, a, cuts, DType::kF64);
      EXPECT_LE(distance(got.o, want.o), 1e-14);
      EXPECT_LE(distance(got.lse, want.lse), 1e-14);
    }
  });
}

struct Partial {
  Numbers o, lse;
};
Partial merge(const Lab& lab, const Partial& a, const Partial& b, DType type = DType::kF64) {
  const int64_t rows = int64_t(a.lse.size()), d = int64_t(a.o.size()) / rows;
  const Tensor o = lab.tensor(type, {rows, 1, d}, a.o), lse = lab.tensor(DType::kF64, {rows, 1}, a.lse);
  const Tensor part_o = lab.tensor(type, {rows, 1, d}, b.o), part_lse = lab.tensor(DType::kF64, {rows, 1}, b.lse);
  kernels::lse_merge(lab.device, lab.stream, o, lse, part_o, part_lse);
  return {lab.read(o), lab.read(lse)};
}

TEST(LseMerge, Properties) {
  on_device([](const Lab& lab) {
    const auto partial = [](uint32_t seed) {
      Partial p{normal(200 * 3, seed), normal(200, seed + 1)};
      for (size_t i = 0; i < p.lse.size(); ++i) p.lse[i] *= i % 3 == 0 ? 1 : i % 3 == 1 ? 30 : 1e4;
      return p;
    };
    const Partial a = partial(1), b = partial(10), c = partial(20);
    const Partial ab = merge(lab, a, b), ba = merge(lab, b, a);
    EXPECT_LE(distance(ab.o, ba.o), 1e-15);
    EXPECT_EQ(ab.lse, ba.lse);
    const Partial left = merge(lab, ab, c), right = merge(lab, a, merge(lab, b, c));
    EXPECT_LE(distance(left.o, right.o), 1e-11);  // lse of 1e4 has an ulp of 2e-12
    EXPECT_LE(distance(left.lse, right.lse), 1e-15);
    for (size_t i = 0; i < a.lse.size(); ++i) EXPECT_GE(ab.lse[i], std::max(a.lse[i], b.lse[i]));
  });
}

TEST(LseMerge, IdentityAndExtremes) {
  on_device([](const Lab& lab) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (DType type : {DType::kF64, DType::kF32}) {
      // Without scores above -inf: no visible key, or only keys whose score is -inf (0/0).
      const Partial identity{{0, 0}, {-kInf}}, undefined{{nan, nan}, {-kInf}}, some{{1.5, -2}, {-1e4}};
      for (const Partial& none : {identity, undefined}) {
        EXPECT_EQ(merge(lab, some, none, type).o, some.o);
        EXPECT_EQ(merge(lab, none, some, type).o, some.o);
        EXPECT_EQ(merge(lab, none, some, type).lse, some.lse);
        EXPECT_EQ(merge(lab, none, none, type).lse, Numbers({-kInf}));
      }
      EXPECT_EQ(merge(lab, identity, identity, type).o, Numbers({0, 0}));
      EXPECT_TRUE(std::isnan(merge(lab, identity, undefined, type).o[0]));
      const Partial high{{7, 8}, {1e4}};
      EXPECT_EQ(merge(lab, some, high, type).o, high.o);
      EXPECT_EQ(merge(lab, high, some, type).lse, high.lse);
      const Partial equal = merge(lab, {{1, 2}, {1e4}}, {{3, 6}, {1e4}}, type);
      EXPECT_LE(distance(equal.o, {2, 4}), 1e-11);
      EXPECT_DOUBLE_EQ(equal.lse[0], 1e4 + std::log(2.0));
    }
  });
}

// ---- three-step softmax
// ----------------------------------------------------------------------------------------

TEST(ThreeStep, ShardsAddUpToTheOracle) {
  on_device([](const Lab& lab) {
    for (Pattern pattern : {Pattern::kCausal, Pattern::kPadded, Pattern::kDocuments, Pattern::kLater})
      for (DType type : {DType::kF64, DType::kF32}) {
        const oracle::Attention a = problem(pattern, 1, 75, 75, 4, 2, 12, 31);
        const auto want = oracle::attention(a);
        const std::vector<int64_t> cuts = {0, 20, 50, 75};
        std::vector<std::unique_ptr<oracle::Attention>> parts;
        std::vector<std::unique_ptr<OnDevice>> runs;
        Numbers m(a.tq * a.hq, -kInf), z(m.size(), 0), u(a.q.size(), 0);
        for (size_t i = 0; i + 1 < cuts.size(); ++i) {
          parts.push_back(std::make_unique<oracle::Attention>(key_part(a, cuts[i], cuts[i + 1])));
          runs.push_back(std::make_unique<OnDevice>(lab, *parts.back(), type));
          OnDevice& r = *runs.back();
          kernels::score_max(lab.device, lab.stream, r.q, r.kv, r.qi, r.ki, a.scale, r.m);
          const Numbers own = lab.read(r.m);
          for (size_t j = 0; j < m.size(); ++j) m[j] = std::max(m[j], own[j]);
        }
        const Tensor m_all = lab.tensor(DType::kF64, {a.tq, a.hq}, m);
        for (auto& r : runs) {
          kernels::exp_sum(lab.device, lab.stream, r->q, r->kv, r->qi, r->ki, a.scale, {}, m_all, r->o, r->lse);
          const Numbers own_u = lab.read(r->o), own_z = lab.read(r->lse);
          for (size_t j = 0; j < u.size(); ++j) u[j] += own_u[j];
          for (size_t j = 0; j < z.size(); ++j) z[j] += own_z[j];
        }
        const Tensor u_t = lab.tensor(type, {a.tq, a.hq, a.d}, u), z_t = lab.tensor(DType::kF64, {a.tq, a.hq}, z);
        const Tensor o = lab.empty(type, {a.tq, a.hq, a.d}), lse = lab.empty(DType::kF64, {a.tq, a.hq});
        kernels::softmax_normalise(lab.device, lab.stream, u_t, m_all, z_t, o, lse);
        const double limit = type == DType::kF64 ? 1e-14 : 1e-6;
        EXPECT_LE(distance(m, want.m), limit);
        EXPECT_LE(distance(lab.read(o), want.o), limit);
        EXPECT_LE(distance(lab.read(lse), want.lse), limit);
      }
  });
}

TEST(AttentionDelta, MatchesOracle) {
  on_device([](const Lab& lab) {
    const Numbers o = normal(7 * 3 * 5, 1), d_o = normal(7 * 3 * 5, 2);
    const Tensor delta = lab.empty(DType::kF64, {7, 3});
    kernels::attention_delta(lab.device, lab.stream, lab.tensor(DType::kF32, {7, 3, 5}, o),
                             lab.tensor(DType::kF32, {7, 3, 5}, d_o), delta);
    EXPECT_LE(distance(lab.read(delta), oracle::attention_delta(o, d_o, 5)), 1e-15);
  });
}

// ---- dropout on the weights
// --------------------------------------------------------------------------------------

kernels::AttentionDropout dropout_of(const Lab& lab, int64_t batch, int32_t step = 3) {
  kernels::AttentionDropout dropout;
  dropout.p = 0.3, dropout.seed = 11, dropout.step = step, dropout.layer = 2, dropout.first_head = 4;
  std::vector<int32_t> samples;
  for (int32_t b = 0; b < batch; ++b) samples.push_back(50 + b);
  dropout.sample = lab.ints(samples);
  return dropout;
}

// The mask, read off a call whose values are the unit matrix: o is then the dropped weights themselves. Entry
// [i][head][j] is what the weight was multiplied by.
Numbers observed_mask(const Lab& lab, oracle::Attention a, const kernels::AttentionDropout& dropout) {
  std::fill(a.v.begin(), a.v.end(), 0);
  for (int64_t t = 0; t < a.batch * a.tk; ++t)
    for (int64_t h = 0; h < a.hk; ++h) a.v[(t * a.hk + h) * a.d + t % a.tk] = 1;
  const Numbers weights = oracle::attention(a).o;
  Numbers mask = OnDevice(lab, a, DType::kF64).forward(dropout).o;
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = weights[i] == 0 ? -1 : mask[i] / weights[i];
  return mask;
}

TEST(AttentionDropout, MaskScalesAndGradientsFollow) {
  on_device([](const Lab& lab) {
    const int64_t t = 70;
    oracle::Attention a = problem(Pattern::kFull, 2, t, t, 4, 2, t, 12);
    const kernels::AttentionDropout dropout = dropout_of(lab, 2);
    const Numbers mask = observed_mask(lab, a, dropout);
    int64_t kept = 0;
    for (double x : mask) {
      EXPECT_TRUE(x == 0 || std::abs(x - 1 / 0.7) < 1e-9) << x;
      kept += x > 0;
    }
    EXPECT_NEAR(double(kept) / double(mask.size()), 0.7, 0.01);

    a.keep = [&](int64_t sample, int64_t head, int32_t q_row, int32_t k_row) {
      return mask[((sample * t + q_row - 100000) * a.hq + head) * t + k_row] > 0 ? 1 / 0.7 : 0;
    };
    const auto want = oracle::attention(a);
    const Numbers d_o = normal(int64_t(a.q.size()), 5);
    const Numbers delta = oracle::attention_delta(want.o, d_o, a.d);
    const auto want_g = oracle::attention_backward(a, d_o, want.lse, delta);
    for (DType type : {DType::kF64, DType::kF32}) {
      OnDevice run(lab, a, type);
      const auto got = run.forward(dropout);
      const double limit = type == DType::kF64 ? 1e-13 : 2e-6;
      EXPECT_LE(distance(got.o, want.o), limit);
      EXPECT_LE(distance(got.lse, want.lse), limit);  // lse knows nothing of dropout
      const auto g = run.backward(d_o, want.lse, delta, 0, dropout);
      EXPECT_LE(distance(g.dq, want_g.dq), limit);
      EXPECT_LE(distance(g.dk, want_g.dk), limit);
      EXPECT_LE(distance(g.dv, want_g.dv), limit);
    }
  });
}

TEST(AttentionDropout, AnyLayoutDrawsTheSameMask) {
  on_device([](const Lab& lab) {
    const oracle::Attention a = problem(Pattern::kCausal, 1, 90, 90, 4, 2, 12, 14);
    const kernels::AttentionDropout dropout = dropout_of(lab, 1);
    const auto whole = OnDevice(lab, a, DType::kF64).forward(dropout);
    const auto cut = merged(lab, a, {0, 31, 64, 90}, DType::kF64, dropout);
    EXPECT_LE(distance(cut.o, whole.o), 1e-14);

    // Heads 2 and 3 alone (a tensor-parallel rank), queries 40..89 alone (a context-parallel one).
    oracle::Attention part = a;
    part.hq = 2, part.hk = 1, part.tq = 50;
    part.q.clear(), part.k.clear(), part.v.clear();
    part.q_row.assign(a.q_row.begin() + 40, a.q_row.end());
    part.q_document.assign(a.q_document.begin() + 40, a.q_document.end());
    Numbers want;
    for (int64_t i = 40; i < 90; ++i)
      for (int64_t x = 2 * 12; x < 4 * 12; ++x) {
        part.q.push_back(a.q[i * 48 + x]);
        want.push_back(whole.o[i * 48 + x]);
      }
    for (int64_t j = 0; j < 90; ++j)
      for (int64_t x = 12; x < 24; ++x) {
        part.k.push_back(a.k[j * 24 + x]);
        part.v.push_back(a.v[j * 24 + x]);
      }
    kernels::AttentionDropout shifted = dropout;
    shifted.first_head += 2;
    EXPECT_LE(distance(OnDevice(lab, part, DType::kF64).forward(shifted).o, want), 1e-14);
  });
}

TEST(AttentionDropout, EveryPartOfTheKeyCounts) {
  on_device([](const Lab& lab) {
    const oracle::Attention a = problem(Pattern::kFull, 1, 20, 20, 2, 2, 20, 12);
    const kernels::AttentionDropout base = dropout_of(lab, 1);
    const Numbers mask = observed_mask(lab, a, base);
    const auto share_equal = [&](const kernels::AttentionDropout& other) {
      const Numbers x = observed_mask(lab, a, other);
      int64_t equal = 0;
      for (size_t i = 0; i < x.size(); ++i) equal += (x[i] > 0) == (mask[i] > 0);
      return double(equal) / double(x.size());
    };
    EXPECT_EQ(share_equal(base), 1);
    kernels::AttentionDropout step = base, seed = base, layer = base, head = base, sample = base;
    step.step += 1, seed.seed += 1, layer.layer += 1, head.first_head += 1, sample.sample = lab.ints({51});
    for (const auto& other : {step, seed, layer, head, sample})
      EXPECT_NEAR(share_equal(other), 0.7 * 0.7 + 0.3 * 0.3, 0.08);  // independent masks agree that often
  });
}

}  // namespace
}  // namespace ringscope
