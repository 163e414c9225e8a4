// NaN and infinity through every kernel: poison any one input element, and the outputs that are not finite must be
// exactly those of the plain float64 formula. Kernels that exist once per instruction set are tried in all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>

#include "runtime/kernels/cpu/flash.h"
#include "runtime/kernels/cpu/pointwise.h"
#include "runtime/kernels/cuda/lse_merge_body.h"
#include "runtime/layout/layout.h"
#include "runtime/oracle/oracle.h"
#include "tests/runtime/kernels/lab.h"

namespace ringscope {
namespace {

using testing::Lab;
using testing::normal;
using testing::Numbers;
using testing::on_device;
using Arrays = std::vector<Numbers>;
using Function = std::function<Arrays(const Arrays&)>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr DType kBoth[] = {DType::kF64, DType::kF32};
constexpr double kPoisons[] = {kNan, kInf, -kInf};

// One formula, and the kernels that compute it. In one input -inf may have a meaning of its own: a row that sees nothing.
struct Subject {
  std::string name;
  Arrays inputs;
  Function reference;
  std::vector<std::pair<std::string, Function>> kernels;
  int minus_infinity_means_empty = -1;
};

// "" or what differs first.
std::string difference(const Arrays& got, const Arrays& want) {
  for (size_t a = 0; a < want.size(); ++a)
    for (size_t i = 0; i < want[a].size(); ++i) {
      const double g = got[a][i], w = want[a][i];
      const bool alike = std::isfinite(g) == std::isfinite(w);
      if (alike && (!std::isfinite(w) || std::abs(g - w) <= 1e-4 * (1 + std::abs(w)))) continue;
      return "output " + std::to_string(a) + "[" + std::to_string(i) + "] is " + std::to_string(g) +
             ", the formula gives " + std::to_string(w);
    }
  return "";
}

// Every element of short inputs, about `most` of long ones.
void try_all(const Subject& s, size_t most = 20) {
  const auto agree = [&](const Arrays& inputs, const std::string& what) {
    const Arrays want = s.reference(inputs);
    for (const auto& [kernel, run] : s.kernels) {
      const std::string wrong = difference(run(inputs), want);
      EXPECT_EQ(wrong, "") << s.name << ", " << kernel << ", " << what;
      if (!wrong.empty()) return false;
    }
    return true;
  };
  if (!agree(s.inputs, "nothing poisoned")) return;
  for (size_t input = 0; input < s.inputs.size(); ++input) {
    const size_t n = s.inputs[input].size(), step = std::max<size_t>(1, n / most);
    for (size_t i = n / 2 % step; i < n; i += step)
      for (double poison : kPoisons) {
        if (poison == -kInf && s.minus_infinity_means_empty == int(input)) continue;
        Arrays poisoned = s.inputs;
        poisoned[input][i] = poison;
        if (!agree(poisoned,
                   "input " + std::to_string(input) + "[" + std::to_string(i) + "] = " + std::to_string(poison)))
          return;
      }
  }
}

// ---- attention: every instruction set and type against the oracle -------------------------------------------------

std::vector<const flash::Kernels*> instruction_sets() {
  std::vector<const flash::Kernels*> all = {&flash::baseline()};
  if (flash::best().vector_bytes >= 32) all.push_back(&flash::avx2());
  if (flash::best().vector_bytes >= 64) all.push_back(&flash::avx512());
  return all;
}

template <class T>
std::vector<T> as(const Numbers& x) {
  return {x.begin(), x.end()};
}
template <class T>
Numbers back(const std::vector<T>& x) {
  return {x.begin(), x.end()};
}

template <class T>
struct Aligned {
  std::vector<T> memory;
  explicit Aligned(int64_t n) : memory(n + 64) {}
  T* data() { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64); }
};

void call(const flash::Kernels& k, const flash::Forward<float>& f, float* scratch) { k.forward_f32(f, scratch); }
void call(const flash::Kernels& k, const flash::Forward<double>& f, double* scratch) { k.forward_f64(f, scratch); }
void call(const flash::Kernels& k, const flash::Backward<float>& f, float* scratch) { k.backward_f32(f, scratch); }
void call(const flash::Kernels& k, const flash::Backward<double>& f, double* scratch) { k.backward_f64(f, scratch); }

// Tiles on the diagonal, below it, at the end, across documents, and rows that see nothing.
oracle::Attention problem(const std::string& pattern) {
  oracle::Attention a;
  a.tq = a.tk = 84;
  a.hq = 2, a.hk = 1, a.d = 3;
  a.scale = 0.6;
  for (int32_t i = 0; i < a.tq; ++i) {
    const bool documents = pattern == "documents";
    a.q_row.push_back(pattern == "earlier" ? i - 20 : i);
    a.k_row.push_back(i);
    a.q_document.push_back(documents ? (i < 50 ? 0 : i < 76 ? 1 : -1) : 0);
    a.k_document.push_back(a.q_document.back());
  }
  return a;
}

Arrays qkv(const oracle::Attention& a) {
  return {normal(a.tq * a.hq * a.d, 1), normal(a.tk * a.hk * a.d, 2), normal(a.tk * a.hk * a.d, 3)};
}
oracle::Attention with(oracle::Attention a, const Arrays& x) {
  a.q = x[0], a.k = x[1], a.v = x[2];
  return a;
}

template <class T>
Arrays run_forward(const flash::Kernels& kernels, const oracle::Attention& a, flash::Mode mode, const Numbers& m_used) {
  const auto q = as<T>(a.q), k = as<T>(a.k), v = as<T>(a.v);
  std::vector<T> o(q.size());
  Numbers lse(a.tq * a.hq), m = m_used.empty() ? Numbers(lse.size()) : m_used;
  Aligned<T> scratch(flash::scratch_elements(a.tk, a.d));
  flash::Forward<T> f{};
  f.q = q.data(), f.k = k.data(), f.v = v.data();
  f.q_row = a.q_row.data(), f.q_document = a.q_document.data();
  f.k_row = a.k_row.data(), f.k_document = a.k_document.data();
  f.batch = 1, f.tq = a.tq, f.tk = a.tk, f.hq = a.hq, f.hk = a.hk, f.d = a.d, f.scale = a.scale, f.mode = mode;
  f.o = o.data(), f.lse = lse.data(), f.m = m.data();
  call(kernels, f, scratch.data());
  if (mode == flash::Mode::kMaxOnly) return {m};
  return mode == flash::Mode::kOnline ? Arrays{back(o), lse, m} : Arrays{back(o), lse};
}
template <class T>
Arrays run_backward(const flash::Kernels& kernels, const oracle::Attention& a, const Numbers& d_o_values,
                    const Numbers& lse, const Numbers& delta) {
  const auto q = as<T>(a.q), k = as<T>(a.k), v = as<T>(a.v), d_o = as<T>(d_o_values);
  std::vector<T> dq(q.size()), dk(k.size()), dv(v.size());
  Aligned<T> scratch(flash::scratch_elements(a.tk, a.d));
  flash::Backward<T> f{};
  f.q = q.data(), f.k = k.data(), f.v = v.data(), f.d_o = d_o.data(), f.lse = lse.data(), f.delta = delta.data();
  f.q_row = a.q_row.data(), f.q_document = a.q_document.data();
  f.k_row = a.k_row.data(), f.k_document = a.k_document.data();
  f.batch = 1, f.tq = a.tq, f.tk = a.tk, f.hq = a.hq, f.hk = a.hk, f.d = a.d, f.scale = a.scale;
  f.dq = dq.data(), f.dk = dk.data(), f.dv = dv.data();
  call(kernels, f, scratch.data());
  return {back(dq), back(dk), back(dv)};
}

// `run` is called with a kernel table and a value of the type.
template <class Run>
std::vector<std::pair<std::string, Function>> everywhere(Run run) {
  std::vector<std::pair<std::string, Function>> all;
  for (const flash::Kernels* k : instruction_sets()) {
    all.emplace_back(std::string(k->isa) + " fp64", [=](const Arrays& x) { return run(*k, x, double{}); });
    all.emplace_back(std::string(k->isa) + " fp32", [=](const Arrays& x) { return run(*k, x, float{}); });
  }
  return all;
}

const char* const kPatterns[] = {"causal", "documents", "earlier"};

TEST(NonFinite, FlashForward) {
  for (const char* pattern : kPatterns) {
    const oracle::Attention a = problem(pattern);
    const Function reference = [=](const Arrays& x) {
      const auto want = oracle::attention(with(a, x));
      return Arrays{want.o, want.lse, want.m};
    };
    try_all({pattern, qkv(a), reference, everywhere([=](const flash::Kernels& k, const Arrays& x, auto zero) {
               return run_forward<decltype(zero)>(k, with(a, x), flash::Mode::kOnline, {});
             })});
  }
}

TEST(NonFinite, FlashBackward) {
  for (const char* pattern : kPatterns) {
    const oracle::Attention a = problem(pattern);
    Arrays inputs = qkv(a);
    const auto forward = oracle::attention(with(a, inputs));
    const Numbers d_o = normal(int64_t(forward.o.size()), 4);
    inputs.insert(inputs.end(), {d_o, forward.lse, oracle::attention_delta(forward.o, d_o, a.d)});
    const Function reference = [=](const Arrays& x) {
      const auto g = oracle::attention_backward(with(a, x), x[3], x[4], x[5]);
      return Arrays{g.dq, g.dk, g.dv};
    };
    Subject s{pattern, inputs, reference, everywhere([=](const flash::Kernels& k, const Arrays& x, auto zero) {
                return run_backward<decltype(zero)>(k, with(a, x), x[3], x[4], x[5]);
              })};
    s.minus_infinity_means_empty = 4;
    try_all(s, 12);
  }
}

// A query whose every visible score is -inf has no softmax, forward or backward, and does not touch other rows.
TEST(NonFinite, ScoresOfMinusInfinityOnly) {
  oracle::Attention a = with(problem("causal"), qkv(problem("causal")));
  for (int64_t i = 0; i < 3; ++i) a.k[i * a.d] = 1, a.q[(2 * a.hq + 1) * a.d] = -kInf;
  const auto want = oracle::attention(a);
  const Numbers d_o = normal(int64_t(want.o.size()), 4), delta = oracle::attention_delta(want.o, d_o, a.d);
  const auto want_g = oracle::attention_backward(a, d_o, want.lse, delta);
  EXPECT_TRUE(std::isnan(want.o[(2 * a.hq + 1) * a.d]));
  for (const flash::Kernels* k : instruction_sets()) {
    SCOPED_TRACE(k->isa);
    const Arrays got = run_forward<double>(*k, a, flash::Mode::kOnline, {});
    EXPECT_EQ(difference(got, {want.o, want.lse, want.m}), "");
    EXPECT_EQ(difference(run_backward<float>(*k, a, d_o, want.lse, delta), {want_g.dq, want_g.dk, want_g.dv}), "");
  }
}

// sum_j exp(s_j - m) v_j and sum_j exp(s_j - m) over the visible keys, m given.
Arrays exp_sum_formula(const oracle::Attention& a, const Numbers& m) {
  Numbers u(a.q.size(), 0), z(m.size(), 0);
  for (int64_t i = 0; i < a.tq; ++i)
    for (int64_t h = 0; h < a.hq; ++h)
      for (int64_t j = 0; j < a.tk; ++j) {
        if (!may_see(a.q_row[i], a.q_document[i], a.k_row[j], a.k_document[j])) continue;
        double score = 0;
        for (int64_t x = 0; x < a.d; ++x) score += a.q[(i * a.hq + h) * a.d + x] * a.k[j * a.d + x];
        const double weight = std::exp(a.scale * score - m[i * a.hq + h]);
        z[i * a.hq + h] += weight;
        for (int64_t x = 0; x < a.d; ++x) u[(i * a.hq + h) * a.d + x] += weight * a.v[j * a.d + x];
      }
  return {u, z};
}

TEST(NonFinite, ThreeStepSoftmax) {
  for (const char* pattern : kPatterns) {
    const oracle::Attention a = problem(pattern);
    Arrays inputs = qkv(a);
    const Function max = [=](const Arrays& x) { return Arrays{oracle::attention(with(a, {x[0], x[1], x[1]})).m}; };
    try_all({pattern, {inputs[0], inputs[1]}, max, everywhere([=](const flash::Kernels& k, const Arrays& x, auto zero) {
               return run_forward<decltype(zero)>(k, with(a, {x[0], x[1], x[1]}), flash::Mode::kMaxOnly, {});
             })},
            12);
    inputs.push_back(oracle::attention(with(a, inputs)).m);
    const Function sums = [=](const Arrays& x) { return exp_sum_formula(with(a, x), x[3]); };
    Subject s{pattern, inputs, sums, everywhere([=](const flash::Kernels& k, const Arrays& x, auto zero) {
                return run_forward<decltype(zero)>(k, with(a, x), flash::Mode::kFixedMax, x[3]);
              })};
    s.minus_infinity_means_empty = 3;
    try_all(s, 12);
  }
}

// Whatever the number of shards, the same rows are not finite; here two, merged as the ring does.
TEST(NonFinite, ShardsOfTheKeys) {
  const oracle::Attention a = problem("causal");
  const auto shard = [a](const Arrays& x, int64_t begin, int64_t end) {
    oracle::Attention part = with(a, x);
    part.tk = end - begin;
    for (Numbers* t : {&part.k, &part.v}) *t = Numbers(t->begin() + begin * a.d, t->begin() + end * a.d);
    part.k_row = {part.k_row.begin() + begin, part.k_row.begin() + end};
    part.k_document = {part.k_document.begin() + begin, part.k_document.begin() + end};
    return part;
  };
  const Function whole = [=](const Arrays& x) {
    const auto want = oracle::attention(with(a, x));
    return Arrays{want.o, want.lse};
  };
  try_all({"two shards", qkv(a), whole, everywhere([=](const flash::Kernels& k, const Arrays& x, auto zero) {
             using T = decltype(zero);
             Arrays one = run_forward<T>(k, shard(x, 0, 40), flash::Mode::kOnline, {});
             const Arrays two = run_forward<T>(k, shard(x, 40, a.tk), flash::Mode::kOnline, {});
             for (size_t i = 0; i < one[1].size(); ++i) {
               const MergeWeights w = merge_weights(one[1][i], two[1][i]);
               for (int64_t d = int64_t(i) * a.d; d < int64_t(i + 1) * a.d; ++d)
                 one[0][d] = merge_value(w, one[0][d], two[0][d]);
               one[1][i] = w.lse;
             }
             return Arrays{one[0], one[1]};
           })});
}

// ---- element-wise kernels in every instruction set ----------------------------------------------------------------

std::vector<std::pair<std::string, const pointwise::Kernels*>> pointwise_sets() {
  std::vector<std::pair<std::string, const pointwise::Kernels*>> all = {{"baseline", &pointwise::baseline()}};
  if (flash::best().vector_bytes >= 32) all.emplace_back("AVX2", &pointwise::avx2());
  if (flash::best().vector_bytes >= 64) all.emplace_back("AVX-512", &pointwise::avx512());
  return all;
}

// `run(table, inputs as T, output arrays as T)`; outputs have the size of the first input.
template <class Run>
std::vector<std::pair<std::string, Function>> pointwise_everywhere(size_t outputs, Run run) {
  std::vector<std::pair<std::string, Function>> all;
  const auto add = [&](const std::string& isa, const auto* table, auto zero, const char* type) {
    using T = decltype(zero);
    all.emplace_back(isa + type, [=](const Arrays& x) {
      std::vector<std::vector<T>> in, out(outputs, std::vector<T>(x[0].size()));
      for (const Numbers& values : x) in.push_back(as<T>(values));
      run(*table, in, out);
      Arrays result;
      for (const auto& values : out) result.push_back(back(values));
      return result;
    });
  };
  for (const auto& [isa, kernels] : pointwise_sets()) {
    add(isa, &kernels->f64, double{}, " fp64");
    add(isa, &kernels->f32, float{}, " fp32");
  }
  return all;
}

// Numbers of all sizes: the exponentials in these kernels overflow in fp32 for the largest.
Numbers wide(int64_t n, uint32_t seed) {
  Numbers x = normal(n, seed);
  for (int64_t i = 0; i < n; ++i) x[i] *= i % 4 == 3 ? 60 : 1;
  return x;
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double gelu(double x) { return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST(NonFinite, Activations) {
  const int64_t n = 37;
  const auto map = [](const Arrays& x, auto f) {
    Numbers y;
    for (size_t i = 0; i < x[0].size(); ++i) y.push_back(f(i));
    return y;
  };
  try_all({"gelu",
           {wide(n, 1)},
           [=](const Arrays& x) { return Arrays{map(x, [&](size_t i) { return gelu(x[0][i]); })}; },
           pointwise_everywhere(1, [](const auto& t, auto& in, auto& out) {
             t.gelu(in[0].data(), int64_t(in[0].size()), out[0].data());
           })});
  try_all({"gelu_backward",
           {wide(n, 1), normal(n, 2)},
           [=](const Arrays& x) { return Arrays{map(x, [&](size_t i) { return x[1][i] * gelu_slope(x[0][i]); })}; },
           pointwise_everywhere(1, [](const auto& t, auto& in, auto& out) {
             t.gelu_backward(in[0].data(), in[1].data(), int64_t(in[0].size()), out[0].data());
           })});
  try_all(
      {"swiglu",
       {wide(n, 1), normal(n, 2)},
       [=](const Arrays& x) { return Arrays{map(x, [&](size_t i) { return x[0][i] * sigmoid(x[0][i]) * x[1][i]; })}; },
       pointwise_everywhere(1, [](const auto& t, auto& in, auto& out) {
         t.swiglu(in[0].data(), in[1].data(), int64_t(in[0].size()), out[0].data());
       })});
  try_all({"swiglu_backward",
           {wide(n, 1), normal(n, 2), normal(n, 3)},
           [=](const Arrays& x) {
             return Arrays{map(x,
                               [&](size_t i) {
                                 const double g = x[0][i], s = sigmoid(g);
                                 return x[2][i] * x[1][i] * (s + g * s * (1 - s));
                               }),
                           map(x, [&](size_t i) { return x[2][i] * x[0][i] * sigmoid(x[0][i]); })};
           },
           pointwise_everywhere(2, [](const auto& t, auto& in, auto& out) {
             t.swiglu_backward(in[0].data(), in[1].data(), in[2].data(), int64_t(in[0].size()), out[0].data(),
                               out[1].data());
           })});
}

TEST(NonFinite, Exponentials) {
  const int64_t n = 37;
  const double factor = 0.25;
  try_all({"sum_exp",
           {wide(n, 1), {70}},
           [](const Arrays& x) {
             double sum = 0;
             for (double value : x[0]) sum += std::exp(value - x[1][0]);
             return Arrays{{sum}};
           },
           pointwise_everywhere(1, [](const auto& t, auto& in, auto& out) {
             out[0][0] = typename std::decay_t<decltype(out[0])>::value_type(
                 t.sum_exp(in[0].data(), in[1][0], int64_t(in[0].size())));
             out[0].resize(1);
           })});
  try_all({"scaled_exp",
           {wide(n, 1), {70}},
           [=](const Arrays& x) {
             Numbers y;
             for (double value : x[0]) y.push_back(factor * std::exp(value - x[1][0]));
             return Arrays{y};
           },
           pointwise_everywhere(1, [=](const auto& t, auto& in, auto& out) {
             using T = typename std::decay_t<decltype(out[0])>::value_type;
             t.scaled_exp(in[0].data(), in[1][0], T(factor), int64_t(in[0].size()), out[0].data());
           })});
}

// A shard far below the maximum adds nothing, not the smallest normal number.
TEST(NonFinite, FarBelowTheMaximumIsZero) {
  for (const auto& [isa, kernels] : pointwise_sets()) {
    SCOPED_TRACE(isa);
    const float far32[] = {-1000, -90, -INFINITY, 0}, low = -3e38f;
    EXPECT_EQ(kernels->f32.sum_exp(far32, 0, 4), 1);
    EXPECT_EQ(kernels->f32.sum_exp(&low, 0, 1), 0);
    const double far64[] = {-1e6, -750, -kInf, 0};
    EXPECT_EQ(kernels->f64.sum_exp(far64, 0, 4), 1);
  }
}

TEST(NonFinite, Dropout) {
  const int64_t n = 70;
  Numbers ones(n, 1), kept(n);
  pointwise::baseline().f64.dropout(ones.data(), 5, 0, 0.4, n, kept.data());
  try_all({"dropout",
           {normal(n, 1)},
           [=](const Arrays& x) {
             Numbers y;
             for (int64_t i = 0; i < n; ++i) y.push_back(x[0][i] * kept[i]);
             return Arrays{y};
           },
           pointwise_everywhere(1, [](const auto& t, auto& in, auto& out) {
             t.dropout(in[0].data(), 5, 0, 0.4, int64_t(in[0].size()), out[0].data());
           })});
}

// ---- the other kernels, as launches -------------------------------------------------------------------------------

using Shape = std::vector<int64_t>;

// A kernel that takes `shapes` as inputs in `type` (fp64 where `exact` says so) and gives tensors.
template <class Run>
Function launch(const Lab& lab, DType type, std::vector<Shape> shapes, Run run, std::vector<size_t> exact = {}) {
  return [=, &lab](const Arrays& x) {
    std::vector<Tensor> in;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const bool is_exact = std::find(exact.begin(), exact.end(), i) != exact.end();
      const Shape& s = shapes[i];
      const DType dtype = is_exact ? DType::kF64 : type;
      in.push_back(s.size() == 1   ? lab.tensor(dtype, {s[0]}, x[i])
                   : s.size() == 2 ? lab.tensor(dtype, {s[0], s[1]}, x[i])
                   : s.size() == 3 ? lab.tensor(dtype, {s[0], s[1], s[2]}, x[i])
                                   : lab.tensor(dtype, {s[0], s[1], s[2], s[3]}, x[i]));
    }
    Arrays out;
    for (const Tensor& t : run(in)) out.push_back(lab.read(t));
    return out;
  };
}

template <class Run>
void try_launch(const Lab& lab, const std::string& name, std::vector<Shape> shapes, Run run, const Function& reference,
                std::vector<size_t> exact = {}) {
  Arrays inputs;
  for (const Shape& s : shapes) {
    int64_t count = 1;
    for (int64_t n : s) count *= n;
    inputs.push_back(normal(count, uint32_t(7 + inputs.size())));
  }
  for (DType type : kBoth)
    try_all({name, inputs, reference, {{type == DType::kF64 ? "fp64" : "fp32", launch(lab, type, shapes, run, exact)}}},
            8);
}
using Tensors = std::vector<Tensor>;

TEST(NonFinite, MatrixProducts) {
  on_device([](const Lab& lab) {
    for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {5, 7, 3}, {33, 1, 17}, {1, 20, 70}, {40, 33, 20}})
      for (bool ta : {false, true})
        for (bool tb : {false, true})
          for (bool add : {false, true})
            try_launch(
                lab, "gemm", {ta ? Shape{k, m} : Shape{m, k}, tb ? Shape{n, k} : Shape{k, n}, {m, n}},
                [&lab, ta, tb, add](const Tensors& in) {
                  kernels::gemm(lab.device, lab.stream, "test", in[0], ta, in[1], tb, in[2], add);
                  return Tensors{in[2]};
                },
                [=, m = m, n = n, k = k](const Arrays& x) {
                  Numbers c = add ? x[2] : Numbers(x[2].size(), 0);
                  for (int64_t i = 0; i < m; ++i)
                    for (int64_t j = 0; j < n; ++j)
                      for (int64_t l = 0; l < k; ++l)
                        c[i * n + j] += x[0][ta ? l * m + i : i * k + l] * x[1][tb ? j * k + l : l * n + j];
                  return Arrays{c};
                });
  });
}

