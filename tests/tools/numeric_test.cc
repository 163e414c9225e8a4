// Pairs for the numeric family and softmax.nan_rows: where the first NaN of a run was, which replica differs, and what
// follows from what.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/tools/data_rows.h"
#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

using namespace testing;

constexpr int kRanks = 4, kSteps = 3, kLayers = 2;

Where at(int step, int layer, Pass pass) {
  Where where = forward_of(step, layer);
  where.pass = pass;
  if (pass == Pass::kOptimizer) where.microbatch = -1;
  return where;
}

// The statistics of a run of four ranks (CP 4, or DP 4) in which everything is a number.
TraceView finite_run(int cp = kRanks, int dp = 1) {
  TraceBuilder trace = small_job(cp, dp);
  TraceView& view = trace.raw();
  const uint32_t q = trace.text("attention.q"), kv = trace.text("attention.kv"), dq = trace.text("attention.dq");
  const uint32_t dkv = trace.text("attention.dkv"), d_o = trace.text("attention.do"), w = trace.text("layer.weight");
  for (int rank = 0; rank < kRanks; ++rank)
    for (int step = 0; step < kSteps; ++step) {
      const auto tensor = [&](int layer, Pass pass, uint32_t name, TensorRole role, uint64_t checksum = 0) {
        view.tensor_stats.push_back({rank, at(step, layer, pass), name, role,
                                     role < TensorRole::kLocalGradient ? -1 : 0, 512, checksum, 10.0, 0});
      };
      for (int layer = 0; layer < kLayers; ++layer) {
        tensor(layer, Pass::kForward, q, TensorRole::kAttentionInput);
        tensor(layer, Pass::kForward, kv, TensorRole::kAttentionInput);
        view.softmax_stats.push_back(
            {rank, at(step, layer, Pass::kForward), 64, 0, 0, SoftmaxMethod::kLseMerge, cp, 0, 2, 1});
      }
      for (int layer = kLayers; layer-- > 0;) {
        tensor(layer, Pass::kBackward, d_o, TensorRole::kAttentionInput);
        tensor(layer, Pass::kBackward, dq, TensorRole::kAttentionOutput);
        tensor(layer, Pass::kBackward, dkv, TensorRole::kAttentionOutput);
      }
      for (int layer = 0; layer < kLayers; ++layer) {
        tensor(layer, Pass::kOptimizer, w, TensorRole::kLocalGradient);
        tensor(layer, Pass::kOptimizer, w, TensorRole::kGradient, uint64_t(100 * step + layer));
        tensor(layer, Pass::kOptimizer, w, TensorRole::kParameter, uint64_t(1000 + 100 * step + layer));
      }
      TrainStepRow row;
      row.rank = rank;
      row.where.step = step;
      row.loss_sum = 32 * 5.0;
      row.valid_tokens = 32;
      row.divisor = 128;
      row.loss = 5;
      row.grad_norm = 1;
      view.train_steps.push_back(row);
    }
  // Both layers' tensors share a name here; real ones do not.
  for (TensorStatRow& row : view.tensor_stats)
    if (row.name == w && row.where.layer == 1) row.name = trace.text("layer.1.weight");
  return trace.finish();
}

