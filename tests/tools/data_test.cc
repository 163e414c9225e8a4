// Pairs for the softmax, position and loss families, and what a hang root makes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tests/support/train_program.h"
#include "tools/analyze/analyze.h"

namespace ringscope {
namespace {

using testing::TraceBuilder;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNone = -std::numeric_limits<double>::infinity();

std::string ids(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings) text += (text.empty() ? "" : " ") + (f.root ? f.id : "(" + f.id + ")");
  return text;
}

TraceBuilder job(int cp, int dp = 1, int tp = 1) { return testing::build({tp, cp, dp, 1, 1}); }

Where place(int step = 0, int layer = 0) {
  Where where;
  where.step = step;
  where.layer = int16_t(layer);
  where.microbatch = 0;
  where.pass = Pass::kForward;
  return where;
}

double log_sum_exp(const std::vector<double>& values) {
  double sum = 0;
  for (double v : values) sum += std::exp(v);
  return std::log(sum);
}

// What a member knows of one query row, and the three values that a reduction can make of it.
struct RowMath {
  std::vector<double> m, lse;
  double max() const { return *std::max_element(m.begin(), m.end()); }
  double sum_of_max() const {
    double sum = 0;
    for (double v : m) sum += v;
    return sum;
  }
};

// Query rows whose maxima lie on different members; in some, members see nothing.
std::vector<RowMath> rows(int cp) {
  std::vector<RowMath> all;
  for (int k = 0; k < 3; ++k) {
    RowMath row;
    for (int r = 0; r < cp; ++r) {
      const bool sees = k != 1 || r < cp - 1;
      const double m = 1.5 + 0.7 * ((r + k) % cp) + 0.1 * k;
      row.m.push_back(sees ? m : kNone);
      row.lse.push_back(sees ? m + std::log(2.0 + r) : kNone);
    }
    all.push_back(row);
  }
  return all;
}

// used_max(row, member), used_sum(row, member, m_used): what the faulty or right reductions gave.
TraceView three_step(int cp, int dp, const std::function<double(const RowMath&, int)>& used_max,
                     const std::function<double(const RowMath&, int, double)>& used_sum, int faulty_group = 0) {
  TraceBuilder trace = job(cp, dp);
  const std::vector<RowMath> all = rows(cp);
  const auto right_sum = [](const RowMath& row, double m) { return std::exp(log_sum_exp(row.lse) - m); };
  for (int rank = 0; rank < trace.world(); ++rank)
    for (size_t k = 0; k < all.size(); ++k) {
      const int self = trace.cp_of(rank);
      const bool faulty = trace.dp_of(rank) == faulty_group;
      const double m = faulty ? used_max(all[k], self) : all[k].max();
      const double sum = faulty ? used_sum(all[k], self, m) : right_sum(all[k], m);
      trace.raw().softmax_rows.push_back({rank, place(), uint32_t(40 + k), 0, self, uint32_t(trace.dp_of(rank)),
                                          SoftmaxMethod::kGlobalThreeStep, cp, all[k].m[size_t(self)],
                                          all[k].lse[size_t(self)], m, sum, kNan});
    }
  return trace.finish();
}

double max_of(const RowMath& row, int) { return row.max(); }
double sum_of(const RowMath& row, int, double m) { return std::exp(log_sum_exp(row.lse) - m); }
double own_max(const RowMath& row, int self) { return row.m[size_t(self)]; }

TEST(Softmax, ThreeStepRightIsClean) {
  for (int cp : {2, 3, 4}) EXPECT_EQ(ids(analyze(three_step(cp, 2, max_of, sum_of))), "");
}

TEST(Softmax, FloatNoiseIsClean) {
  const auto noisy_max = [](const RowMath& row, int self) { return row.max() * (1 + 1e-7 * self); };
  const auto noisy_sum = [](const RowMath& row, int self, double m) { return sum_of(row, self, m) * (1 - 3e-6); };
  EXPECT_EQ(ids(analyze(three_step(4, 1, noisy_max, noisy_sum))), "");
}

TEST(Softmax, NoGlobalMaxAccusesTheGroup) {
  for (int cp : {2, 4}) {
    const auto sum = [](const RowMath& row, int, double) {
      double total = 0;
      for (size_t i = 0; i < row.m.size(); ++i)
        if (std::isfinite(row.m[i])) total += std::exp(row.lse[i] - row.m[i]);
      return total;
    };
    const Report report = analyze(three_step(cp, 2, own_max, sum, 1));
    ASSERT_EQ(ids(report), "softmax.no_global_max");
    std::vector<int> group;
    for (int r = 0; r < cp; ++r) group.push_back(cp + r);
    EXPECT_EQ(report.findings[0].ranks, group);
    EXPECT_EQ(report.findings[0].group->ranks, group);
    EXPECT_EQ(report.findings[0].where.layer, 0);
  }
}

TEST(Softmax, NoGlobalSumAccusesTheGroup) {
  const auto own = [](const RowMath& row, int self, double m) { return std::exp(row.lse[size_t(self)] - m); };
  for (int cp : {2, 4}) {
    const Report report = analyze(three_step(cp, 1, max_of, own));
    ASSERT_EQ(ids(report), "softmax.no_global_sum");
    EXPECT_EQ(report.findings[0].ranks.size(), size_t(cp));
  }
}

TEST(Softmax, SumForMax) {
  const auto sum_max = [](const RowMath& row, int) { return row.sum_of_max(); };
  for (int cp : {2, 4}) {
    const Report report = analyze(three_step(cp, 1, sum_max, sum_of));
    ASSERT_EQ(ids(report), "softmax.sum_for_max") << report.findings[0].sentence;
    EXPECT_EQ(report.findings[0].ranks.size(), size_t(cp));
  }
}

// A member's rows that were not recorded say nothing.
TEST(Softmax, MissingMembersSayNothing) {
  TraceView view = three_step(4, 1, own_max, sum_of);
  std::erase_if(view.softmax_rows, [](const SoftmaxRow& r) { return r.rank == 3; });
  EXPECT_EQ(ids(analyze(view)), "");
}

TraceView ring_rows(const std::function<double(const std::vector<double>&)>& merge, int faulty_rank,
                    size_t recorded_parts = 4) {
  TraceBuilder trace = job(4);
  for (int rank = 0; rank < 4; ++rank)
    for (uint32_t row = 0; row < 3; ++row) {
      std::vector<double> parts;
      for (int t = 0; t < 4; ++t) parts.push_back(row == 2 && t == 3 ? kNone : 0.5 * t - 0.3 * rank + 0.2 * row);
      for (size_t t = 0; t < recorded_parts; ++t) {
        Where where = place(0, 1);
        where.ring_step = int16_t(t);
        trace.raw().softmax_rows.push_back({rank, where, row, 0, (rank - int(t) + 4) % 4, 0, SoftmaxMethod::kLseMerge,
                                            4, parts[t] - 1, parts[t], kNan, kNan, kNan});
      }
      const double right = log_sum_exp(parts);
      trace.raw().softmax_rows.push_back({rank, place(0, 1), row, 0, 0xFFFF, 0, SoftmaxMethod::kLseMerge, 4, kNan, kNan,
                                          kNan, kNan, rank == faulty_rank ? merge(parts) : right});
    }
  return trace.finish();
}

TEST(Softmax, LseMerge) {
  EXPECT_EQ(ids(analyze(ring_rows(log_sum_exp, 2))), "");
  const auto noisy = [](const std::vector<double>& parts) { return log_sum_exp(parts) + 2e-6; };
  EXPECT_EQ(ids(analyze(ring_rows(noisy, 2))), "");
  struct Case {
    std::function<double(const std::vector<double>&)> merge;
    const char* says;
  };
  const std::vector<Case> cases = {{[](const auto& p) { return p.back(); }, "last part"},
                                   {[](const auto& p) {
                                      return log_sum_exp({p[0], p[2], p[3]});
                                    },
                                    "part 1 is missing"},
                                   {[](const auto& p) {
                                      return log_sum_exp({p[0], p[1], p[1], p[2], p[3]});
                                    },
                                    "part 1 is counted twice"},
                                   {[](const auto& p) { return log_sum_exp(p) / std::log(2.0); }, "ln 2"}};
  for (const Case& c : cases) {
    const Report report = analyze(ring_rows(c.merge, 2));
    ASSERT_EQ(ids(report), "softmax.lse_merge");
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2});
    EXPECT_EQ(report.findings[0].where.layer, 1);
    EXPECT_NE(report.findings[0].sentence.find(c.says), std::string::npos) << report.findings[0].sentence;
  }
  EXPECT_EQ(ids(analyze(ring_rows([](const auto& p) { return p.back(); }, 2, 3))), "") << "a part was not recorded";
}

