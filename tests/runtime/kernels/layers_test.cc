// Matrix products, norms, activations, dropout, embeddings and the q, k, v split: values against the formulas
// written out, gradients against central differences of the kernels' own values.
#include <gtest/gtest.h>

#include <thread>

#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/cpu/pointwise.h"
#include "tests/runtime/kernels/lab.h"

namespace ringscope {
namespace {

using testing::distance;
using testing::gradient_error;
using testing::Lab;
using testing::normal;
using testing::Numbers;
using testing::on_device;

constexpr DType kBoth[] = {DType::kF64, DType::kF32};
double limit(DType type) { return type == DType::kF64 ? 1e-14 : 1e-6; }

Numbers product(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const Numbers& a, const Numbers& b) {
  Numbers c(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t x = 0; x < k; ++x) c[i * n + j] += a[ta ? x * m + i : i * k + x] * b[tb ? j * k + x : x * n + j];
  return c;
}

TEST(Gemm, EveryOrientation) {
  on_device([](const Lab& lab) {
    const int64_t sizes[][3] = {{1, 1, 1}, {53, 12, 48}, {17, 257, 33}, {96, 48, 64}, {130, 70, 5}};
    for (const auto& [m, n, k] : sizes)
      for (bool ta : {false, true})
        for (bool tb : {false, true})
          for (DType type : kBoth) {
            const Numbers a = normal(m * k, 1), b = normal(k * n, 2);
            const Tensor at = lab.tensor(type, {ta ? k : m, ta ? m : k}, a);
            const Tensor bt = lab.tensor(type, {tb ? n : k, tb ? k : n}, b);
            const Tensor c = lab.empty(type, {m, n});  // NaN: overwriting must not read it
            kernels::gemm(lab.device, lab.stream, "test.gemm", at, ta, bt, tb, c, false);
            Numbers want = product(ta, tb, m, n, k, a, b);
            EXPECT_LE(distance(lab.read(c), want), limit(type)) << m << "x" << n << "x" << k << ta << tb;
            kernels::gemm(lab.device, lab.stream, "test.gemm", at, ta, bt, tb, c, true);
            for (double& x : want) x *= 2;
            EXPECT_LE(distance(lab.read(c), want), limit(type));
          }
  });
}

// Ranks call from their own threads at once; each must get the bits of a call made alone.
TEST(Gemm, ManyThreadsGetTheSameBits) {
  const int64_t m = 150, n = 130, k = 200;
  const Numbers a64 = normal(m * k, 1), b64 = normal(k * n, 2);
  const std::vector<float> a(a64.begin(), a64.end()), b(b64.begin(), b64.end());
  std::vector<float> alone(m * n);
  Numbers alone64(m * n);
  cpu::gemm_f32(false, false, m, n, k, a.data(), k, b.data(), n, alone.data(), false);
  cpu::gemm_f64(false, false, m, n, k, a64.data(), k, b64.data(), n, alone64.data(), false);
  std::vector<int> equal(8, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      std::vector<float> c(m * n);
      Numbers c64(m * n);
      for (int repeat = 0; repeat < 5; ++repeat) {
        cpu::gemm_f32(false, false, m, n, k, a.data(), k, b.data(), n, c.data(), false);
        cpu::gemm_f64(false, false, m, n, k, a64.data(), k, b64.data(), n, c64.data(), false);
        equal[t] += c == alone && c64 == alone64;
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int times : equal) EXPECT_EQ(times, 5);
}

TEST(Elementwise, SumsFillsAndCopies) {
  on_device([](const Lab& lab) {
    for (DType type : kBoth) {
      const Numbers x = normal(35, 1), y = normal(35, 2), bias = normal(7, 3);
      const Tensor xt = lab.tensor(type, {5, 7}, x), yt = lab.tensor(type, {5, 7}, y), bt = lab.tensor(type, {7}, bias);
      const Tensor out = lab.empty(type, {5, 7});
      Numbers want(35), columns(7, 1);
      kernels::add(lab.device, lab.stream, "test.add", xt, yt, out);
      for (int i = 0; i < 35; ++i) want[i] = x[i] + y[i];
      EXPECT_LE(distance(lab.read(out), want), limit(type));
      kernels::accumulate(lab.device, lab.stream, "test.accumulate", xt, out);
      kernels::scale(lab.device, lab.stream, "test.scale", out, 0.5);
      kernels::add_bias(lab.device, lab.stream, "test.bias", out, bt);
      for (int i = 0; i < 35; ++i) want[i] = (want[i] + x[i]) * 0.5 + bias[i % 7];
      EXPECT_LE(distance(lab.read(out), want), limit(type));
      const Tensor dbias = lab.tensor(type, {7}, Numbers(7, 1));
      kernels::bias_grad(lab.device, lab.stream, "test.bias_grad", xt, dbias);
      for (int i = 0; i < 35; ++i) columns[i % 7] += x[i];
      EXPECT_LE(distance(lab.read(dbias), columns), limit(type));
      kernels::fill(lab.device, lab.stream, "test.fill", out, 2.5);
      EXPECT_EQ(lab.read(out), Numbers(35, 2.5));
      kernels::copy(lab.device, lab.stream, "test.copy", xt, out);
      EXPECT_EQ(lab.read(out), x);
    }
  });
}

// ---- norms
// ---------------------------------------------------------------------------------------------------

constexpr double kEps = 1e-5;

struct NormInput {
  int64_t rows, h;
  Numbers x, w, b, dy;
  NormInput(int64_t rows, int64_t h)
      : rows(rows), h(h), x(normal(rows * h, 1)), w(normal(h, 2)), b(normal(h, 3)), dy(normal(rows * h, 4)) {}
};

Numbers layer_norm(const Lab& lab, DType type, const NormInput& in) {
  const Tensor y = lab.empty(type, {in.rows, in.h}), mean = lab.empty(DType::kF64, {in.rows}),
               rstd = lab.empty(DType::kF64, {in.rows});
  kernels::layer_norm(lab.device, lab.stream, lab.tensor(type, {in.rows, in.h}, in.x), lab.tensor(type, {in.h}, in.w),
                      lab.tensor(type, {in.h}, in.b), kEps, y, mean, rstd);
  return lab.read(y);
}
Numbers rms_norm(const Lab& lab, DType type, const NormInput& in) {
  const Tensor y = lab.empty(type, {in.rows, in.h}), rstd = lab.empty(DType::kF64, {in.rows});
  kernels::rms_norm(lab.device, lab.stream, lab.tensor(type, {in.rows, in.h}, in.x), lab.tensor(type, {in.h}, in.w),
                    kEps, y, rstd);
  return lab.read(y);
}
Numbers norm_by_formula(const NormInput& in, bool centred) {
  Numbers y(in.x.size());
  for (int64_t i = 0; i < in.rows; ++i) {
    const double* x = &in.x[i * in.h];
    double mean = 0, square = 0;
    for (int64_t j = 0; j < in.h && centred; ++j) mean += x[j] / double(in.h);
    for (int64_t j = 0; j < in.h; ++j) square += (x[j] - mean) * (x[j] - mean) / double(in.h);
    for (int64_t j = 0; j < in.h; ++j)
      y[i * in.h + j] = (x[j] - mean) / std::sqrt(square + kEps) * in.w[j] + (centred ? in.b[j] : 0);
  }
  return y;
}

TEST(Norms, Values) {
  on_device([](const Lab& lab) {
    for (int64_t h : {1, 5, 48, 130}) {
      NormInput in(9, h);
      for (DType type : kBoth) {
        EXPECT_LE(distance(layer_norm(lab, type, in), norm_by_formula(in, true)), limit(type)) << h;
        EXPECT_LE(distance(rms_norm(lab, type, in), norm_by_formula(in, false)), limit(type)) << h;
      }
    }
  });
}

struct NormGradient {
  Numbers dx, dw, db;
};
NormGradient norm_backward(const Lab& lab, DType type, const NormInput& in, bool centred) {
  const Tensor x = lab.tensor(type, {in.rows, in.h}, in.x), w = lab.tensor(type, {in.h}, in.w);
  const Tensor y = lab.empty(type, {in.rows, in.h}), mean = lab.empty(DType::kF64, {in.rows});
  const Tensor rstd = lab.empty(DType::kF64, {in.rows}), dx = lab.empty(type, {in.rows, in.h});
  const Tensor dy = lab.tensor(type, {in.rows, in.h}, in.dy);
  const Tensor dw = lab.zeros(type, {in.h}), db = lab.zeros(type, {in.h});
  if (centred) {
    kernels::layer_norm(lab.device, lab.stream, x, w, lab.tensor(type, {in.h}, in.b), kEps, y, mean, rstd);
    kernels::layer_norm_backward(lab.device, lab.stream, dy, x, w, mean, rstd, dx, dw, db);
  } else {
    kernels::rms_norm(lab.device, lab.stream, x, w, kEps, y, rstd);
    kernels::rms_norm_backward(lab.device, lab.stream, dy, x, w, rstd, dx, dw);
  }
  return {lab.read(dx), lab.read(dw), lab.read(db)};
}

TEST(Norms, Gradients) {
  on_device([](const Lab& lab) {
    for (bool centred : {true, false}) {
      NormInput in(6, 13);
      const NormGradient g = norm_backward(lab, DType::kF64, in, centred);
      const auto with = [&](Numbers NormInput::*part) {
        return [&, part](const Numbers& values) {
          NormInput moved = in;
          moved.*part = values;
          return centred ? layer_norm(lab, DType::kF64, moved) : rms_norm(lab, DType::kF64, moved);
        };
      };
      EXPECT_LE(gradient_error(with(&NormInput::x), in.x, in.dy, g.dx), 1e-9);
      EXPECT_LE(gradient_error(with(&NormInput::w), in.w, in.dy, g.dw), 1e-9);
      if (centred) {
        EXPECT_LE(gradient_error(with(&NormInput::b), in.b, in.dy, g.db), 1e-9);
      }
      const NormGradient single = norm_backward(lab, DType::kF32, in, centred);
      EXPECT_LE(distance(single.dx, g.dx), 1e-6);
      EXPECT_LE(distance(single.dw, g.dw), 1e-6);
    }
  });
}

// ---- activations
// ---------------------------------------------------------------------------------------------

Numbers gelu(const Lab& lab, DType type, const Numbers& x) {
  const Tensor y = lab.empty(type, {int64_t(x.size())});
  kernels::gelu_tanh(lab.device, lab.stream, lab.tensor(type, {int64_t(x.size())}, x), y);
  return lab.read(y);
}
Numbers swiglu(const Lab& lab, DType type, const Numbers& gate_up, int64_t rows) {
  const int64_t f = int64_t(gate_up.size()) / rows / 2;
  const Tensor y = lab.empty(type, {rows, f});
  kernels::swiglu(lab.device, lab.stream, lab.tensor(type, {rows, 2 * f}, gate_up), y);
  return lab.read(y);
}

TEST(Activations, Values) {
  on_device([](const Lab& lab) {
    Numbers x = normal(133, 1);
    for (double far : {0.0, 20.0, -20.0, 300.0, -300.0}) x.push_back(far);
    Numbers want(x.size());
    for (size_t i = 0; i < x.size(); ++i)
      want[i] = 0.5 * x[i] * (1 + std::tanh(std::sqrt(2 / M_PI) * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
    for (DType type : kBoth) EXPECT_LE(distance(gelu(lab, type, x), want), limit(type));

    const Numbers gate_up = normal(3 * 2 * 11, 2);
    want.assign(33, 0);
    for (int i = 0; i < 33; ++i) {
      const double gate = gate_up[i / 11 * 22 + i % 11], up = gate_up[i / 11 * 22 + 11 + i % 11];
      want[i] = gate / (1 + std::exp(-gate)) * up;
    }
    for (DType type : kBoth) EXPECT_LE(distance(swiglu(lab, type, gate_up, 3), want), limit(type));
    for (double far : {200.0, -200.0}) EXPECT_TRUE(std::isfinite(swiglu(lab, DType::kF32, {far, 1}, 1)[0])) << far;
  });
}

TEST(Activations, Gradients) {
  on_device([](const Lab& lab) {
    const Numbers x = normal(60, 1), dy = normal(60, 2), dy_half = normal(30, 3);
    for (DType type : kBoth) {
      const double bound = type == DType::kF64 ? 1e-9 : 1e-6;
      const Tensor dx = lab.empty(type, {60}), d_gate_up = lab.empty(type, {3, 20});
      kernels::gelu_tanh_backward(lab.device, lab.stream, lab.tensor(type, {60}, x), lab.tensor(type, {60}, dy), dx);
      EXPECT_LE(gradient_error([&](const Numbers& v) { return gelu(lab, DType::kF64, v); }, x, dy, lab.read(dx)),
                bound);
      kernels::swiglu_backward(lab.device, lab.stream, lab.tensor(type, {3, 20}, x), lab.tensor(type, {3, 10}, dy_half),
                               d_gate_up);
      EXPECT_LE(gradient_error([&](const Numbers& v) { return swiglu(lab, DType::kF64, v, 3); }, x, dy_half,
                               lab.read(d_gate_up)),
                bound);
    }
  });
}

template <class T>
void check_pointwise(const pointwise::Table<T>& table, double bound) {
  for (int64_t n : {1, 15, 16, 37, 64}) {
    const Numbers x64 = normal(n, 1), d64 = normal(n, 2);
    const std::vector<T> x(x64.begin(), x64.end()), d(d64.begin(), d64.end());
    std::vector<T> y(n), other(n);
    Numbers gelu(n), gelu_slope(n), silu(n), d_gate(n), scaled(n), kept(n);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
      const double u = std::sqrt(2 / M_PI) * (x64[i] + 0.044715 * std::pow(x64[i], 3)), t = std::tanh(u);
      gelu[i] = 0.5 * x64[i] * (1 + t);
      gelu_slope[i] = d64[i] * (0.5 * (1 + t) + 0.5 * x64[i] * (1 - t * t) * std::sqrt(2 / M_PI) *
                                                    (1 + 3 * 0.044715 * x64[i] * x64[i]));
      const double s = 1 / (1 + std::exp(-x64[i]));
      silu[i] = x64[i] * s * d64[i];
      d_gate[i] = x64[i] * d64[i] * (s + x64[i] * s * (1 - s));  // up = x, dy = d
      scaled[i] = 0.25 * std::exp(x64[i] - 3);
      sum += std::exp(x64[i] - 3);
    }
    const auto check = [&](const std::vector<T>& got, const Numbers& want) {
      EXPECT_LE(distance(Numbers(got.begin(), got.end()), want), bound) << n;
    };
    table.gelu(x.data(), n, y.data());
    check(y, gelu);
    table.gelu_backward(x.data(), d.data(), n, y.data());
    check(y, gelu_slope);
    table.swiglu(x.data(), d.data(), n, y.data());
    check(y, silu);
    table.swiglu_backward(x.data(), x.data(), d.data(), n, y.data(), other.data());
    check(y, d_gate);
    table.scaled_exp(x.data(), T(3), T(0.25), n, y.data());
    check(y, scaled);
    EXPECT_NEAR(table.sum_exp(x.data(), T(3), n), sum, bound * sum);
    table.dropout(x.data(), 99, 5, 0.4, n, y.data());
    // Every instruction set draws what the baseline draws.
    pointwise::baseline().f64.dropout(x64.data(), 99, 5, 0.4, n, kept.data());
    check(y, kept);
  }
}

TEST(Pointwise, EveryInstructionSet) {
  std::vector<const pointwise::Kernels*> all = {&pointwise::baseline(), &pointwise::best()};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) all.push_back(&pointwise::avx2());
  for (const pointwise::Kernels* kernels : all) {
    check_pointwise(kernels->f32, 1e-6);
    check_pointwise(kernels->f64, 1e-14);
  }
}

// ---- dropout
// --------------------------------------------------------------------------------------------------

TEST(Dropout, ScalesKeptElementsAndNothingElse) {
  on_device([](const Lab& lab) {
    std::vector<int32_t> position(200), sample(200, 7);
    for (int32_t i = 0; i < 200; ++i) position[i] = i;
    const Numbers x = normal(200 * 50, 1);
    for (DType type : kBoth) {
      const Tensor y = lab.empty(type, {200, 50});
      kernels::dropout(lab.device, lab.stream, "test.dropout", lab.tensor(type, {200, 50}, x), 0.2, {5, 1, 2, 3, 0},
                       lab.ints(position), lab.ints(sample), y);
      const Numbers got = lab.read(y);
      int64_t kept = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        if (got[i] != 0) {
          EXPECT_NEAR(got[i], x[i] * 1.25, std::abs(x[i]) * 1e-6);
        }
        kept += got[i] != 0;
      }
      EXPECT_NEAR(double(kept) / double(x.size()), 0.8, 0.02);
    }
  });
}

Numbers mask(const Lab& lab, kernels::DropoutKey key, std::vector<int32_t> position, int32_t sample, int64_t h) {
  const int64_t rows = int64_t(position.size());
  const Tensor y = lab.empty(DType::kF64, {rows, h});
  kernels::dropout(lab.device, lab.stream, "test.dropout", lab.tensor(DType::kF64, {rows, h}, Numbers(rows * h, 1)),
                   0.5, key, lab.ints(std::move(position)), lab.ints(std::vector<int32_t>(rows, sample)), y);
  return lab.read(y);
}

TEST(Dropout, AnyLayoutDrawsTheSameMask) {
  on_device([](const Lab& lab) {
    const kernels::DropoutKey key{5, 1, 2, 3, 0};
    const Numbers whole = mask(lab, key, {0, 1, 2, 3, 4, 5, 6, 7}, 4, 40);
    const Numbers zigzag = mask(lab, key, {2, 3, 4, 5}, 4, 40);  // the rows of rank 1 of two
    EXPECT_EQ(zigzag, Numbers(whole.begin() + 80, whole.begin() + 240));
    kernels::DropoutKey columns = key;
    columns.first_feature = 30;
    const Numbers part = mask(lab, columns, {0, 1}, 4, 10);
    for (int i = 0; i < 20; ++i) EXPECT_EQ(part[i], whole[i / 10 * 40 + 30 + i % 10]);
  });
}

TEST(Dropout, EveryPartOfTheKeyCounts) {
  on_device([](const Lab& lab) {
    const kernels::DropoutKey key{5, 1, 2, 3, 0};
    const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    const Numbers base = mask(lab, key, rows, 4, 100);
    const auto agree = [&](const Numbers& other) {
      int64_t equal = 0;
      for (size_t i = 0; i < base.size(); ++i) equal += base[i] == other[i];
      return double(equal) / double(base.size());
    };
    kernels::DropoutKey seed = key, step = key, layer = key, use = key, feature = key;
    ++seed.seed, ++step.step, ++layer.layer, ++use.use, ++feature.first_feature;
    for (const auto& other : {seed, step, layer, use, feature})
      EXPECT_NEAR(agree(mask(lab, other, rows, 4, 100)), 0.5, 0.08);
    EXPECT_NEAR(agree(mask(lab, key, rows, 5, 100)), 0.5, 0.08);
    EXPECT_NEAR(agree(mask(lab, key, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 4, 100)), 0.5, 0.08);
    EXPECT_EQ(agree(mask(lab, key, rows, 4, 100)), 1);
  });
}

// ---- embeddings
// -----------------------------------------------------------------------------------------------

TEST(Embedding, PartsOfTheVocabularyAddUp) {
  on_device([](const Lab& lab) {
    const int64_t v = 10, h = 3;
    const std::vector<int32_t> tokens = {0, 9, 4, 5, 4, 2};
    const Numbers table = normal(v * h, 1), dy = normal(int64_t(tokens.size()) * h, 2);
    Numbers want, want_grad(v * h, 1);
    for (size_t i = 0; i < tokens.size(); ++i)
      for (int64_t j = 0; j < h; ++j) {
        want.push_back(table[tokens[i] * h + j]);
        want_grad[tokens[i] * h + j] += dy[i * h + j];
      }
    for (DType type : kBoth) {
      const Tensor ids = lab.ints(tokens), dy_t = lab.tensor(type, {6, h}, dy);
      Numbers sum(want.size(), 0), grad;
      for (int64_t part : {0, 1}) {
        const Numbers rows(table.begin() + part * 15, table.begin() + part * 15 + 15);
        const Tensor y = lab.empty(type, {6, h}), dtable = lab.tensor(type, {5, h}, Numbers(15, 1));
        kernels::embedding(lab.device, lab.stream, ids, lab.tensor(type, {5, h}, rows), part * 5, y);
        kernels::embedding_backward(lab.device, lab.stream, ids, dy_t, part * 5, dtable);
        const Numbers own = lab.read(y), own_grad = lab.read(dtable);
        for (size_t i = 0; i < own.size(); ++i) sum[i] += own[i];
        grad.insert(grad.end(), own_grad.begin(), own_grad.end());
      }
      EXPECT_LE(distance(sum, want), limit(type));
      EXPECT_LE(distance(grad, want_grad), limit(type));
    }
  });
}

TEST(Embedding, Positions) {
  on_device([](const Lab& lab) {
    const Numbers table = normal(5 * 3, 1), y0 = normal(4 * 3, 2);
    // Two outside the table: a buffer that nothing wrote holds -1 everywhere.
    const std::vector<int32_t> position = {-1, 4, 1, 9}, row = {0, 4, 1, 4};
    Numbers want = y0, want_grad(15, 0);
    for (int i = 0; i < 12; ++i) {
      want[i] += table[row[i / 3] * 3 + i % 3];
      want_grad[row[i / 3] * 3 + i % 3] += y0[i];
    }
    const Tensor y = lab.tensor(DType::kF64, {4, 3}, y0), at = lab.ints(position);
    kernels::add_position_embedding(lab.device, lab.stream, at, lab.tensor(DType::kF64, {5, 3}, table), y);
    EXPECT_LE(distance(lab.read(y), want), 1e-15);
    const Tensor grad = lab.zeros(DType::kF64, {5, 3});
    kernels::position_embedding_backward(lab.device, lab.stream, at, lab.tensor(DType::kF64, {4, 3}, y0), grad);
    EXPECT_LE(distance(lab.read(grad), want_grad), 1e-15);
  });
}

// ---- q, k, v
// -----------------------------------------------------------------------------------------------------

TEST(SplitQkv, RotatesByPositionAndJoinsBack) {
  on_device([](const Lab& lab) {
    const int64_t t = 5, hq = 4, hk = 2, d = 6, width = (hq + 2 * hk) * d;
    const std::vector<int32_t> position = {0, 1, 7, 100000, 3};
    const Numbers x = normal(t * width, 1);
    for (double base : {0.0, 10000.0}) {
      Numbers want_q, want_k, want_v;
      for (int64_t i = 0; i < t; ++i)
        for (int64_t c = 0; c < width; ++c) {
          const int64_t head = c / d, e = c % d, pair = e % (d / 2);
          const double angle =
              base > 0 && head < hq + hk ? position[i] * std::pow(base, -2.0 * double(pair) / double(d)) : 0;
          const double other = x[i * width + head * d + (e + d / 2) % d];
          const double value = x[i * width + c] * std::cos(angle) + (e < d / 2 ? -1 : 1) * other * std::sin(angle);
          (head < hq ? want_q : head < hq + hk ? want_k : want_v).push_back(value);
        }
      want_k.insert(want_k.end(), want_v.begin(), want_v.end());
      for (DType type : kBoth) {
        const Tensor q = lab.empty(type, {t, hq, d}), kv = lab.empty(type, {2, t, hk, d}), at = lab.ints(position);
        kernels::split_qkv(lab.device, lab.stream, lab.tensor(type, {t, width}, x), hq, hk, base, at, q, kv);
        EXPECT_LE(distance(lab.read(q), want_q), limit(type));
        EXPECT_LE(distance(lab.read(kv), want_k), limit(type));
        // A rotation's gradient is the rotation back, so joining what was split gives the input.
        const Tensor joined = lab.empty(type, {t, width});
        kernels::join_qkv(lab.device, lab.stream, q, kv, base, at, joined);
        EXPECT_LE(distance(lab.read(joined), x), limit(type));
      }
    }
  });
}

}  // namespace
}  // namespace ringscope