// Makes everything bad that is behind a NaN of one rank in the order of a step, as it spreads.
struct Spread {
  int rank = 2, step = 1;
  bool forward_inputs_from_layer_1 = false, lse = false, backward = false, local = false;
};
TraceView spread(TraceView view, const Spread& s) {
  const auto own = [&](int rank, const Where& w) { return rank == s.rank && w.step == s.step && w.layer == 1; };
  for (TensorStatRow& r : view.tensor_stats) {
    const bool later = r.where.step > s.step;
    const bool reduced = r.role == TensorRole::kGradient || r.role == TensorRole::kParameter;
    const bool here = r.where.step == s.step;
    const bool forward = r.where.pass == Pass::kForward, backward = r.where.pass == Pass::kBackward;
    if (later || (here && reduced)) r.bad = 7;
    if (own(r.rank, r.where) && forward && s.forward_inputs_from_layer_1) r.bad = 3;
    if (here && backward && (s.forward_inputs_from_layer_1 || s.lse || (s.backward && r.where.layer == 0))) r.bad = 5;
    if (own(r.rank, r.where) && backward && s.backward && r.role == TensorRole::kAttentionInput) r.bad = 1;
    if (here && r.where.layer == 1 && backward && s.backward && r.role == TensorRole::kAttentionOutput) r.bad = 2;
    if (here && r.role == TensorRole::kLocalGradient) r.bad = s.local ? uint64_t(r.rank == s.rank) : 6;
  }
  for (SoftmaxStatRow& r : view.softmax_stats)
    if (r.where.step > s.step ||
        (r.where.step == s.step && r.where.layer == 1 && (s.forward_inputs_from_layer_1 || s.lse)))
      r.bad = 20;
  for (TrainStepRow& r : view.train_steps)
    if (r.where.step >= s.step) {
      r.grad_norm = kNan;
      if (r.where.step > s.step || s.lse || s.forward_inputs_from_layer_1) r.loss_sum = r.loss = kNan;
    }
  return view;
}

TEST(Nonfinite, FiniteRunsAreClean) {
  EXPECT_EQ(ids(analyze(finite_run())), "");
  EXPECT_EQ(ids(analyze(finite_run(1, 4))), "");
}

TEST(Nonfinite, NamesTheRankWhoseInputsWereBadFirst) {
  Spread s;
  s.forward_inputs_from_layer_1 = true;
  const Report report = analyze(spread(finite_run(), s));
  ASSERT_EQ(ids(report), "numeric.nonfinite");
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.ranks, std::vector<int>{2});
  EXPECT_EQ(f.where, at(1, 1, Pass::kForward));
  EXPECT_NE(f.sentence.find("attention.q (3 of 512 elements)"), std::string::npos) << f.sentence;
  EXPECT_NE(f.sentence.find("was finite (the weights, earlier layers of the step)"), std::string::npos) << f.sentence;
}

TEST(Nonfinite, BackwardAndOwnGradients) {
  Spread backward;
  backward.backward = true;
  const Report first = analyze(spread(finite_run(), backward));
  ASSERT_EQ(ids(first), "numeric.nonfinite");
  EXPECT_EQ(first.findings[0].ranks, std::vector<int>{2});
  EXPECT_EQ(first.findings[0].where, at(1, 1, Pass::kBackward));

  Spread local;
  local.local = true;
  const Report second = analyze(spread(finite_run(1, 4), local));
  ASSERT_EQ(ids(second), "numeric.nonfinite");
  EXPECT_EQ(second.findings[0].ranks, std::vector<int>{2});
  EXPECT_NE(second.findings[0].sentence.find("own gradient of layer.1.weight"), std::string::npos)
      << second.findings[0].sentence;
}

TEST(Nonfinite, BornInAttentionIsNanRows) {
  Spread s;
  s.lse = true;
  TraceView view = spread(finite_run(), s);
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "softmax.nan_rows");
  EXPECT_EQ(report.findings[0].where, at(1, 1, Pass::kForward));
  EXPECT_NE(report.findings[0].sentence.find("its inputs were finite"), std::string::npos);

  // Inputs so large that a score overflows: the run diverged.
  TraceView huge = view;
  for (TensorStatRow& r : huge.tensor_stats)
    if (r.role == TensorRole::kAttentionInput) r.norm = 1e20;
  EXPECT_EQ(ids(analyze(huge)), "numeric.nonfinite");

  // Nobody recorded what went in: every rank shows it alike, so nobody is accused.
  std::erase_if(view.tensor_stats, [](const TensorStatRow& r) { return r.role >= TensorRole::kLocalGradient; });
  const Report unknown = analyze(view);
  ASSERT_EQ(ids(unknown), "numeric.nonfinite");
  EXPECT_TRUE(unknown.findings[0].ranks.empty());
  EXPECT_FALSE(unknown.findings[0].would_raise_confidence.empty());
}