// A data finding that starts behind a hang root follows from it; one that starts before stands alone.
TEST(Softmax, CorruptedDataFollowsFromTheDivergence) {
  for (int step : {0, 1}) {
    testing::Job wrong{1, 4, 1, 3, 2};
    wrong.wrong.skip_weight_cp = [](int r, const Where& w) { return r == 1 && w.step == 0 && w.layer == 0; };
    TraceView view = testing::build(wrong).finish();
    TraceView merge = ring_rows([](const auto& p) { return p.back(); }, 2);
    for (SoftmaxRow& row : merge.softmax_rows) row.where.step = step;
    view.softmax_rows = merge.softmax_rows;
    EXPECT_EQ(ids(analyze(view)),
              step == 1 ? "hang.missing_rank (softmax.lse_merge)" : "softmax.lse_merge hang.missing_rank");
  }
}

// position(local index, row, rank): what was applied. 32 rows, the last three are padding.
TraceView position_rows(int cp, const std::string& layout,
                        const std::function<uint32_t(uint32_t, uint32_t, int)>& position, int steps = 2) {
  constexpr uint32_t kLength = 32, kTrue = 29;
  TraceBuilder trace = job(cp);
  trace.raw().meta[meta_key::kCpLayout] = layout;
  for (int rank = 0; rank < cp; ++rank) {
    std::vector<uint32_t> mine;
    const uint32_t chunk = layout == "zigzag" ? kLength / uint32_t(2 * cp) : kLength / uint32_t(cp);
    for (uint32_t i = 0; i < chunk; ++i) mine.push_back(uint32_t(rank) * chunk + i);
    if (layout == "zigzag")
      for (uint32_t i = 0; i < chunk; ++i) mine.push_back(uint32_t(2 * cp - 1 - rank) * chunk + i);
    for (int step = 0; step < steps; ++step)
      for (PositionRole role : {PositionRole::kData, PositionRole::kRope})
        for (uint32_t i = 0; i < mine.size(); ++i) {
          const bool padding = mine[i] >= kTrue;
          const uint32_t made = padding ? 0 : mine[i];
          trace.raw().position_runs.push_back({rank, place(step, -1), role, mine[i], 1,
                                               role == PositionRole::kData ? made : position(i, made, rank), 1,
                                               padding ? 0xFFFFFFFF : 0, 0, 10000});
        }
  }
  return trace.finish();
}