TEST(NonFinite, Sums) {
  on_device([](const Lab& lab) {
    Device& device = lab.device;
    Stream& stream = lab.stream;
    const int64_t t = 6, n = 5;
    const auto columns = [=](const Numbers& x, auto f) {
      Numbers out(x);
      for (int64_t i = 0; i < t * n; ++i) out[i] = f(i, i % n);
      return out;
    };
    try_launch(
        lab, "add_bias", {{t, n}, {n}},
        [&](const Tensors& in) { return kernels::add_bias(device, stream, "test", in[0], in[1]), Tensors{in[0]}; },
        [=](const Arrays& x) {
          return Arrays{columns(x[0], [&](int64_t i, int64_t j) { return x[0][i] + x[1][j]; })};
        });
    try_launch(
        lab, "bias_grad", {{t, n}, {n}},
        [&](const Tensors& in) { return kernels::bias_grad(device, stream, "test", in[0], in[1]), Tensors{in[1]}; },
        [=](const Arrays& x) {
          Numbers sum = x[1];
          for (int64_t i = 0; i < t * n; ++i) sum[i % n] += x[0][i];
          return Arrays{sum};
        });
    try_launch(
        lab, "add", {{t, n}, {t, n}},
        [&](const Tensors& in) { return kernels::add(device, stream, "test", in[0], in[1], in[0]), Tensors{in[0]}; },
        [=](const Arrays& x) { return Arrays{columns(x[0], [&](int64_t i, int64_t) { return x[0][i] + x[1][i]; })}; });
    try_launch(
        lab, "accumulate", {{t, n}, {t, n}},
        [&](const Tensors& in) { return kernels::accumulate(device, stream, "test", in[0], in[1]), Tensors{in[1]}; },
        [=](const Arrays& x) { return Arrays{columns(x[0], [&](int64_t i, int64_t) { return x[0][i] + x[1][i]; })}; });
    try_launch(
        lab, "scale by 0", {{t, n}},
        [&](const Tensors& in) { return kernels::scale(device, stream, "test", in[0], 0), Tensors{in[0]}; },
        [=](const Arrays& x) { return Arrays{columns(x[0], [&](int64_t i, int64_t) { return x[0][i] * 0; })}; });
    try_launch(
        lab, "copy", {{t, n}, {t, n}},
        [&](const Tensors& in) { return kernels::copy(device, stream, "test", in[0], in[1]), Tensors{in[1]}; },
        [=](const Arrays& x) { return Arrays{x[0]}; });
  });
}