// Two shapes of one thing: kernels that let a NaN through, and kernels in which no key compares and -inf is left.
TEST(Nonfinite, BadKeysOfOneMemberInTheParts) {
  for (double shown : {kNan, kNone})
    for (bool bad : {true, false}) {
      TraceView view = finite_run();
      std::erase_if(view.tensor_stats, [](const TensorStatRow& r) { return r.role >= TensorRole::kLocalGradient; });
      for (int rank = 0; rank < kRanks; ++rank)
        view.position_runs.push_back(
            {rank, at(1, -1, Pass::kNone), PositionRole::kData, uint32_t(8 * rank), 8, uint32_t(8 * rank), 1, 0, 0, 0});
      for (int rank = 0; rank < kRanks; ++rank)
        for (int step : {0, 1})
          for (int owner = 0; owner < kRanks; ++owner) {
            Where where = at(step, 1, Pass::kForward);
            where.ring_step = int16_t((rank - owner + kRanks) % kRanks);
            const bool visible = owner <= rank;  // contiguous shards
            const double value = !visible ? kNone : bad && step == 1 && owner == 1 ? shown : 0.5;
            view.softmax_rows.push_back({rank, where, uint32_t(8 * rank + 7), 0, owner, 0, SoftmaxMethod::kLseMerge,
                                         kRanks, value, value, kNan, kNan, kNan});
          }
      if (bad)
        for (TensorStatRow& r : view.tensor_stats) r.bad = r.where.step >= 1;
      const Report report = analyze(view);
      ASSERT_EQ(ids(report), bad ? "numeric.nonfinite" : "");
      if (!bad) continue;
      EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1}) << report.findings[0].sentence;
      EXPECT_EQ(report.findings[0].where.layer, 1);
      // Without anything else that is no number, a part at -inf is a mask that is not known here.
      for (TensorStatRow& r : view.tensor_stats) r.bad = 0;
      EXPECT_EQ(ids(analyze(view)), std::isnan(shown) ? "numeric.nonfinite" : "");
    }
}

// A column without a single number was not recorded.
TEST(Nonfinite, WhatWasNotRecordedSaysNothing) {
  TraceView view = finite_run();
  for (TrainStepRow& r : view.train_steps) r.loss = r.loss_sum = r.grad_norm = kNan;
  EXPECT_EQ(ids(analyze(view)), "");
  view.train_steps[0].loss = 5;
  EXPECT_EQ(ids(analyze(view)), "numeric.nonfinite");
}

TEST(Replica, TheOddOneIsAccusedByAMajority) {
  for (int odd : {0, 3}) {
    TraceView view = finite_run(1, 4);
    for (TensorStatRow& r : view.tensor_stats)
      if (r.rank == odd && r.where.step >= 1 && r.where.layer == 1 && r.role == TensorRole::kParameter) r.checksum ^= 1;
    const Report report = analyze(view);
    ASSERT_EQ(ids(report), "numeric.replica");
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{odd});
    EXPECT_EQ(report.findings[0].where.step, 1);
    EXPECT_NE(report.findings[0].sentence.find("parameter of layer.1.weight"), std::string::npos)
        << report.findings[0].sentence;
  }
}

TEST(Replica, WithoutAMajorityNobodyIsAccused) {
  TraceView view = finite_run(1, 4);
  for (TensorStatRow& r : view.tensor_stats)
    if (r.rank < 2 && r.where.step >= 1 && r.role == TensorRole::kGradient) r.checksum ^= 1;
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "numeric.replica");
  EXPECT_TRUE(report.findings[0].ranks.empty());
  EXPECT_LE(report.findings[0].confidence, 0.5);
}

TEST(Replica, SlicesAndLocalValuesAreNoReplicas) {
  TraceView view = finite_run(1, 4);
  for (TensorStatRow& r : view.tensor_stats) {
    if (r.role < TensorRole::kLocalGradient) r.part = r.rank;  // each holds a slice of its own
    r.checksum += uint64_t(r.rank);
  }
  EXPECT_EQ(ids(analyze(view)), "");
}

