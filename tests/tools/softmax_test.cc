// Pairs for the softmax family, and what a hang root makes of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/tools/data_rows.h"

namespace ringscope {
namespace {

using namespace testing;

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
  TraceBuilder trace = small_job(cp, dp);
  const std::vector<RowMath> all = rows(cp);
  const auto right_sum = [](const RowMath& row, double m) { return std::exp(log_sum_exp(row.lse) - m); };
  for (int rank = 0; rank < trace.world(); ++rank)
    for (size_t k = 0; k < all.size(); ++k) {
      const int self = trace.cp_of(rank);
      const bool faulty = trace.dp_of(rank) == faulty_group;
      const double m = faulty ? used_max(all[k], self) : all[k].max();
      const double sum = faulty ? used_sum(all[k], self, m) : right_sum(all[k], m);
      trace.raw().softmax_rows.push_back({rank, forward_of(0), uint32_t(40 + k), 0, self, uint32_t(trace.dp_of(rank)),
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
  TraceBuilder trace = small_job(4);
  for (int rank = 0; rank < 4; ++rank)
    for (uint32_t row = 0; row < 3; ++row) {
      std::vector<double> parts;
      for (int t = 0; t < 4; ++t) parts.push_back(row == 2 && t == 3 ? kNone : 0.5 * t - 0.3 * rank + 0.2 * row);
      for (size_t t = 0; t < recorded_parts; ++t) {
        Where where = forward_of(0, 1);
        where.ring_step = int16_t(t);
        trace.raw().softmax_rows.push_back({rank, where, row, 0, (rank - int(t) + 4) % 4, 0, SoftmaxMethod::kLseMerge,
                                            4, parts[t] - 1, parts[t], kNan, kNan, kNan});
      }
      const double right = log_sum_exp(parts);
      trace.raw().softmax_rows.push_back({rank, forward_of(0, 1), row, 0, 0xFFFF, 0, SoftmaxMethod::kLseMerge, 4, kNan,
                                          kNan, kNan, kNan, rank == faulty_rank ? merge(parts) : right});
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

double least(const RowMath& row, int) { return *std::min_element(row.m.begin(), row.m.end()); }

// A reduction that is recorded with the call of every member.
TraceView with_call(TraceView view, RedOp op) {
  std::vector<OpRow> ops;
  for (const CommRow& comm : view.comms)
    for (int32_t rank : comm.ranks) {
      OpRow row;
      row.rank = rank;
      row.op = uint64_t(rank + 1) << 40 | 0xFFFF;
      row.kind = OpKind::kCollective;
      row.state = OpState::kCompleted;
      row.where = forward_of(0);
      row.coll = uint32_t(view.colls.size());
      CollRow coll;
      coll.op = uint32_t(ops.size());
      coll.comm = comm.comm;
      coll.func = CollFunc::kAllReduce;
      coll.redop = op;
      view.colls.push_back(coll);
      ops.push_back(row);
    }
  view.ops = std::move(ops);
  return view;
}

TraceView bare(TraceView view) {  // only the softmax rows are left
  view.ops.clear(), view.colls.clear(), view.p2ps.clear(), view.accesses.clear(), view.syncs.clear();
  return view;
}

TEST(Softmax, WrongReductionIsNamedAfterTheCall) {
  for (int cp : {2, 4}) {
    const Report report = analyze(with_call(bare(three_step(cp, 1, least, sum_of)), RedOp::kMin));
    ASSERT_EQ(ids(report), "softmax.wrong_reduction");
    EXPECT_EQ(report.findings[0].ranks.size(), size_t(cp));
    EXPECT_NE(report.findings[0].sentence.find("MIN instead of MAX"), std::string::npos) << report.findings[0].sentence;
  }
  // The values say MIN, the calls say MAX: no name fits.
  EXPECT_EQ(ids(analyze(with_call(bare(three_step(4, 1, least, sum_of)), RedOp::kMax))), "softmax.unexplained");
  const auto most = [](const RowMath& row, int, double m) {
    double value = 0;
    for (double lse : row.lse) value = std::max(value, std::exp(lse - m));
    return value;
  };
  const Report report = analyze(three_step(4, 1, max_of, most));
  ASSERT_EQ(ids(report), "softmax.wrong_reduction");
  EXPECT_NE(report.findings[0].sentence.find("MAX instead of SUM"), std::string::npos) << report.findings[0].sentence;
}

TEST(Softmax, DenominatorUsedTwiceIsUnexplained) {
  const auto twice = [](const RowMath& row, int self, double m) { return 2 * sum_of(row, self, m); };
  for (int cp : {2, 4}) {
    const Report report = analyze(three_step(cp, 2, max_of, twice, 1));
    ASSERT_EQ(ids(report), "softmax.unexplained");
    EXPECT_EQ(report.findings[0].ranks.size(), size_t(cp)) << "the other replica is right";
    EXPECT_NE(report.findings[0].sentence.find("the sum over the group is"), std::string::npos);
  }
  const auto one = [](const RowMath& row, int self, double m) { return (self == 2 ? 3 : 1) * sum_of(row, self, m); };
  const Report report = analyze(three_step(4, 1, max_of, one));
  ASSERT_EQ(ids(report), "softmax.unexplained");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2});
}

// The result of three steps must follow from the maximum and the denominator that were used.
TEST(Softmax, ResultOfThreeSteps) {
  for (double factor : {1.0, 2.0}) {
    TraceView view = three_step(2, 1, max_of, sum_of);
    const std::vector<RowMath> all = rows(2);
    for (size_t k = 0; k < all.size(); ++k)
      view.softmax_rows.push_back({1, forward_of(0), uint32_t(40 + k), 0, 0xFFFF, 0, SoftmaxMethod::kGlobalThreeStep, 2,
                                   kNan, kNan, kNan, kNan, log_sum_exp(all[k].lse) + std::log(factor)});
    const Report report = analyze(view);
    ASSERT_EQ(ids(report), factor == 1 ? "" : "softmax.unexplained");
    if (factor != 1) {
      EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
    }
  }
}

TEST(Softmax, NeedsNoLabels) {
  const auto own = [](const RowMath& row, int self, double m) { return std::exp(row.lse[size_t(self)] - m); };
  const Report report = analyze(without_labels(three_step(4, 1, max_of, own)));
  ASSERT_EQ(ids(report), "softmax.no_global_sum");
  EXPECT_EQ(report.findings[0].ranks.size(), 4u);
  EXPECT_EQ(report.findings[0].group->ranks.size(), 4u);
  EXPECT_EQ(ids(analyze(without_labels(three_step(4, 2, max_of, sum_of)))), "");
}

// Each of these rows cannot be, so nothing rests on the rows beside it, and they are counted.
TEST(Softmax, RowsThatContradictThemselvesProveNothing) {
  const auto last = [](const std::vector<double>& parts) { return parts.back(); };
  const std::vector<std::function<void(SoftmaxRow&)>> damages = {
      [](SoftmaxRow& r) { r.where.ring_step = 130; },
      [](SoftmaxRow& r) { r.kv_owner = 130; },
      [](SoftmaxRow& r) { r.parts = 3; },
      [](SoftmaxRow& r) { r.where.ring_step = int16_t((r.where.ring_step + 1) % 4); },  // twice
      [](SoftmaxRow& r) { r.lse_own = r.m_own + 30; },                                  // more keys than there are
      [](SoftmaxRow& r) { r.lse_own = r.m_own - 1; },
      [](SoftmaxRow& r) { r.m_own = kNone; },
  };
  for (const auto& damage : damages) {
    TraceView view = ring_rows(last, 2);
    for (SoftmaxRow& row : view.softmax_rows)
      if (row.rank == 2 && row.kv_owner == 1) damage(row);
    const Report report = analyze(view);
    EXPECT_EQ(ids(report), "") << &damage - &damages[0];
    EXPECT_EQ(contradictions(report), 3 * 5) << "three samples of five rows";
    EXPECT_EQ(report.verdict, Verdict::kIncomplete);
  }
  EXPECT_EQ(contradictions(analyze(ring_rows(last, 2))), 0);
}

// What a run of scores up to 1e18 records: parts far below the maximum have no log-sum-exp that could be read.
TEST(Softmax, SizeAloneProvesNothing) {
  for (double size : {1e3, 1e6, 1e10, 1e18})
    for (bool known : {true, false}) {
      TraceBuilder trace = small_job(2);
      for (int rank : {0, 1}) {
        const double own = rank == 0 ? size : -size;
        trace.raw().softmax_rows.push_back({rank, forward_of(0), 40, 0, rank, 0, SoftmaxMethod::kGlobalThreeStep, 2,
                                            own,
                                            rank == 0 ? own
                                            : known   ? size - 87
                                                      : kNan,
                                            size, 1, kNan});
      }
      const Report report = analyze(trace.finish());
      EXPECT_EQ(ids(report), "") << size;
      EXPECT_EQ(contradictions(report), known ? 2 : 0) << size;
    }
}

// The keys of one member twice, so those of another never.
TEST(Softmax, RepeatedPart) {
  TraceView view = ring_rows(log_sum_exp, 2);
  for (SoftmaxRow& row : view.softmax_rows)
    if (row.rank == 1 && row.where.ring_step == 3) row.kv_owner = 3;
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "softmax.lse_merge");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
}

// Rows that were computed again: four members, one query row of each, one block of 8 keys a member. `change` plays the
// bug; it sees every row that was put out or computed again, and the whole row last.
using ChangeRow = std::function<void(AttentionRow&)>;
AttentionRow share(int rank, int owner, SoftmaxMethod method) {
  AttentionRow row;
  row.where = forward_of(0, 1);
  if (method == SoftmaxMethod::kLseMerge) row.where.ring_step = int16_t((rank - owner + 4) % 4);
  row.position = uint32_t(40 + rank);  // of three steps: whose row it is
  row.kv_owner = row.block_owner = owner;
  row.dtype = DType::kF32;
  row.method = method;
  row.parts = 4;
  row.m = 0.3 + 0.1 * owner - 0.05 * rank;
  row.lse = row.m + std::log(6.0);
  row.out = 0.2 * owner - 0.1 * rank + 0.05;
  row.out_size = 1;
  row.score_noise = 0.5;
  row.keys = 8;
  row.checksum = uint64_t(100 + (method == SoftmaxMethod::kLseMerge ? owner : rank));
  return row;
}

TraceView attention_rows(const ChangeRow& change, SoftmaxMethod method = SoftmaxMethod::kLseMerge, int steps = 2) {
  TraceBuilder trace = small_job(4);
  for (int step = 0; step < steps; ++step)
    for (int rank = 0; rank < 4; ++rank) {
      AttentionRow whole = share(rank, 0, method);
      whole.kv_owner = 0xFFFF;
      whole.where.ring_step = -1;
      whole.where.step = step;
      whole.rank = rank;
      double sum = 0;
      whole.out = 0;
      for (int owner = 0; owner < 4; ++owner) {
        AttentionRow row = share(rank, owner, method);
        row.where.step = step;
        row.rank = method == SoftmaxMethod::kLseMerge ? rank : owner;
        if (method == SoftmaxMethod::kGlobalThreeStep) row.block_owner = rank;
        for (RowMaker maker : {RowMaker::kRecomputed, RowMaker::kKernel}) {
          row.maker = maker;
          AttentionRow recorded = row;
          change(recorded);
          trace.raw().attention_rows.push_back(recorded);
        }
        sum += std::exp(row.lse);
        whole.out += std::exp(row.lse) * row.out;
      }
      whole.lse = std::log(sum);
      whole.out /= sum;
      change(whole);
      trace.raw().attention_rows.push_back(whole);
    }
  auto& rows = trace.raw().attention_rows;
  std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  return trace.finish();
}
bool kernel_share(const AttentionRow& r) { return r.maker == RowMaker::kKernel && r.kv_owner != 0xFFFF; }
bool whole_row(const AttentionRow& r) { return r.kv_owner == 0xFFFF; }

// fp32 noise passes, in either direction; the same changes in fp64 do not.
TEST(Recomputed, NoiseIsClean) {
  for (SoftmaxMethod method : {SoftmaxMethod::kLseMerge, SoftmaxMethod::kGlobalThreeStep})
    for (double noise : {0.0, 3e-7, -3e-7})
      for (DType dtype : {DType::kF32, DType::kF64}) {
        const auto noisy = [&](AttentionRow& r) {
          r.dtype = dtype;
          if (r.maker == RowMaker::kKernel) r.lse += noise, r.out -= noise;
        };
        const std::string found = ids(analyze(attention_rows(noisy, method)));
        if (noise == 0 || dtype == DType::kF32) {
          EXPECT_EQ(found, "") << noise;
        } else {
          EXPECT_NE(found, "") << noise;
        }
      }
}

TEST(Recomputed, AKernelThatDoesNotDoWhatItsInputsSay) {
  struct Case {
    ChangeRow bug;
    const char* says;
  };
  const std::vector<Case> cases = {
      {[](AttentionRow& r) { r.m *= 8, r.lse *= 8; }, "8 times the score"},
      {[](AttentionRow& r) { r.lse += std::log(9.0 / 8); }, "the weight of about 9 keys where 8 are visible"},
      {[](AttentionRow& r) { r.m = r.lse = -INFINITY, r.out = 0; }, "saw none of 8 visible keys"},
      {[](AttentionRow& r) { r.out *= 2; }, "2 times the output"}};
  for (SoftmaxMethod method : {SoftmaxMethod::kLseMerge, SoftmaxMethod::kGlobalThreeStep})
    for (const Case& c : cases) {
      const auto on_rank_2 = [&](AttentionRow& r) {
        if (kernel_share(r) && r.rank == 2 && r.where.step == 1) c.bug(r);
      };
      const Report report = analyze(attention_rows(on_rank_2, method));
      ASSERT_EQ(ids(report), "softmax.unexplained") << c.says;
      EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2});
      EXPECT_EQ(report.findings[0].where.step, 1);
      EXPECT_NE(report.findings[0].sentence.find(c.says), std::string::npos) << report.findings[0].sentence;
    }
}

TEST(Recomputed, MergesOfRightParts) {
  const double right_out = [] {
    double sum = 0, out = 0;
    for (int owner = 0; owner < 4; ++owner) {
      const AttentionRow row = share(1, owner, SoftmaxMethod::kLseMerge);
      sum += std::exp(row.lse), out += std::exp(row.lse) * row.out;
    }
    return out / sum;
  }();
  const std::vector<std::pair<double, const char*>> cases = {{0.25, "mean of the parts"},  // of -0.05, 0.15, 0.35, 0.55
                                                             {1.0, "sum of the parts without weights"},
                                                             {0.55, "one part alone"},
                                                             {3 * right_out, "3 times what is right"}};
  for (const auto& [out, says] : cases) {
    const Report report = analyze(attention_rows([out = out](AttentionRow& r) {
      if (whole_row(r) && r.rank == 1) r.out = out;
    }));
    ASSERT_EQ(ids(report), "softmax.lse_merge");
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
    EXPECT_NE(report.findings[0].sentence.find(says), std::string::npos) << report.findings[0].sentence;
  }
  // A part that no kernel put out, and a whole row without it.
  TraceView view = attention_rows([](AttentionRow& r) {
    if (whole_row(r) && r.rank == 1) r.lse -= 0.3;
  });
  std::erase_if(view.attention_rows,
                [](const AttentionRow& r) { return kernel_share(r) && r.rank == 1 && r.kv_owner == 3; });
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "softmax.unexplained");
  EXPECT_NE(report.findings[0].sentence.find("no kernel put out the keys of members 3"), std::string::npos)
      << report.findings[0].sentence;
}