struct NormRow {
  double mean, rstd;
};
NormRow norm_row(const Numbers& x, int64_t row, int64_t h, bool centred) {
  double mean = 0, square = 0;
  for (int64_t j = 0; j < h && centred; ++j) mean += x[row * h + j] / double(h);
  for (int64_t j = 0; j < h; ++j) square += (x[row * h + j] - mean) * (x[row * h + j] - mean) / double(h);
  return {mean, 1 / std::sqrt(square + 1e-5)};
}
// Of both norms: x, w, dy, mean, rstd, dw, db in; dx, dw, db out.
Arrays norm_gradient(const Arrays& x, int64_t rows, int64_t h, bool centred) {
  Numbers dx(x[0].size()), dw = x[5], db = x[6];
  for (int64_t i = 0; i < rows; ++i) {
    double sum = 0, dot = 0;
    const double mean = centred ? x[3][i] : 0, rstd = x[4][i];
    const auto xhat = [&](int64_t j) { return (x[0][i * h + j] - mean) * rstd; };
    for (int64_t j = 0; j < h; ++j) {
      const double dy = x[2][i * h + j], g = dy * x[1][j];
      sum += g / double(h), dot += g * xhat(j) / double(h);
      dw[j] += dy * xhat(j), db[j] += dy;
    }
    for (int64_t j = 0; j < h; ++j)
      dx[i * h + j] = rstd * (x[2][i * h + j] * x[1][j] - (centred ? sum : 0) - xhat(j) * dot);
  }
  return centred ? Arrays{dx, dw, db} : Arrays{dx, dw};
}