// Gradients of one tensor on eight ranks (tp 2, cp 2, dp 2; what TP replicates) with each stage of their reductions:
// projections stand for the values.
struct Reduction {
  TensorRole stage = TensorRole::kCount;  // which result is changed
  std::vector<int> ranks = {};
  double times = 1;
  bool left_out = false;
};
TraceView reduced_gradients(const Reduction& wrong) {
  TraceBuilder trace = small_job(2, 2, 2);
  const uint32_t name = trace.text("norm.weight");
  std::vector<double> value(8);
  const auto put = [&](int rank, TensorRole role) {
    TensorStatRow r;
    r.rank = rank, r.where = at(1, 0, Pass::kOptimizer), r.name = name, r.role = role, r.count = 64;
    r.projection = value[size_t(rank)], r.norm = std::fabs(r.projection);
    r.checksum = role == TensorRole::kLocalGradient ? 0 : uint64_t(r.projection * 1e6);
    trace.raw().tensor_stats.push_back(r);
  };
  for (int rank = 0; rank < 8; ++rank) value[size_t(rank)] = 1 + 0.1 * rank, put(rank, TensorRole::kLocalGradient);
  for (const auto& [axis, role] :
       {std::pair(Axis::kTp, TensorRole::kGradientOverTp), std::pair(Axis::kCp, TensorRole::kGradientOverCp),
        std::pair(Axis::kDp, TensorRole::kGradient)}) {
    const std::vector<double> in = value;
    for (int rank = 0; rank < 8; ++rank) {
      double sum = 0;
      for (const int member : trace.group(axis, rank)) sum += in[size_t(member)];
      const bool hit =
          role == wrong.stage && (wrong.ranks.empty() || std::count(wrong.ranks.begin(), wrong.ranks.end(), rank));
      value[size_t(rank)] = hit && wrong.left_out ? in[size_t(rank)] : sum * (hit ? wrong.times : 1);
    }
    for (int rank = 0; rank < 8; ++rank) put(rank, role);
  }
  return trace.finish();
}

TEST(GradientSums, EachReductionIsNamedWithItsRanks) {
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  const struct {
    Reduction wrong;
    const char* id;
    std::vector<int> ranks;
  } cases[] = {
      {{}, "", {}},
      {{TensorRole::kGradientOverTp, {}, 1, true}, "numeric.replica", all},
      {{TensorRole::kGradientOverCp, {1, 3}, 1, true}, "numeric.replica", {1, 3}},
      {{TensorRole::kGradientOverCp, {}, 0.5}, "loss.grad_scale", all},
      {{TensorRole::kGradientOverCp, {0, 1, 2, 3}, 2}, "loss.grad_scale", {0, 1, 2, 3}},
      {{TensorRole::kGradient, {}, 2}, "loss.grad_scale", all},
      {{TensorRole::kGradient, {}, 0.7}, "loss.unexplained", all},
      {{TensorRole::kGradient, {6}, 1.001}, "numeric.replica", {6}},
  };
  for (const auto& c : cases) {
    const Report report = analyze(reduced_gradients(c.wrong));
    ASSERT_EQ(ids(report), c.id) << (report.findings.empty() ? "" : report.findings[0].sentence);
    if (report.findings.empty()) continue;
    EXPECT_EQ(report.findings[0].ranks, c.ranks) << report.findings[0].sentence;
  }
}

// Rounding of a sum in fp32 is no mistake, and what was not recorded says nothing.
TEST(GradientSums, RoundingAndGapsAreClean) {
  TraceView view = reduced_gradients({});
  for (TensorStatRow& r : view.tensor_stats)
    if (r.role == TensorRole::kGradient) r.projection *= 1 + 0x1p-24;
  EXPECT_EQ(ids(analyze(view)), "");
  view = reduced_gradients({TensorRole::kGradientOverCp, {}, 0.5});
  std::erase_if(view.tensor_stats, [](const TensorStatRow& r) { return r.rank % 4 == 0; });
  EXPECT_EQ(ids(analyze(view)), "loss.grad_scale") << "tp 1 has all its members";
  std::erase_if(view.tensor_stats, [](const TensorStatRow& r) { return r.rank % 4 == 3; });
  EXPECT_EQ(ids(analyze(view)), "");
}

