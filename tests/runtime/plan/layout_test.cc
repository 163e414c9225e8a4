#include "runtime/layout/layout.h"

#include <gtest/gtest.h>

#include <set>

namespace ringscope {
namespace {

using Ranks = std::vector<int>;

TEST(Mesh, SixteenRanksInDefaultOrder) {
  const Mesh mesh = *Mesh::make(2, 2, 2, 2);
  EXPECT_EQ(mesh.world(), 16);
  EXPECT_EQ(mesh.group(Axis::kTp, 0), (Ranks{0, 1}));
  EXPECT_EQ(mesh.group(Axis::kCp, 0), (Ranks{0, 2}));
  EXPECT_EQ(mesh.group(Axis::kDp, 0), (Ranks{0, 4}));
  EXPECT_EQ(mesh.group(Axis::kPp, 0), (Ranks{0, 8}));
  EXPECT_EQ(mesh.group(Axis::kDpCp, 0), (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(mesh.group(Axis::kTpCp, 13), (Ranks{12, 13, 14, 15}));
}

TEST(Mesh, SixteenRanksInTheArticlesOrder) {
  const Mesh mesh = *Mesh::make(2, 2, 2, 2, "tp-pp-cp-dp");
  EXPECT_EQ(mesh.group(Axis::kTp, 0), (Ranks{0, 1}));
  EXPECT_EQ(mesh.group(Axis::kPp, 0), (Ranks{0, 2}));
  EXPECT_EQ(mesh.group(Axis::kCp, 0), (Ranks{0, 4}));
  EXPECT_EQ(mesh.group(Axis::kDp, 0), (Ranks{0, 8}));
  EXPECT_EQ(mesh.order(), "tp-pp-cp-dp");
}

TEST(Mesh, CoordinatesAndRanksAreInverse) {
  for (const char* order : {"tp-cp-dp-pp", "tp-pp-cp-dp", "pp-dp-cp-tp", "cp-tp-pp-dp"}) {
    const Mesh mesh = *Mesh::make(2, 3, 5, 4, order);
    std::set<int> seen;
    for (int r = 0; r < mesh.world(); ++r) {
      EXPECT_EQ(mesh.rank(mesh.coord(r)), r) << order;
      seen.insert(r);
    }
    EXPECT_EQ(seen.size(), 120u);
  }
  EXPECT_EQ((Mesh::make(8, 2, 2, 4)->coord(127)), (Coord{7, 1, 1, 3}));
}

TEST(Mesh, GroupsPartitionTheRanks) {
  const Mesh mesh = *Mesh::make(2, 3, 2, 1, "cp-dp-tp-pp");
  for (Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp, Axis::kTpCp, Axis::kDpCp, Axis::kWorld}) {
    std::set<int> seen;
    int last_first = -1;
    for (const Ranks& members : mesh.groups(axis)) {
      EXPECT_EQ(int(members.size()), mesh.size(axis));
      EXPECT_GT(members.front(), last_first);  // one order that every rank derives alike
      last_first = members.front();
      for (int r : members) {
        EXPECT_TRUE(seen.insert(r).second) << "rank " << r << " twice";
        EXPECT_EQ(mesh.group(axis, r), members);
      }
    }
    EXPECT_EQ(int(seen.size()), mesh.world());
  }
}

TEST(Mesh, CreatesTpBeforeCpBeforeDp) {
  const auto& order = Mesh::creation_order();
  ASSERT_GE(order.size(), 4u);
  EXPECT_EQ(order[0], Axis::kTp);
  EXPECT_EQ(order[1], Axis::kCp);
  EXPECT_EQ(order[2], Axis::kDp);
  EXPECT_EQ(order[3], Axis::kPp);
}

TEST(Mesh, DescribesRanksAndGroups) {
  const std::string text = Mesh::make(2, 2, 1, 1)->describe();
  EXPECT_NE(text.find("rank   3  tp 1 cp 1 dp 0 pp 0"), std::string::npos) << text;
  EXPECT_NE(text.find("cp     {0,2} {1,3}"), std::string::npos) << text;
}

TEST(Mesh, RefusalsNameTheValue) {
  const auto message = [](const Result<Mesh>& mesh) { return mesh ? std::string() : mesh.error().message; };
  EXPECT_NE(message(Mesh::make(0, 1, 1, 1)).find("tensor_model_parallel_size is 0"), std::string::npos);
  EXPECT_NE(message(Mesh::make(1, 1, -2, 1)).find("data_parallel_size is -2"), std::string::npos);
  for (const char* order :
       {"", "tp", "tp-cp-dp", "tp-cp-dp-dp", "tp-cp-dp-pp-tp", "tp-cp-dp-xx", "tp--cp-dp", "tp-cp-dp-pp-"})
    EXPECT_NE(message(Mesh::make(1, 1, 1, 1, order)).find("use tp-cp-dp-pp or tp-pp-cp-dp"), std::string::npos)
        << order;
  EXPECT_NE(message(Mesh::make(65536, 65536, 65536, 1)).find("lower it"), std::string::npos);  // no overflow on the way
}

TEST(SequenceSplit, EveryLayoutOwnsEveryRowOnce) {
  int checked = 0;
  for (CpLayout layout : {CpLayout::kContiguous, CpLayout::kZigzag})
    for (int cp = 1; cp <= 8; ++cp)
      for (int multiple : {1, 2, 3, 4})
        for (int64_t length : {1, 2, 7, 16, 53, 61, 96, 128}) {
          const SequenceSplit split = *SequenceSplit::make(length, cp, layout, multiple);
          const auto status = check_cover(split);
          EXPECT_TRUE(status) << (status ? "" : status.error().message);
          const int64_t unit = int64_t(multiple) * cp * (layout == CpLayout::kZigzag && cp > 1 ? 2 : 1);
          EXPECT_EQ(split.padded() % unit, 0);
          EXPECT_LT(split.padded() - length, unit);
          EXPECT_EQ(split.shard() % multiple, 0);
          ++checked;
        }
  EXPECT_EQ(checked, 2 * 8 * 4 * 8);
}

TEST(SequenceSplit, ZigzagDealsHeadAndTail) {
  const SequenceSplit split = *SequenceSplit::make(16, 4, CpLayout::kZigzag);
  EXPECT_EQ(split.runs(0), (std::vector<ringscope::Run>{{0, 2}, {14, 2}}));
  EXPECT_EQ(split.runs(1), (std::vector<ringscope::Run>{{2, 2}, {12, 2}}));
  EXPECT_EQ(split.runs(3), (std::vector<ringscope::Run>{{6, 4}}));  // its two chunks touch
  EXPECT_EQ(split.rows(1), (std::vector<int32_t>{2, 3, 12, 13}));
  EXPECT_EQ(split.owner(13), 1);
}

// Zigzag is there to balance causal work: pairs (query, visible key) per rank differ by less than a chunk's square.
TEST(SequenceSplit, ZigzagBalancesCausalWork) {
  const auto work = [](const SequenceSplit& split, int rank) {
    int64_t pairs = 0;
    for (int32_t row : split.rows(rank)) pairs += row + 1;
    return pairs;
  };
  const SequenceSplit zigzag = *SequenceSplit::make(256, 4, CpLayout::kZigzag);
  const SequenceSplit contiguous = *SequenceSplit::make(256, 4, CpLayout::kContiguous);
  EXPECT_EQ(work(zigzag, 0), work(zigzag, 3));
  EXPECT_GT(work(contiguous, 3), 6 * work(contiguous, 0));
}

TEST(SequenceSplit, PadsToWhatTheLayoutNeeds) {
  EXPECT_EQ(SequenceSplit::make(53, 2, CpLayout::kContiguous)->padded(), 54);
  EXPECT_EQ(SequenceSplit::make(53, 2, CpLayout::kZigzag)->padded(), 56);
  EXPECT_EQ(SequenceSplit::make(53, 2, CpLayout::kZigzag, 2)->padded(), 56);
  EXPECT_EQ(SequenceSplit::make(53, 3, CpLayout::kContiguous, 4)->padded(), 60);
  EXPECT_EQ(SequenceSplit::make(53, 1, CpLayout::kZigzag)->padded(), 53);  // one rank: nothing to deal
}

TEST(SequenceSplit, Refuses) {
  EXPECT_EQ(SequenceSplit::make(0, 2, CpLayout::kZigzag).error().kind, ErrorKind::kUsage);
  EXPECT_FALSE(SequenceSplit::make(-5, 2, CpLayout::kZigzag));
  EXPECT_FALSE(SequenceSplit::make(16, 0, CpLayout::kZigzag));
  EXPECT_NE(SequenceSplit::make(int64_t(1) << 40, 2, CpLayout::kZigzag).error().message.find("seq_length"),
            std::string::npos);
}

TEST(Sequence, PlainCountsUpAndMarksPadding) {
  const SequenceInfo info = plain_sequence(*SequenceSplit::make(5, 2, CpLayout::kZigzag));
  EXPECT_EQ(info.position, (std::vector<int32_t>{0, 1, 2, 3, 4, 0, 0, 0}));
  EXPECT_EQ(info.document, (std::vector<int32_t>{0, 0, 0, 0, 0, -1, -1, -1}));
}

TEST(Sequence, DocumentsRestartPositions) {
  const SequenceSplit split = *SequenceSplit::make(6, 2, CpLayout::kContiguous);
  const SequenceInfo info = *explicit_sequence(split, {}, {7, 7, 7, 9, 9, 2});
  EXPECT_EQ(info.document, (std::vector<int32_t>{7, 7, 7, 9, 9, 2}));
  EXPECT_EQ(info.position, (std::vector<int32_t>{0, 1, 2, 0, 1, 0}));
  const SequenceInfo given = *explicit_sequence(split, {3, 4, 5, 0, 1, 9}, {});
  EXPECT_EQ(given.position, (std::vector<int32_t>{3, 4, 5, 0, 1, 9}));
  EXPECT_EQ(given.document, (std::vector<int32_t>{0, 0, 0, 0, 0, 0}));
}

TEST(Sequence, RefusesIdsThatDoNotFit) {
  const SequenceSplit split = *SequenceSplit::make(4, 1, CpLayout::kContiguous);
  EXPECT_NE(explicit_sequence(split, {0, 1, 2}, {}).error().message.find("3 entries for a sequence of 4"),
            std::string::npos);
  EXPECT_NE(explicit_sequence(split, {}, {0, 0, -1, 0}).error().message.find("document_ids[2] is -1"),
            std::string::npos);
  EXPECT_EQ(explicit_sequence(split, {0, 1, int64_t(1) << 40, 3}, {}).error().kind, ErrorKind::kData);
}

TEST(Sequence, MaskKeepsDocumentsAndPaddingApart) {
  EXPECT_TRUE(may_see(5, 1, 5, 1));
  EXPECT_TRUE(may_see(5, 1, 3, 1));
  EXPECT_FALSE(may_see(3, 1, 5, 1));    // the future
  EXPECT_FALSE(may_see(5, 1, 3, 0));    // another document
  EXPECT_FALSE(may_see(5, -1, 3, -1));  // padding sees nothing
}

TEST(PositionRuns, BreakWhereRowsPositionsOrDocumentsJump) {
  const SequenceSplit split = *SequenceSplit::make(16, 4, CpLayout::kZigzag);
  const std::vector<int32_t> rows = split.rows(1);  // 2 3 12 13
  EXPECT_EQ(position_runs(rows, {2, 3, 12, 13}, {0, 0, 0, 0}),
            (std::vector<PositionRun>{{2, 2, 2, 0}, {12, 2, 12, 0}}));
  EXPECT_EQ(position_runs(rows, {0, 1, 2, 3}, {0, 0, 0, 0}), (std::vector<PositionRun>{{2, 2, 0, 0}, {12, 2, 2, 0}}));
  EXPECT_EQ(position_runs({0, 1, 2, 3}, {0, 1, 0, 1}, {4, 4, 5, 5}),
            (std::vector<PositionRun>{{0, 2, 0, 4}, {2, 2, 0, 5}}));
  EXPECT_EQ(position_runs({0, 1}, {0, 1}, {0, -1}), (std::vector<PositionRun>{{0, 1, 0, 0}, {1, 1, 1, -1}}));
  EXPECT_TRUE(position_runs({}, {}, {}).empty());
}

TEST(Vocabulary, PadsToAMultipleOfTp) {
  EXPECT_EQ(padded_vocab(257, 1), 257);
  EXPECT_EQ(padded_vocab(257, 2), 258);
  EXPECT_EQ(padded_vocab(256, 8), 256);
}

}  // namespace
}  // namespace ringscope
