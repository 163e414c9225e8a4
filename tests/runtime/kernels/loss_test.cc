// The vocabulary-parallel loss against the oracle's cross entropy, the optimizer against its formulas, and
// the merge kernel of the GPU as its host twin.
#include <gtest/gtest.h>

#include "runtime/kernels/cuda/lse_merge_body.h"
#include "runtime/oracle/oracle.h"
#include "tests/runtime/kernels/lab.h"
#include "tests/runtime/kernels/merge_cases.h"

namespace ringscope {
namespace {

using testing::distance;
using testing::Lab;
using testing::normal;
using testing::Numbers;
using testing::on_device;

constexpr DType kBoth[] = {DType::kF64, DType::kF32};

struct LossRun {
  double sum = 0, count = 0;
  Numbers d_logits;  // of the valid columns, as one part
};

// The loss as `parts` tensor-parallel ranks compute it: every rank has `columns` columns, the last ones
// padding.
LossRun run_loss(const Lab& lab, DType type, const Numbers& logits, int64_t rows, int64_t v, int parts,
                 const std::vector<int32_t>& labels) {
  const int64_t columns = (v + parts - 1) / parts + 1;  // one column of padding at least
  struct Part {
    Tensor logits, m, sum_exp, target;
    int64_t first, valid;
  };
  std::vector<Part> all;
  Numbers m(rows, -INFINITY), sum_exp(rows, 0), target(rows, 0);
  const Tensor label_t = lab.ints(labels);
  for (int p = 0; p < parts; ++p) {
    const int64_t per = (v + parts - 1) / parts, first = p * per, valid = std::min(per, v - first);
    Numbers own;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) own.push_back(j < valid ? logits[i * v + first + j] : 1e6);
    Part part{lab.tensor(type, {rows, columns}, own),
              lab.empty(DType::kF64, {rows}),
              lab.empty(DType::kF64, {rows}),
              lab.empty(DType::kF64, {rows}),
              first,
              valid};
    kernels::row_max(lab.device, lab.stream, part.logits, valid, part.m);
    const Numbers own_m = lab.read(part.m);
    for (int64_t i = 0; i < rows; ++i) m[i] = std::max(m[i], own_m[i]);
    all.push_back(part);
  }
  const Tensor m_t = lab.tensor(DType::kF64, {rows}, m);
  for (Part& part : all) {
    kernels::sum_exp_target(lab.device, lab.stream, part.logits, part.valid, m_t, label_t, part.first, part.sum_exp,
                            part.target);
    const Numbers own_sum = lab.read(part.sum_exp), own_target = lab.read(part.target);
    for (int64_t i = 0; i < rows; ++i) sum_exp[i] += own_sum[i], target[i] += own_target[i];
  }
  const Tensor sum_t = lab.tensor(DType::kF64, {rows}, sum_exp), target_t = lab.tensor(DType::kF64, {rows}, target);
  const Tensor totals = lab.zeros(DType::kF64, {2});
  kernels::loss_sum(lab.device, lab.stream, m_t, sum_t, target_t, label_t, totals);
  LossRun out;
  const Numbers total = lab.read(totals);
  out.sum = total[0], out.count = total[1];
  const Tensor half = lab.tensor(DType::kF64, {1}, {total[1] / 2});
  out.d_logits.assign(rows * v, 0);
  for (Part& part : all) {
    const Tensor d = lab.empty(type, {rows, columns});
    kernels::cross_entropy_backward(lab.device, lab.stream, part.logits, part.valid, m_t, sum_t, label_t, part.first,
                                    half, d);
    const Numbers own = lab.read(d);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) {
        if (j < part.valid) out.d_logits[i * v + part.first + j] = own[i * columns + j] / 2;
        else EXPECT_EQ(own[i * columns + j], 0);
      }
  }
  return out;
}

TEST(Loss, AnySplitOfTheVocabularyIsTheOracles) {
  on_device([](const Lab& lab) {
    const int64_t rows = 12, v = 37;
    Numbers logits = normal(rows * v, 1);
    for (double& x : logits) x *= 8;
    std::vector<int32_t> labels = {0, 36, -1, 5, 12, 13, -1, 18, 19, 24, 25, 1};
    const oracle::Loss want = oracle::cross_entropy(logits, v, labels);
    for (int parts : {1, 2, 3})
      for (DType type : kBoth) {
        const LossRun got = run_loss(lab, type, logits, rows, v, parts, labels);
        const double limit = type == DType::kF64 ? 1e-14 : 1e-6;
        EXPECT_EQ(got.count, double(want.count));
        EXPECT_NEAR(got.sum, want.sum, limit * want.sum);
        EXPECT_LE(distance(got.d_logits, want.d_logits), limit) << parts;
      }
  });
}