// One step of the optimizer on four data-parallel ranks.
TraceView updated(int ranks = 4) {
  TraceBuilder trace = small_job(1, ranks);
  TraceView& view = trace.raw();
  view.meta[meta_key::kConfig] =
      R"({"clip_grad": 1.0, "adam_beta1": 0.9, "adam_beta2": 0.95, "adam_eps": 1e-08, "weight_decay": 0.1})";
  const uint32_t name = trace.text("layer.weight");
  const double g = 2, clip = 1 / (2 + 1e-6), m = 0.1 * g * clip, v = 0.05 * g * clip * g * clip, lr = 1e-3;
  const Where where = at(0, 0, Pass::kOptimizer);
  for (int rank = 0; rank < ranks; ++rank) {
    TensorStatRow gradient;
    gradient.rank = rank, gradient.where = where, gradient.name = name, gradient.part = 0, gradient.count = 1;
    gradient.norm = g, gradient.checksum = 5;
    view.tensor_stats.push_back(gradient);
    gradient.role = TensorRole::kParameter, gradient.checksum = 6, gradient.norm = 0.5;
    view.tensor_stats.push_back(gradient);
    StepValueRow value;
    value.rank = rank, value.where.step = 0, value.quantity = StepQuantity::kGradNormSq, value.value = g * g;
    view.step_values.push_back(value);
    value.quantity = StepQuantity::kClip, value.value = clip;
    view.step_values.push_back(value);
    UpdateSampleRow sample;
    sample.rank = rank, sample.where = where, sample.name = name, sample.part = 0;
    sample.gradient = g, sample.value_before = 0.5, sample.m_after = m, sample.v_after = v;
    sample.value_after = 0.5 * (1 - lr * 0.1) - lr * (m / 0.1) / (std::sqrt(v / 0.05) + 1e-8);
    view.update_samples.push_back(sample);
    TrainStepRow step;
    step.rank = rank, step.where.step = 0, step.lr = lr, step.loss = step.loss_sum = step.grad_norm = 1;
    step.valid_tokens = 1, step.divisor = double(ranks);
    view.train_steps.push_back(step);
  }
  return trace.finish();
}

TEST(Update, EachFormulaIsChecked) {
  ASSERT_EQ(ids(analyze(updated())), "");
  const auto change = [](TraceView view, auto what, std::vector<int> ranks) {
    const auto hit = [&](int rank) { return ranks.empty() || std::count(ranks.begin(), ranks.end(), rank); };
    for (StepValueRow& r : view.step_values)
      if (hit(r.rank)) what(r);
    for (UpdateSampleRow& r : view.update_samples)
      if (hit(r.rank)) what(r);
    for (TensorStatRow& r : view.tensor_stats)
      if (hit(r.rank)) what(r);
    return view;
  };
  struct Norm {
    void operator()(StepValueRow& r) const { r.value *= r.quantity == StepQuantity::kGradNormSq ? 2 : 1; }
    void operator()(UpdateSampleRow&) const {}
    void operator()(TensorStatRow&) const {}
  };
  struct Clip {
    void operator()(StepValueRow& r) const { r.value *= r.quantity == StepQuantity::kClip ? 2 : 1; }
    void operator()(UpdateSampleRow&) const {}
    void operator()(TensorStatRow&) const {}
  };
  struct Moment {
    void operator()(StepValueRow&) const {}
    void operator()(UpdateSampleRow& r) const { r.m_after *= 1.001; }
    void operator()(TensorStatRow& r) const { r.checksum ^= r.role == TensorRole::kParameter; }
  };
  struct Value {
    void operator()(StepValueRow&) const {}
    void operator()(UpdateSampleRow& r) const { r.value_after = r.value_before; }
    void operator()(TensorStatRow& r) const { r.checksum ^= r.role == TensorRole::kParameter; }
  };
  const auto expect = [&](auto what, const char* all, const char* one) {
    const Report everybody = analyze(change(updated(), what, {}));
    ASSERT_EQ(ids(everybody), all);
    EXPECT_EQ(everybody.findings[0].ranks.size(), 4u);
    for (const int ranks : {2, 4}) {
      const Report report = analyze(change(updated(ranks), what, {1}));
      ASSERT_EQ(ids(report), one);
      EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1}) << "the formula tells, also of two";
    }
  };
  expect(Norm(), "numeric.unexplained", "numeric.replica");
  expect(Clip(), "numeric.unexplained", "numeric.replica");
  expect(Moment(), "numeric.unexplained", "numeric.replica");
  expect(Value(), "numeric.unexplained", "numeric.replica");
}