// Each of these takes away what the verdict rests on.
TEST(Recomputed, WhatIsNotRecordedOrNoNumberSaysNothing) {
  const auto bug = [](AttentionRow& r) {
    if (kernel_share(r) && r.rank == 2) r.out *= 2;
    if (whole_row(r) && r.rank == 1) r.out *= 2;
  };
  ASSERT_EQ(ids(analyze(attention_rows(bug))), "softmax.lse_merge (softmax.unexplained)");
  TraceView view = attention_rows(bug);
  std::erase_if(view.attention_rows, [](const AttentionRow& r) { return r.maker == RowMaker::kRecomputed; });
  EXPECT_EQ(ids(analyze(view)), "");
  for (double value : {kNan, double(INFINITY)}) {
    EXPECT_EQ(ids(analyze(attention_rows([&](AttentionRow& r) {
                if (r.maker == RowMaker::kKernel) r.m = r.lse = r.out = value;
              }))),
              "");
    EXPECT_EQ(ids(analyze(attention_rows([&](AttentionRow& r) {
                bug(r);
                if (r.maker == RowMaker::kRecomputed) r.lse = r.out = value;
              }))),
              "");
  }
  // A run that diverged: scores so large that their rounding says nothing about weights.
  EXPECT_EQ(ids(analyze(attention_rows([&](AttentionRow& r) {
              bug(r);
              r.score_noise = 1e9;
            }))),
            "");
}