TEST(Loss, NoCountedTokenIsZero) {
  on_device([](const Lab& lab) {
    const LossRun got = run_loss(lab, DType::kF64, normal(3 * 5, 1), 3, 5, 1, {-1, -1, -1});
    EXPECT_EQ(got.sum, 0);
    EXPECT_EQ(got.count, 0);
    EXPECT_EQ(got.d_logits, Numbers(15, 0));
  });
}

TEST(Oracle, CrossEntropyGradient) {
  const Numbers logits = normal(4 * 7, 3);
  const std::vector<int32_t> labels = {2, -1, 6, 0};
  const auto mean = [&](const Numbers& x) { return Numbers{oracle::cross_entropy(x, 7, labels).mean()}; };
  EXPECT_LE(testing::gradient_error(mean, logits, {1}, oracle::cross_entropy(logits, 7, labels).d_logits), 1e-9);
}

TEST(Optimizer, SumOfSquaresAndClipFactor) {
  on_device([](const Lab& lab) {
    const Tensor total = lab.tensor(DType::kF64, {1}, {1.0}), clip = lab.empty(DType::kF64, {1});
    kernels::sum_of_squares(lab.device, lab.stream, lab.tensor(DType::kF32, {3}, {1, 2, 3}), total);
    kernels::sum_of_squares(lab.device, lab.stream, lab.tensor(DType::kF64, {1}, {1}), total);
    EXPECT_EQ(lab.read(total)[0], 16);
    const auto factor = [&](double max_norm) {
      kernels::clip_factor(lab.device, lab.stream, total, max_norm, clip);
      return lab.read(clip)[0];
    };
    EXPECT_DOUBLE_EQ(factor(1), 1 / (4 + 1e-6));
    EXPECT_EQ(factor(5), 1);
    EXPECT_EQ(factor(0), 1);
  });
}

TEST(Optimizer, AdamWStepsFollowTheFormula) {
  on_device([](const Lab& lab) {
    const int64_t n = 19;
    for (DType type : kBoth) {
      Numbers w = normal(n, 1), m(n, 0), v(n, 0);
      const Tensor wt = lab.tensor(type, {n}, w), mt = lab.zeros(type, {n}), vt = lab.zeros(type, {n});
      const double clip = 0.7;
      for (int64_t step = 1; step <= 5; ++step) {
        kernels::AdamW a;
        a.lr = 0.003 * double(step), a.weight_decay = 0.1, a.step = step;
        const Numbers g = normal(n, 10 + uint32_t(step));
        kernels::adamw(lab.device, lab.stream, wt, lab.tensor(type, {n}, g), mt, vt,
                       lab.tensor(DType::kF64, {1}, {clip}), a);
        for (int64_t i = 0; i < n; ++i) {
          const double grad = g[i] * clip;
          w[i] *= 1 - a.lr * a.weight_decay;
          m[i] = a.beta1 * m[i] + (1 - a.beta1) * grad;
          v[i] = a.beta2 * v[i] + (1 - a.beta2) * grad * grad;
          const double root = std::sqrt(v[i]) / std::sqrt(1 - std::pow(a.beta2, double(step))) + a.eps;
          w[i] -= a.lr / (1 - std::pow(a.beta1, double(step))) * m[i] / root;
        }
      }
      const double limit = type == DType::kF64 ? 1e-14 : 1e-6;
      EXPECT_LE(distance(lab.read(wt), w), limit);
      EXPECT_LE(distance(lab.read(mt), m), limit);
      EXPECT_LE(distance(lab.read(vt), v), limit);
    }
  });
}

// The lanes of the CUDA kernel, one after another on the host: same indices, same arithmetic.
template <class T>
void check_twin(int64_t rows, int64_t d, double limit) {
  testing::MergeCase<T> c(rows, d);
  const oracle::AttentionResult want = c.expected();
  const cuda::LseMerge<T> m{c.o.data(), c.lse.data(), c.part_o.data(), c.part_lse.data(), rows, d};
  for (int64_t row = 0; row < rows; ++row) {
    double lse = 0;
    for (int lane = 0; lane < cuda::kLanes; ++lane) lse = cuda::merge_lane(m, row, lane);
    c.lse[row] = lse;
  }
  EXPECT_LE(distance(Numbers(c.o.begin(), c.o.end()), want.o), limit) << rows << " x " << d;
  EXPECT_LE(distance(c.lse, want.lse), 1e-14);
}

TEST(CudaMergeTwin, MatchesOracle) {
  for (int64_t d : {1, 12, 32, 64, 70}) {
    check_twin<double>(97, d, 1e-13);
    check_twin<float>(97, d, 1e-6);
  }
}

}  // namespace
}  // namespace ringscope