TEST(NonFinite, Norms) {
  on_device([](const Lab& lab) {
    const int64_t rows = 3, h = 7;
    for (bool centred : {true, false}) {
      const std::string name = centred ? "layer_norm" : "rms_norm";
      try_launch(
          lab, name, {{rows, h}, {h}, {h}},
          [&lab, centred](const Tensors& in) {
            const Tensor y = lab.empty(in[0].dtype(), {rows, h}), mean = lab.zeros(DType::kF64, {rows});
            const Tensor rstd = lab.empty(DType::kF64, {rows});
            if (centred) kernels::layer_norm(lab.device, lab.stream, in[0], in[1], in[2], 1e-5, y, mean, rstd);
            else kernels::rms_norm(lab.device, lab.stream, in[0], in[1], 1e-5, y, rstd);
            return Tensors{y, mean, rstd};
          },
          [=](const Arrays& x) {
            Numbers y, means, rstds;
            for (int64_t i = 0; i < rows; ++i) {
              const NormRow r = norm_row(x[0], i, h, centred);
              for (int64_t j = 0; j < h; ++j)
                y.push_back((x[0][i * h + j] - r.mean) * r.rstd * x[1][j] + (centred ? x[2][j] : 0));
              means.push_back(r.mean), rstds.push_back(r.rstd);
            }
            return Arrays{y, means, rstds};
          });
      try_launch(
          lab, name + "_backward", {{rows, h}, {h}, {rows, h}, {rows}, {rows}, {h}, {h}},
          [&lab, centred](const Tensors& in) {
            const Tensor dx = lab.empty(in[0].dtype(), {rows, h});
            if (centred)
              kernels::layer_norm_backward(lab.device, lab.stream, in[2], in[0], in[1], in[3], in[4], dx, in[5], in[6]);
            else kernels::rms_norm_backward(lab.device, lab.stream, in[2], in[0], in[1], in[4], dx, in[5]);
            return centred ? Tensors{dx, in[5], in[6]} : Tensors{dx, in[5]};
          },
          [=](const Arrays& x) { return norm_gradient(x, rows, h, centred); }, {3, 4});
    }
  });
}