TEST(Recomputed, RowsThatContradictThemselvesProveNothing) {
  const std::vector<ChangeRow> damages = {
      [](AttentionRow& r) { r.lse = r.m - 1; },    [](AttentionRow& r) { r.lse = r.m + 3; },
      [](AttentionRow& r) { r.out_size = 0.001; }, [](AttentionRow& r) { r.kv_owner = 9; },
      [](AttentionRow& r) { r.parts = 3; },        [](AttentionRow& r) { r.keys = 0; }};
  for (const ChangeRow& damage : damages) {
    const Report report = analyze(attention_rows([&](AttentionRow& r) {
      if (kernel_share(r)) r.out *= 2;
      if (r.maker == RowMaker::kRecomputed && r.kv_owner == 2) damage(r);
    }));
    EXPECT_EQ(ids(report), "") << &damage - &damages[0];
    EXPECT_EQ(report.verdict, Verdict::kIncomplete);
  }
}

// A block of bytes that another member, or the member itself in another call, is known to have made; and one of nobody.
TEST(Blocks, ThatAreNotTheirOwners) {
  for (SoftmaxMethod method : {SoftmaxMethod::kLseMerge, SoftmaxMethod::kGlobalThreeStep}) {
    const auto other = [](uint64_t checksum) {
      return [checksum](AttentionRow& r) {
        if (r.rank == 1 && r.block_owner == 0 && r.maker == RowMaker::kRecomputed && r.where.step == 1)
          r.checksum = checksum;
      };
    };
    const Report stale = analyze(attention_rows(other(103), method));
    ASSERT_EQ(ids(stale), "ring.stale_block");
    // The next rank of the ring got the right one from it: the mistake is its own. Queries come from everybody.
    EXPECT_EQ(stale.findings[0].ranks, method == SoftmaxMethod::kLseMerge ? std::vector<int>{1} : std::vector<int>());
    EXPECT_NE(stale.findings[0].sentence.find("are those of rank 3"), std::string::npos) << stale.findings[0].sentence;
    const Report changed = analyze(attention_rows(other(7), method));
    ASSERT_EQ(ids(changed), "softmax.unexplained");
    // Handed on as it was used: either end of the first hop can have changed it.
    const Report on = analyze(attention_rows(
        [&](AttentionRow& r) {
          if (r.block_owner == 0 && r.rank != 0 && r.maker == RowMaker::kRecomputed) r.checksum = 7;
        },
        method));
    ASSERT_EQ(ids(on), "softmax.unexplained");
    EXPECT_TRUE(on.findings[0].ranks.empty());
    EXPECT_EQ(ids(analyze(attention_rows(other(100), method))), "");
  }
}

}  // namespace
}  // namespace ringscope