TEST(Position, EqualIsClean) {
  for (const char* layout : {"contiguous", "zigzag"})
    EXPECT_EQ(ids(analyze(position_rows(2, layout, [](uint32_t, uint32_t row, int) { return row; }))), "");
}

TEST(Position, Restart) {
  for (int cp : {2, 4}) {
    const Report report = analyze(position_rows(cp, "contiguous", [](uint32_t i, uint32_t, int) { return i; }));
    ASSERT_EQ(ids(report), "position.restart");
    std::vector<int> wrong;  // rank 0 starts at 0 anyhow
    for (int r = 1; r < cp; ++r) wrong.push_back(r);
    EXPECT_EQ(report.findings[0].ranks, wrong);
    EXPECT_EQ(report.findings[0].where.step, 0);
  }
  EXPECT_EQ(ids(analyze(position_rows(2, "zigzag", [](uint32_t i, uint32_t, int) { return i; }))), "position.restart");
}

TEST(Position, ZigzagOnContiguous) {
  for (int cp : {2, 4}) {
    const auto zigzag = [cp](uint32_t i, uint32_t, int rank) {
      const uint32_t chunk = 32 / uint32_t(2 * cp);
      const uint32_t row = i < chunk ? uint32_t(rank) * chunk + i : uint32_t(2 * cp - 1 - rank) * chunk + i - chunk;
      return row < 29 ? row : 0;
    };
    const Report report = analyze(position_rows(cp, "contiguous", zigzag));
    ASSERT_EQ(ids(report), "position.layout");
    EXPECT_EQ(report.findings[0].ranks.size(), size_t(cp)) << report.findings[0].sentence;
    EXPECT_NE(report.findings[0].sentence.find("zigzag"), std::string::npos);
  }
}

// A killed run has made positions whose application was never recorded.
TEST(Position, OnlyMadeSaysNothing) {
  TraceView view = position_rows(4, "contiguous", [](uint32_t i, uint32_t, int) { return i; });
  std::erase_if(view.position_runs, [](const PositionRunRow& r) { return r.role != PositionRole::kData; });
  EXPECT_EQ(ids(analyze(view)), "");
}

TraceView loss_rows(const std::vector<uint64_t>& counts, bool own_divisor, int tp = 1) {
  TraceBuilder trace = job(2, int(counts.size()) / 2, tp);
  uint64_t total = 0;
  for (uint64_t n : counts) total += n;
  for (int rank = 0; rank < trace.world(); ++rank)
    for (int step = 0; step < 2; ++step) {
      const uint64_t n = counts[size_t(trace.dp_of(rank) * 2 + trace.cp_of(rank))];
      TrainStepRow row;
      row.rank = rank;
      row.where.step = step;
      row.loss_sum = 3.0 * double(n);
      row.valid_tokens = n;
      row.divisor = own_divisor ? double(n) : double(total);
      row.loss = own_divisor && counts[0] != counts[1] ? 3.2 : 3.0;
      trace.raw().train_steps.push_back(row);
    }
  return trace.finish();
}

TEST(Loss, PerRankMean) {
  const Report report = analyze(loss_rows({64, 40}, true, 2));
  ASSERT_EQ(ids(report), "loss.per_rank_mean");
  EXPECT_EQ(report.findings[0].ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_NE(report.findings[0].sentence.find("off by"), std::string::npos) << report.findings[0].sentence;
}

TEST(Loss, CleanCases) {
  EXPECT_EQ(ids(analyze(loss_rows({64, 40}, false))), "");
  EXPECT_EQ(ids(analyze(loss_rows({64, 64}, true))), "") << "equal counts: the mean of means is the mean";
  EXPECT_EQ(ids(analyze(loss_rows({64, 40, 0, 0}, false))), "") << "idle data-parallel ranks";
  TraceView cut = loss_rows({64, 40}, true);
  std::erase_if(cut.train_steps, [](const TrainStepRow& r) { return r.rank == 1; });
  EXPECT_EQ(ids(analyze(cut)), "") << "a rank's step was not recorded";
}

}  // namespace
}  // namespace ringscope