TEST(NonFinite, Embeddings) {
  on_device([](const Lab& lab) {
    const int64_t t = 5, h = 3, rows = 4;
    const std::vector<int32_t> ids = {1, 3, 3, 9, 0};  // 9: another part's, or a position behind the table's end
    const Tensor tokens = lab.ints(ids);
    const auto row_of = [ids](int64_t i, bool clamp) { return clamp ? std::min(ids[i], 3) : ids[i] < 4 ? ids[i] : -1; };
    const auto gathered = [=](const Numbers& table, Numbers y, bool clamp) {
      for (int64_t i = 0; i < t * h; ++i)
        if (const int row = row_of(i / h, clamp); row >= 0) y[i] += table[row * h + i % h];
      return Arrays{y};
    };
    const auto scattered = [=](const Numbers& dy, Numbers table, bool clamp) {
      for (int64_t i = 0; i < t * h; ++i)
        if (const int row = row_of(i / h, clamp); row >= 0) table[row * h + i % h] += dy[i];
      return Arrays{table};
    };
    try_launch(
        lab, "embedding", {{rows, h}, {t, h}},
        [&](const Tensors& in) {
          kernels::embedding(lab.device, lab.stream, tokens, in[0], 0, in[1]);
          return Tensors{in[1]};
        },
        [=](const Arrays& x) { return gathered(x[0], Numbers(t * h, 0), false); });
    try_launch(
        lab, "embedding_backward", {{t, h}, {rows, h}},
        [&](const Tensors& in) {
          kernels::embedding_backward(lab.device, lab.stream, tokens, in[0], 0, in[1]);
          return Tensors{in[1]};
        },
        [=](const Arrays& x) { return scattered(x[0], x[1], false); });
    try_launch(
        lab, "position_embedding", {{rows, h}, {t, h}},
        [&](const Tensors& in) {
          kernels::add_position_embedding(lab.device, lab.stream, tokens, in[0], in[1]);
          return Tensors{in[1]};
        },
        [=](const Arrays& x) { return gathered(x[0], x[1], true); });
    try_launch(
        lab, "position_embedding_backward", {{t, h}, {rows, h}},
        [&](const Tensors& in) {
          kernels::position_embedding_backward(lab.device, lab.stream, tokens, in[0], in[1]);
          return Tensors{in[1]};
        },
        [=](const Arrays& x) { return scattered(x[0], x[1], true); });
  });
}