// A norm that is odd in a whole TP group comes from any of its members.
TEST(Update, AGroupSharesItsNorm) {
  TraceBuilder trace = small_job(2, 2, 2);
  for (int rank = 0; rank < 8; ++rank) {
    StepValueRow r;
    r.rank = rank, r.where.step = 0, r.quantity = StepQuantity::kGradNormSq;
    r.axis = Axis::kTp, r.value = rank / 2 == 1 ? 5 : 4;
    trace.raw().step_values.push_back(r);
  }
  const Report report = analyze(trace.finish());
  ASSERT_EQ(ids(report), "numeric.replica");
  EXPECT_TRUE(report.findings[0].ranks.empty());
}

// Own gradients are copies where TP ranks computed them from the same rows. The rank that departs there is the one,
// whoever gets its sum later.
TEST(Replica, OwnGradientsTellBeforeTheirSum) {
  TraceBuilder trace = small_job(2, 1, 4);
  const uint32_t name = trace.text("norm.weight");
  for (const TensorRole role : {TensorRole::kLocalGradient, TensorRole::kGradient})
    for (int rank = 0; rank < 8; ++rank) {
      TensorStatRow r;
      r.rank = rank, r.where = at(0, 0, Pass::kOptimizer), r.name = name, r.role = role, r.count = 8;
      const bool own = role == TensorRole::kLocalGradient;
      r.checksum = own ? 10 + uint64_t(rank / 4) + (rank == 2 ? 7 : 0) : trace.tp_of(rank) == 2 ? 99 : 98;
      r.norm = 1;
      trace.raw().tensor_stats.push_back(r);
    }
  const Report report = analyze(trace.finish());
  ASSERT_EQ(ids(report), "numeric.replica");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2}) << report.findings[0].sentence;
}

TEST(Nonfinite, NumbersOfAStepTellWhereItBegan) {
  TraceBuilder trace = small_job(1, 1, 2);
  for (int rank = 0; rank < 2; ++rank) {
    const auto put = [&](StepQuantity quantity, double value) {
      StepValueRow r;
      r.rank = rank, r.where.step = 0, r.where.microbatch = 0, r.quantity = quantity, r.value = value;
      trace.raw().step_values.push_back(r);
    };
    put(StepQuantity::kRowsMiss, 3);
    put(StepQuantity::kLossGradient, rank == 1 ? kNan : 1);
    TensorStatRow r;
    r.rank = rank, r.where = at(0, 0, Pass::kOptimizer), r.role = TensorRole::kLocalGradient, r.bad = 4, r.count = 8;
    trace.raw().tensor_stats.push_back(r);
  }
  TraceView view = trace.finish();
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "numeric.nonfinite");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
  view.step_values.clear();
  EXPECT_TRUE(analyze(view).findings.at(0).ranks.empty()) << "both ranks of a TP group show it";
}

// NaN has many bit patterns: what holds one is no witness for a replica.
TEST(Replica, NonNumbersAreLeftToTheOtherFinding) {
  TraceView view = finite_run(1, 4);
  for (TensorStatRow& r : view.tensor_stats)
    if (r.where.step >= 1 && r.role < TensorRole::kLocalGradient) r.bad = 1, r.checksum += uint64_t(r.rank);
  EXPECT_EQ(ids(analyze(view)), "numeric.nonfinite");
}

