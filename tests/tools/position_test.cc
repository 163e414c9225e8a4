// Pairs for the position family.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "tests/tools/data_rows.h"

namespace ringscope {
namespace {

using namespace testing;

// position(local index, row, rank): what was applied. 32 rows, the last three are padding.
TraceView position_rows(int cp, const std::string& layout,
                        const std::function<uint32_t(uint32_t, uint32_t, int)>& position, int steps = 2) {
  constexpr uint32_t kLength = 32, kTrue = 29;
  TraceBuilder trace = small_job(cp);
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
          trace.raw().position_runs.push_back({rank, forward_of(step, -1), role, mine[i], 1,
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

TEST(Position, Offset) {
  for (const char* layout : {"contiguous", "zigzag"}) {
    const Report all = analyze(position_rows(4, layout, [](uint32_t, uint32_t row, int) { return row + 1; }));
    ASSERT_EQ(ids(all), "position.offset") << layout;
    EXPECT_EQ(all.findings[0].ranks.size(), 4u);
    EXPECT_NE(all.findings[0].sentence.find("plus 1"), std::string::npos) << all.findings[0].sentence;
    const Report one =
        analyze(position_rows(4, layout, [](uint32_t, uint32_t row, int rank) { return rank == 2 ? row - 20 : row; }));
    ASSERT_EQ(ids(one), "position.offset") << layout;
    EXPECT_EQ(one.findings[0].ranks, std::vector<int>{2});
    EXPECT_NE(one.findings[0].sentence.find("minus 20"), std::string::npos) << one.findings[0].sentence;
  }
}

TEST(Position, ThoseOfAnotherRank) {
  const auto next = [](uint32_t i, uint32_t, int rank) {  // zigzag over four: chunks r and 7-r of four rows
    const uint32_t r = uint32_t(rank + 1) % 4, row = i < 4 ? r * 4 + i : (7 - r) * 4 + i - 4;
    return row < 29 ? row : 0;
  };
  const Report report = analyze(position_rows(4, "zigzag", next));
  ASSERT_EQ(ids(report), "position.offset") << report.findings[0].sentence;
  EXPECT_NE(report.findings[0].sentence.find("those of rank 1"), std::string::npos) << report.findings[0].sentence;
}

// On rank 0 the two begin alike, and its positions could restart as well: one explanation must cover all ranks.
TEST(Position, ContiguousOnZigzagIsOneRoot) {
  for (int cp : {2, 4}) {
    const auto contiguous = [cp](uint32_t i, uint32_t, int rank) {
      const uint32_t row = uint32_t(rank) * (32 / uint32_t(cp)) + i;
      return row < 29 ? row : 0;
    };
    for (bool labels : {true, false}) {
      TraceView view = position_rows(cp, "zigzag", contiguous);
      const Report report = analyze(labels ? view : without_labels(view));
      ASSERT_EQ(ids(report), "position.layout");
      EXPECT_EQ(report.findings[0].ranks.size(), size_t(cp));
      EXPECT_NE(report.findings[0].sentence.find("those of the contiguous layout, but the data is laid out zigzag"),
                std::string::npos)
          << report.findings[0].sentence;
    }
  }
}

TEST(Position, Overlap) {
  const auto half = [](uint32_t, uint32_t row, int rank) { return rank == 1 ? row / 2 : row; };
  const Report report = analyze(position_rows(2, "contiguous", half));
  ASSERT_EQ(ids(report), "position.overlap");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
  EXPECT_NE(report.findings[0].sentence.find("twice (8)"), std::string::npos) << report.findings[0].sentence;
}

TEST(Position, Unexplained) {
  const auto twice = [](uint32_t, uint32_t row, int rank) { return rank == 1 ? 2 * row : row; };
  const Report report = analyze(position_rows(2, "contiguous", twice));
  ASSERT_EQ(ids(report), "position.unexplained");
  EXPECT_EQ(report.findings[0].ranks, std::vector<int>{1});
  EXPECT_EQ(report.findings[0].where.step, 0);
  EXPECT_NE(report.findings[0].sentence.find("made position 16"), std::string::npos) << report.findings[0].sentence;
}

// Two bugs that have a name each have none together, and are still one root.
TEST(Position, WhatCoversAPartOnlyIsNoExplanation) {
  const auto mixed = [](uint32_t i, uint32_t row, int rank) { return rank == 1 ? i : rank == 2 ? row / 2 : row; };
  EXPECT_EQ(ids(analyze(position_rows(4, "contiguous", mixed))), "position.unexplained");
}

TEST(Position, TwoMembersHoldOneRow) {
  for (bool both : {false, true}) {  // data alone, or positions with it
    TraceView view = position_rows(4, "contiguous", [](uint32_t, uint32_t row, int) { return row; });
    for (PositionRunRow& run : view.position_runs)
      if (run.rank == 2 && run.where.step == 1 && (both || run.role == PositionRole::kData))
        run.token_start -= 8, run.pos_start -= 8;
    const Report report = analyze(view);
    ASSERT_EQ(ids(report), "position.unexplained");
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2}) << report.findings[0].sentence;
    EXPECT_EQ(report.findings[0].where.step, 1);
  }
}

// Copies over TP hold the same rows by right, whatever is known of the groups.
TEST(Position, CopiesAreNoPartners) {
  TraceView view = position_rows(2, "zigzag", [](uint32_t, uint32_t row, int) { return row; });
  TraceBuilder job = small_job(2, 1, 2);
  job.raw().meta[meta_key::kCpLayout] = "zigzag";
  for (int copy : {0, 1})
    for (PositionRunRow run : view.position_runs) {
      run.rank = run.rank * 2 + copy;
      job.raw().position_runs.push_back(run);
    }
  std::stable_sort(job.raw().position_runs.begin(), job.raw().position_runs.end(),
                   [](const PositionRunRow& a, const PositionRunRow& b) { return a.rank < b.rank; });
  view = job.finish();
  EXPECT_EQ(ids(analyze(view)), "");
  EXPECT_EQ(ids(analyze(without_labels(view))), "");
}

// Every document starts at 0 again, in the data and in the kernel.
TEST(Position, PackedDocumentsAreClean) {
  TraceView view = position_rows(4, "zigzag", [](uint32_t, uint32_t row, int) { return row % 10; });
  for (PositionRunRow& run : view.position_runs) {
    if (run.document == 0xFFFFFFFF) continue;
    run.document = run.token_start / 10;
    run.pos_start = run.token_start % 10;
  }
  EXPECT_EQ(ids(analyze(view)), "");
}

TEST(Position, RunsThatCannotBeProveNothing) {
  for (uint32_t damage : {0u, 1u}) {
    TraceView view = position_rows(2, "contiguous", [](uint32_t, uint32_t row, int) { return row + 1; });
    view.meta[meta_key::kPaddedLength] = "32";
    for (PositionRunRow& run : view.position_runs)
      if (run.role == PositionRole::kData && run.token_start % 16 == 3) {
        if (damage) run.token_start = 0x40000003;
        else run.count = 0;
      }
    const Report report = analyze(view);
    EXPECT_EQ(ids(report), "");
    EXPECT_EQ(contradictions(report), 4) << "two ranks, two steps";
  }
}

// Two billion tokens are a handful of runs, in a right run and in a wrong one; token by token this would not end.
TEST(Position, WorksOnRunsNotOnTokens) {
  constexpr uint32_t kShard = 1u << 28;
  for (bool wrong : {false, true}) {
    TraceBuilder trace = small_job(4);
    for (int rank = 0; rank < 4; ++rank)
      for (uint32_t sample = 0; sample < 64; ++sample)
        for (PositionRole role : {PositionRole::kData, PositionRole::kRope})
          for (uint32_t chunk : {uint32_t(rank), 7 - uint32_t(rank)}) {
            const uint32_t start = chunk * (kShard / 2);
            const bool second = chunk >= 4;
            const uint32_t contiguous = uint32_t(rank) * kShard + (second ? kShard / 2 : 0);
            const uint32_t position = role == PositionRole::kRope && wrong ? contiguous : start;
            trace.raw().position_runs.push_back(
                {rank, forward_of(0, -1), role, start, kShard / 2, position, 1, 0, sample, 10000});
          }
    EXPECT_EQ(ids(analyze(trace.finish())), wrong ? "position.layout" : "");
  }
}

// Every rank's copy of the mask's rows and documents: four ranks of eight rows each, the last three rows are padding.
TraceView mask_rows(const std::function<void(PositionRunRow&)>& change) {
  TraceView view = position_rows(4, "contiguous", [](uint32_t, uint32_t row, int) { return row; });
  std::vector<PositionRunRow> masks;
  for (const PositionRunRow& run : view.position_runs)
    if (run.role == PositionRole::kData)
      for (int rank = 0; rank < 4; ++rank) {
        PositionRunRow mask = run;
        mask.rank = rank;
        mask.role = PositionRole::kMask;
        mask.pos_start = mask.token_start;
        change(mask);
        masks.push_back(mask);
      }
  view.position_runs.insert(view.position_runs.end(), masks.begin(), masks.end());
  std::stable_sort(view.position_runs.begin(), view.position_runs.end(),
                   [](const PositionRunRow& a, const PositionRunRow& b) { return a.rank < b.rank; });
  return view;
}

TEST(Mask, IsOfTheTokensThatWereDealt) {
  EXPECT_EQ(ids(analyze(mask_rows([](PositionRunRow&) {}))), "");
  struct Case {
    std::function<void(PositionRunRow&)> bug;
    const char *id, *says;
  };
  const std::vector<Case> cases = {
      {[](PositionRunRow& r) { r.pos_start += 1; }, "position.offset", "the right ones plus 1"},
      {[](PositionRunRow& r) { r.pos_start = (r.pos_start + 8) % 32; }, "position.offset", "those of rank 1"},
      {[](PositionRunRow& r) { r.pos_start %= 8; }, "position.restart", "its rows restart at 0"},
      {[](PositionRunRow& r) { r.pos_start ^= 5; }, "position.unexplained", "the mask takes it for row"},
      {[](PositionRunRow& r) { r.document = 0; }, "position.padding_shift",
       "dealt as padding, the mask has document 0"},
      {[](PositionRunRow& r) { r.document = 0xFFFFFFFF; }, "position.padding_shift",
       "dealt as document 0, the mask has padding"},
      {[](PositionRunRow& r) { r.document += r.document == 0; }, "position.unexplained",
       "dealt as document 0, the mask has document 1"}};
  for (const Case& c : cases) {
    const Report report = analyze(mask_rows([&](PositionRunRow& r) {
      if (r.rank == 2 && r.where.step == 1) c.bug(r);
    }));
    ASSERT_EQ(ids(report), c.id) << c.says;
    EXPECT_EQ(report.findings[0].ranks, std::vector<int>{2});
    EXPECT_EQ(report.findings[0].where.step, 1);
    EXPECT_NE(report.findings[0].sentence.find(c.says), std::string::npos) << report.findings[0].sentence;
  }
  // Rows whose dealing was not recorded say nothing.
  TraceView view = mask_rows([](PositionRunRow& r) { r.pos_start += 1; });
  std::erase_if(view.position_runs, [](const PositionRunRow& r) { return r.role == PositionRole::kData; });
  EXPECT_EQ(ids(analyze(view)), "");
}

// Runs of one rank that its threads wrote at the same time are one block all the same.
TEST(Position, ThreadsOfARankMayWriteBetweenEachOther) {
  for (bool wrong : {false, true}) {
    TraceView view = position_rows(2, "zigzag", [&](uint32_t, uint32_t row, int) { return row + wrong; });
    auto& runs = view.position_runs;
    std::stable_sort(runs.begin(), runs.end(), [](const PositionRunRow& a, const PositionRunRow& b) {
      return std::tuple(a.rank, a.where.step, a.token_start) < std::tuple(b.rank, b.where.step, b.token_start);
    });
    EXPECT_EQ(ids(analyze(view)), wrong ? "position.offset" : "");
  }
}

TEST(Position, RopeBase) {
  const auto bases = [](const std::function<float(const PositionRunRow&)>& base) {
    TraceView view = position_rows(4, "contiguous", [](uint32_t, uint32_t row, int) { return row; });
    for (PositionRunRow& run : view.position_runs) run.rope_base = base(run);
    return view;
  };
  EXPECT_EQ(ids(analyze(bases([](const PositionRunRow&) { return 500000.f; }))), "");
  const Report one = analyze(bases([](const PositionRunRow& r) { return r.rank == 2 ? 10000.f : 500000.f; }));
  ASSERT_EQ(ids(one), "position.rope_base");
  EXPECT_EQ(one.findings[0].ranks, std::vector<int>{2});
  const Report half = analyze(bases([](const PositionRunRow& r) { return r.rank < 2 ? 10000.f : 500000.f; }));
  ASSERT_EQ(ids(half), "position.rope_base");
  EXPECT_TRUE(half.findings[0].ranks.empty()) << "without a majority nobody is accused";
}

// Four contiguous shards of eight rows; the token of row i is 50 + i * i, the last three rows are padding.
int32_t token(int64_t row) { return row < 29 ? int32_t(50 + row * row) : -1; }
using Label = std::function<int32_t(int64_t row, int rank, LabelRole role)>;
TraceView label_rows(const Label& label) {
  TraceBuilder trace = small_job(4);
  for (int rank = 0; rank < 4; ++rank)
    for (int step = 0; step < 2; ++step)
      for (LabelRole role : {LabelRole::kData, LabelRole::kApplied})
        for (const auto& [begin, end] : {std::pair(8 * rank, std::min(8 * rank + 8, 29)), std::pair(29, 32)}) {
          if (begin >= end || begin >= 8 * rank + 8) continue;
          LabelRunRow run;
          run.rank = rank;
          run.where.step = step;
          run.where.microbatch = 0;
          run.role = role;
          run.token_start = uint32_t(begin);
          run.count = uint32_t(end - begin);
          run.document = begin >= 29 ? 0xFFFFFFFF : 0;
          run.first_token = token(begin), run.last_token = token(end - 1);
          run.first_label = label(begin, rank, role), run.last_label = label(end - 1, rank, role);
          run.tokens_sum = 1;
          for (int64_t row = begin; row < end; ++row) {
            const int32_t l = label(row, rank, role);
            run.labels_sum = run.labels_sum * 31 + uint64_t(l);
            if (l < 0) continue;
            ++run.counted;
            run.same += l == token(row);
            if (row + 1 == end) continue;
            ++run.pairs;
            run.next += l == token(row + 1);
            run.second += row + 2 < end && l == token(row + 2);
          }
          trace.raw().label_runs.push_back(run);
        }
  return trace.finish();
}
int32_t next_token(int64_t row) { return row < 28 ? token(row + 1) : row == 28 ? 7 : -1; }

TEST(Labels, AreTheNextTokens) {
  EXPECT_EQ(ids(analyze(label_rows([](int64_t row, int, LabelRole) { return next_token(row); }))), "");
  // Kept ones only, here and there.
  EXPECT_EQ(ids(analyze(label_rows([](int64_t row, int, LabelRole) { return row % 3 ? next_token(row) : -1; }))), "");
  // Another convention everywhere, as of a masked model, is nobody's mistake.
  EXPECT_EQ(ids(analyze(label_rows([](int64_t row, int, LabelRole) { return row < 29 ? 3 : -1; }))), "");
}

struct LabelCase {
  Label label;
  const char *id, *says;
  std::vector<int> ranks;
};

TEST(Labels, AreToldWhereTheyAreNot) {
  const auto made = [](const Label& wrong, int only) {
    return [=](int64_t row, int rank, LabelRole role) {
      return rank == only || only < 0 ? wrong(row, rank, role) : next_token(row);
    };
  };
  const auto applied = [](const Label& wrong) {
    return [=](int64_t row, int rank, LabelRole role) {
      return rank == 2 && role == LabelRole::kApplied ? wrong(row, rank, role) : next_token(row);
    };
  };
  const Label same = [](int64_t row, int, LabelRole) { return token(row); };
  const Label two_on = [](int64_t row, int, LabelRole) { return row < 27 ? token(row + 2) : row < 29 ? 7 : -1; };
  const Label own_end = [](int64_t row, int rank, LabelRole) {  // cut first, shifted in the shard
    return row % 8 == 7 && row < 29 ? token(8 * rank) : next_token(row);
  };
  const Label padded = [](int64_t row, int, LabelRole) { return row < 29 ? next_token(row) : 0; };
  const Label other = [](int64_t row, int, LabelRole) { return next_token(row) + 100; };
  const std::vector<LabelCase> cases = {
      {made(same, 1), "loss.label_shift", "the token of its own row", {1}},
      {made(own_end, -1), "loss.label_shift", "lies on rank 1", {0, 1, 2}},
      {made(two_on, -1), "loss.label_shift", "two rows on", {0, 1, 2, 3}},
      {made(padded, -1), "loss.padding_counted", "3 padded rows have a label", {3}},
      {applied(same), "loss.label_shift", "the token of its own row", {2}},
      {applied(other), "loss.label_shift", "7 of 7 labels are not the token after them", {2}},
  };
  for (const LabelCase& c : cases) {
    const Report report = analyze(label_rows(c.label));
    ASSERT_EQ(ids(report), c.id) << c.says;
    EXPECT_EQ(report.findings[0].ranks, c.ranks) << report.findings[0].sentence;
    EXPECT_NE(report.findings[0].sentence.find(c.says), std::string::npos) << report.findings[0].sentence;
    EXPECT_FALSE(report.findings[0].would_raise_confidence.empty());
  }
}

}  // namespace
}  // namespace ringscope