// Element i of a head turns with element i + d/2.
Numbers rotated(Numbers x, int64_t tokens, int64_t heads, int64_t d, double sign) {
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < d / 2; ++i) {
        const double angle = double(t) * std::pow(100.0, -2.0 * double(i) / double(d));
        double &a = x[(t * heads + head) * d + i], &b = x[(t * heads + head) * d + i + d / 2];
        const double c = std::cos(angle), s = sign * std::sin(angle), first = a * c - b * s;
        b = b * c + a * s, a = first;
      }
  return x;
}

TEST(NonFinite, RotaryPositions) {
  on_device([](const Lab& lab) {
    const int64_t t = 4, hq = 2, hk = 1, d = 6, width = (hq + 2 * hk) * d;
    const Tensor position = lab.ints({0, 1, 2, 3});
    const auto part = [=](const Numbers& x, int64_t begin, int64_t heads) {
      Numbers out;
      for (int64_t i = 0; i < t; ++i) out.insert(out.end(), &x[i * width + begin], &x[i * width + begin] + heads * d);
      return out;
    };
    try_launch(
        lab, "split_qkv", {{t, width}},
        [&](const Tensors& in) {
          const Tensor q = lab.empty(in[0].dtype(), {t, hq, d}), kv = lab.empty(in[0].dtype(), {2, t, hk, d});
          kernels::split_qkv(lab.device, lab.stream, in[0], hq, hk, 100, position, q, kv);
          return Tensors{q, kv};
        },
        [=](const Arrays& x) {
          Numbers kv = rotated(part(x[0], hq * d, hk), t, hk, d, 1);
          const Numbers v = part(x[0], (hq + hk) * d, hk);
          kv.insert(kv.end(), v.begin(), v.end());
          return Arrays{rotated(part(x[0], 0, hq), t, hq, d, 1), kv};
        });
    try_launch(
        lab, "join_qkv", {{t, hq, d}, {2, t, hk, d}},
        [&](const Tensors& in) {
          const Tensor out = lab.empty(in[0].dtype(), {t, width});
          kernels::join_qkv(lab.device, lab.stream, in[0], in[1], 100, position, out);
          return Tensors{out};
        },
        [=](const Arrays& x) {
          const Numbers q = rotated(x[0], t, hq, d, -1);
          const Numbers k = rotated(Numbers(x[1].begin(), x[1].begin() + t * hk * d), t, hk, d, -1);
          Numbers out;
          for (int64_t i = 0; i < t; ++i) {
            out.insert(out.end(), &q[i * hq * d], &q[i * hq * d] + hq * d);
            out.insert(out.end(), &k[i * hk * d], &k[i * hk * d] + hk * d);
            out.insert(out.end(), &x[1][(t + i) * hk * d], &x[1][(t + i) * hk * d] + hk * d);
          }
          return Arrays{out};
        });
  });
}