// A NaN in one rank's reduced gradient makes its parameters differ in the same step.
TEST(Replica, FollowsFromANanOfItsStep) {
  TraceView view = finite_run(1, 4);
  for (TensorStatRow& r : view.tensor_stats) {
    if (r.rank != 2 || r.where.step < 1 || r.role > TensorRole::kParameter) continue;
    if (r.where.layer == 1) r.bad = 1;
    else r.checksum ^= r.role == TensorRole::kParameter;
  }
  const Report report = analyze(view);
  ASSERT_EQ(ids(report), "numeric.nonfinite (numeric.replica)");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2});
}

// One story: what begins behind a hang, a wrong softmax or a NaN follows from it.
TEST(Consequences, ValuesBehindARoot) {
  for (int step : {0, 1}) {
    Job wrong{1, 4, 1, 3, 2};
    wrong.wrong.skip_weight_cp = [](int r, const Where& w) { return r == 1 && w.step == 0 && w.layer == 0; };
    TraceView view = build(wrong).finish();
    TraceView values = finite_run();
    for (TensorStatRow& r : values.tensor_stats) {
      if (r.rank == 1 && r.where.step >= step && r.role < TensorRole::kLocalGradient) r.checksum ^= 1;
    }
    view.tensor_stats = values.tensor_stats;
    view.strings = values.strings;
    EXPECT_EQ(ids(analyze(view)), "hang.missing_rank (numeric.replica)") << "seen at the end of the step it began in";
  }
}

TEST(Consequences, NanBehindAWrongSoftmax) {
  for (int step : {0, 2}) {
    TraceView view = finite_run();
    for (int rank = 0; rank < kRanks; ++rank)
      view.softmax_rows.push_back({rank, forward_of(step, 0), 40, 0, rank, 0, SoftmaxMethod::kGlobalThreeStep, kRanks,
                                   1.0 + rank, 2.0 + rank, 1.0 + rank, 3, kNan});
    Spread s;
    s.forward_inputs_from_layer_1 = true;
    const Report report = analyze(spread(view, s));
    EXPECT_EQ(ids(report),
              step == 0 ? "softmax.no_global_max (numeric.nonfinite)" : "numeric.nonfinite (softmax.no_global_max)");
    EXPECT_EQ(report.findings[1].caused_by, 0);
  }
}

// A race is found from order, whatever the values: what a device computed behind it follows from it, what the host's
// arithmetic made does not.
TEST(Consequences, ValuesBehindARace) {
  const auto finding = [](const char* id, Where where) {
    Finding f;
    f.id = id;
    f.where = where;
    return f;
  };
  Where hop = forward_of(1, 1);
  hop.ring_step = 2;
  Where end;
  end.step = 1;
  const auto root = [&](const char* id, Where where) {
    std::vector<Finding> found = {finding("race.overwrite_before_read", hop)};
    add_data_findings(found, {finding(id, where)});
    return found[1].root;
  };
  EXPECT_FALSE(root("softmax.lse_merge", forward_of(1, 1))) << "of the whole call";
  EXPECT_FALSE(root("numeric.nonfinite", end));
  EXPECT_FALSE(root("loss.unexplained", end));
  EXPECT_FALSE(root("numeric.replica", forward_of(2, 0)));
  EXPECT_TRUE(root("numeric.nonfinite", forward_of(1, 0))) << "before it";
  EXPECT_TRUE(root("position.restart", forward_of(1, -1)));
  EXPECT_TRUE(root("loss.per_rank_mean", end));
}

TEST(Consequences, ConfidenceFollowsFromTheEvidence) {
  TraceView view = finite_run(1, 4);
  const auto differ = [&](int from) {
    TraceView changed = view;
    for (TensorStatRow& r : changed.tensor_stats)
      if (r.rank == 3 && r.where.step >= from && r.role < TensorRole::kLocalGradient) r.checksum ^= 1;
    return analyze(changed).findings.at(0).confidence;
  };
  EXPECT_GT(differ(0), differ(2)) << "more steps show it";
  EXPECT_LE(differ(0), 0.99);
}

}  // namespace
}  // namespace ringscope