TEST(NonFinite, MergeDeltaAndNormalise) {
  on_device([](const Lab& lab) {
    const int64_t rows = 6, d = 3;
    const Function merged = [=](const Arrays& x) {
      const auto want = oracle::merge({{x[0], x[1], x[1]}, {x[2], x[3], x[3]}}, d);
      return Arrays{want.o, want.lse};
    };
    try_launch(lab, "lse_merge", {{rows, 1, d}, {rows, 1}, {rows, 1, d}, {rows, 1}},
               [&](const Tensors& in) {
                 kernels::lse_merge(lab.device, lab.stream, in[0], in[1], in[2], in[3]);
                 return Tensors{in[0], in[1]};
               },
               merged, {1, 3});
    // The CUDA kernel's arithmetic, compiled for this machine; parts so far apart that one weight is 0.
    try_all({"cuda merge",
             {normal(rows * d, 1), {1e3, -1e3, 0, 1, -1, -kInf}, normal(rows * d, 2), Numbers(rows, 0)},
             merged,
             {{"host", [=](const Arrays& x) {
                 Arrays y = x;
                 const cuda::LseMerge<double> m{y[0].data(), y[1].data(), y[2].data(), y[3].data(), rows, d};
                 for (int64_t row = 0; row < rows; ++row) {
                   double lse = 0;
                   for (int lane = 0; lane < cuda::kLanes; ++lane) lse = cuda::merge_lane(m, row, lane);
                   y[1][row] = lse;
                 }
                 return Arrays{y[0], y[1]};
               }}}});
    try_launch(
        lab, "attention_delta", {{rows, 1, d}, {rows, 1, d}},
        [&](const Tensors& in) {
          const Tensor delta = lab.empty(DType::kF64, {rows, 1});
          kernels::attention_delta(lab.device, lab.stream, in[0], in[1], delta);
          return Tensors{delta};
        },
        [=](const Arrays& x) { return Arrays{oracle::attention_delta(x[0], x[1], d)}; });
    Subject s{"softmax_normalise",
              {normal(rows * d, 1), normal(rows, 2), Numbers(rows, 3)},
              [=](const Arrays& x) {
                Numbers o, lse;
                for (int64_t i = 0; i < rows * d; ++i) o.push_back(x[0][i] / x[2][i / d]);
                for (int64_t i = 0; i < rows; ++i) lse.push_back(x[1][i] + std::log(x[2][i]));
                return Arrays{o, lse};
              },
              {}};
    for (DType type : kBoth)
      s.kernels.emplace_back("launch", launch(lab, type, {{rows, 1, d}, {rows, 1}, {rows, 1}},
                                              [&lab](const Tensors& in) {
                                                const Tensor o = lab.empty(in[0].dtype(), {rows, 1, d});
                                                const Tensor lse = lab.empty(DType::kF64, {rows, 1});
                                                kernels::softmax_normalise(lab.device, lab.stream, in[0], in[1], in[2],
                                                                           o, lse);
                                                return Tensors{o, lse};
                                              },
                                              {1, 2}));
    s.minus_infinity_means_empty = 1;
    try_all(s);
  });
}

TEST(NonFinite, Loss) {
  on_device([](const Lab& lab) {
    const int64_t t = 5, v = 9;
    const std::vector<int32_t> label_values = {3, 8, -1, 0, 5};
    const Tensor labels = lab.ints(label_values);
    // Loss sum and d_logits of the whole pipeline, against the oracle. -1: not counted.
    try_launch(
        lab, "cross entropy", {{t, v}},
        [&](const Tensors& in) {
          const Tensor m = lab.empty(DType::kF64, {t}), sum = lab.empty(DType::kF64, {t});
          const Tensor target = lab.empty(DType::kF64, {t}), totals = lab.zeros(DType::kF64, {2});
          const Tensor divisor = lab.tensor(DType::kF64, {1}, {4}), d = lab.empty(in[0].dtype(), {t, v});
          kernels::row_max(lab.device, lab.stream, in[0], v, m);
          kernels::sum_exp_target(lab.device, lab.stream, in[0], v, m, labels, 0, sum, target);
          kernels::loss_sum(lab.device, lab.stream, m, sum, target, labels, totals);
          kernels::cross_entropy_backward(lab.device, lab.stream, in[0], v, m, sum, labels, 0, divisor, d);
          return Tensors{totals, d};
        },
        [=](const Arrays& x) {
          const oracle::Loss loss = oracle::cross_entropy(x[0], v, label_values);
          return Arrays{{loss.sum, double(loss.count)}, loss.d_logits};
        });
  });
}

TEST(NonFinite, Optimizer) {
  on_device([](const Lab& lab) {
    const int64_t n = 11;
    try_launch(
        lab, "sum_of_squares", {{n}, {1}},
        [&](const Tensors& in) {
          kernels::sum_of_squares(lab.device, lab.stream, in[0], in[1]);
          return Tensors{in[1]};
        },
        [](const Arrays& x) {
          double sum = x[1][0];
          for (double value : x[0]) sum += value * value;
          return Arrays{{sum}};
        },
        {1});
    for (double total : {9.0, 0.25}) {
      const Function clip = [](const Arrays& x) {
        const double room = 2 / (std::sqrt(x[0][0]) + 1e-6);
        return Arrays{{room > 1 ? 1.0 : room}};
      };
      try_all({"clip_factor", {{total}}, clip, {{"launch", launch(lab, DType::kF64, {{1}}, [&](const Tensors& in) {
                                                   const Tensor out = lab.empty(DType::kF64, {1});
                                                   kernels::clip_factor(lab.device, lab.stream, in[0], 2, out);
                                                   return Tensors{out};
                                                 })}}});
    }
    const kernels::AdamW adam{0.1, 0.9, 0.95, 1e-8, 0.1, 3};
    Subject s{"adamw",
              {normal(n, 1), normal(n, 2), normal(n, 3), Numbers(n, 0.5), {0.7}},
              [=](const Arrays& x) {
                Numbers w = x[0], m = x[2], v = x[3];
                for (int64_t i = 0; i < n; ++i) {
                  const double g = x[1][i] * x[4][0];
                  m[i] = adam.beta1 * m[i] + (1 - adam.beta1) * g;
                  v[i] = adam.beta2 * v[i] + (1 - adam.beta2) * g * g;
                  const double mean = m[i] / (1 - std::pow(adam.beta1, 3)), var = v[i] / (1 - std::pow(adam.beta2, 3));
                  w[i] = w[i] * (1 - adam.lr * adam.weight_decay) - adam.lr * mean / (std::sqrt(var) + adam.eps);
                }
                return Arrays{w, m, v};
              },
              {}};
    for (DType type : kBoth)
      s.kernels.emplace_back("launch", launch(lab, type, {{n}, {n}, {n}, {n}, {1}},
                                              [&lab, adam](const Tensors& in) {
                                                kernels::adamw(lab.device, lab.stream, in[0], in[1], in[2], in[3],
                                                               in[4], adam);
                                                return Tensors{in[0], in[2], in[3]};
                                              },
                                              {4}));
    try_all(s);
  });
}

}  // namespace
}  // namespace ringscope
