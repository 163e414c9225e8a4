#include "tools/campaign/judge_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringscope::campaign {
namespace {

using Op = MutationOp;
using C = SiteClass;
using Ids = std::vector<std::string_view>;
using Classes = std::vector<SiteClass>;

const Classes kCollectives{C::kMaxReduce,  C::kSumReduce,  C::kOutReduce,  C::kCountReduce,
                           C::kLossReduce, C::kGradReduce, C::kNormReduce, C::kCollective};
const Classes kCalls{C::kTransfer,   C::kMaxReduce,  C::kSumReduce,  C::kOutReduce, C::kCountReduce,
                     C::kLossReduce, C::kGradReduce, C::kNormReduce, C::kCollective};
const std::vector<Op> kValues{Op::kScale, Op::kShift, Op::kZero, Op::kPrevious, Op::kInput, Op::kDrop, Op::kTwice};
const std::vector<Op> kAllRows{Op::kScale, Op::kShift, Op::kPrevious, Op::kInput, Op::kDrop, Op::kTwice};
const std::vector<Op> kColumns{Op::kOffset, Op::kNextRank, Op::kRestart, Op::kHalves, Op::kLayout, Op::kDuplicate};
const std::vector<Op> kAnyOp{};  // of the rows that hold for every operation

std::vector<TableRow> hangs() {
  const Classes hop{C::kTransfer}, create{C::kCreate};
  return {
      {{Op::kDrop}, kCollectives, Effect::kHang, When::kAlways, "", {"hang.missing_rank"}},
      {{Op::kDrop}, hop, Effect::kHang, When::kAlways, "", {"hang.ring_break", "hang.unmatched_p2p"}},
      {{Op::kTwice}, kCollectives, Effect::kHang, When::kAlways, "", {"hang.op_mismatch"}},
      {{Op::kTwice},
       hop,
       Effect::kHang,
       When::kAlways,
       "",
       {"hang.ring_break", "hang.unmatched_p2p", "hang.op_mismatch"}},
      {{Op::kSwap}, kCollectives, Effect::kHang, When::kSameGroup, "", {"hang.order_swap"}},
      {{Op::kSwap}, kCalls, Effect::kHang, When::kTwoGroups, "", {"hang.cross_group_cycle"}},
      {{Op::kSwap},
       hop,
       Effect::kHang,
       When::kAlways,
       "",
       {"hang.order_swap", "hang.p2p_crossed", "hang.ring_break", "hang.unmatched_p2p"}},
      {{Op::kSwap}, create, Effect::kHang, When::kAlways, "", {"hang.comm_init_mismatch"}},
      {{Op::kSplit}, hop, Effect::kHang, When::kAlways, "", {"hang.p2p_cycle"}},
      {{Op::kFunc}, kCollectives, Effect::kHang, When::kAlways, "", {"hang.op_mismatch"}},
      {{Op::kFunc},
       hop,
       Effect::kHang,
       When::kAlways,
       "",
       {"hang.op_mismatch", "hang.ring_break", "hang.unmatched_p2p", "ring.wrong_neighbour", "hang.p2p_cycle"}},
      {{Op::kCount, Op::kDtype, Op::kRedop, Op::kRoot},
       kCollectives,
       Effect::kHang,
       When::kAlways,
       "",
       {"hang.arg_mismatch"}},
      {{Op::kCount, Op::kDtype},
       hop,
       Effect::kHang,
       When::kAlways,
       "",
       {"hang.arg_mismatch", "hang.ring_break", "hang.unmatched_p2p"}},
      {{Op::kPeer},
       hop,
       Effect::kHang,
       When::kAlways,
       "",
       {"ring.wrong_neighbour", "hang.ring_break", "hang.unmatched_p2p", "hang.p2p_crossed"}},
      {{Op::kComm}, kCollectives, Effect::kHang, When::kAlways, "", {"hang.missing_rank", "hang.op_mismatch"}},
      {{Op::kComm}, hop, Effect::kHang, When::kAlways, "", {"hang.ring_break", "hang.unmatched_p2p"}},
      {{Op::kExit}, {}, Effect::kHang, When::kAlways, "", {"hang.dead_rank"}},
      {{Op::kKill}, {}, Effect::kHang, When::kAlways, "", {"hang.dead_rank", "hang.missing_rank"}},
      {{Op::kHang}, {}, Effect::kHang, When::kAlways, "", {"hang.missing_rank"}},
      {{Op::kKill, Op::kHang}, {}, Effect::kHang, When::kTransfers, "", {"hang.ring_break"}},
      {{Op::kKill, Op::kHang}, create, Effect::kHang, When::kAlways, "", {"hang.comm_init_mismatch"}},
      {{Op::kExit}, {}, Effect::kExit, When::kAlways, "", {"hang.dead_rank"}},
      {{Op::kKill}, {}, Effect::kExit, When::kAlways, "", {"hang.dead_rank", "hang.missing_rank"}, false},
  };
}

// Numbers that a changed call makes.
std::vector<TableRow> wrong_calls() {
  const Effect e = Effect::kCorrupt;
  const Classes hop{C::kTransfer};
  const Ids divisor{"loss.per_rank_mean", "loss.grad_scale"};
  return {
      {{Op::kFunc}, kCalls, e, When::kUnlike, "", {"hang.op_mismatch"}},
      {{Op::kCount, Op::kDtype, Op::kRedop, Op::kRoot}, kCalls, e, When::kUnlike, "", {"hang.arg_mismatch"}},
      // Other layers may ask for something else, so that this call alone need not show it.
      {{Op::kFunc}, kCollectives, e, When::kUnlikeLayers, "", {"hang.op_mismatch"}, false},
      {{Op::kDtype, Op::kRedop, Op::kRoot}, kCollectives, e, When::kUnlikeLayers, "", {"hang.arg_mismatch"}, false},
      {{Op::kComm}, kCalls, e, When::kUnlike, "", {"hang.missing_rank", "hang.op_mismatch"}, false},
      {{Op::kRedop}, {C::kMaxReduce}, e, When::kAlways, "sum", {"softmax.sum_for_max"}},
      {{Op::kRedop}, {C::kMaxReduce}, e, When::kAlways, "min", {"softmax.wrong_reduction"}},
      {{Op::kRedop}, {C::kMaxReduce}, e, When::kAlways, "avg", {"softmax.wrong_reduction"}},
      {{Op::kRedop}, {C::kSumReduce, C::kOutReduce}, e, When::kAlways, "", {"softmax.wrong_reduction"}},
      {{Op::kDrop}, {C::kMaxReduce}, e, When::kAlways, "", {"softmax.no_global_max"}},
      {{Op::kDrop}, {C::kSumReduce}, e, When::kAlways, "", {"softmax.no_global_sum"}},
      {{Op::kTwice}, {C::kSumReduce}, e, When::kAlways, "", {"softmax.lse_merge"}},
      {{Op::kCount}, {C::kMaxReduce}, e, When::kAlways, "", {"softmax.no_global_max", "softmax.lse_merge"}},
      {{Op::kCount}, {C::kSumReduce}, e, When::kAlways, "", {"softmax.no_global_sum", "softmax.lse_merge"}},
      {{Op::kDrop, Op::kTwice, Op::kRedop}, {C::kCountReduce}, e, When::kAlways, "", divisor, true, Who::kOrNobody},
      {{Op::kDrop, Op::kTwice, Op::kRedop},
       {C::kLossReduce},
       e,
       When::kAlways,
       "",
       {"loss.grad_scale"},
       true,
       Who::kOrNobody},
      {{Op::kDrop, Op::kTwice, Op::kRedop}, {C::kNormReduce}, e, When::kAlways, "", {}, true, Who::kOrNobody},
      {{Op::kRedop}, {C::kGradReduce}, e, When::kAlways, "avg", {"loss.grad_scale"}, true, Who::kOrNobody},
      {{Op::kTwice}, {C::kGradReduce}, e, When::kAlways, "", {"loss.grad_scale"}, true, Who::kOrNobody},
      {{Op::kDtype, Op::kComm}, {C::kCountReduce}, e, When::kAlways, "", {}, true, Who::kOrNobody},
      {{Op::kTwice}, kCollectives, e, When::kAlways, "", {"hang.op_mismatch"}, false},
      {{Op::kSwap}, kCollectives, e, When::kSameGroup, "", {"hang.order_swap"}, false},
      {{Op::kSwap}, hop, e, When::kAlways, "", {"hang.order_swap", "hang.p2p_crossed", "ring.stale_block"}},
      {{Op::kDrop, Op::kTwice, Op::kComm},
       hop,
       e,
       When::kAlways,
       "",
       {"ring.stale_block", "ring.step_count", "hang.ring_break", "hang.unmatched_p2p", "drift.count"}},
      {{Op::kPeer, Op::kFunc},
       hop,
       e,
       When::kAlways,
       "",
       {"ring.wrong_neighbour", "ring.stale_block", "hang.ring_break", "hang.unmatched_p2p", "hang.p2p_crossed"}},
      {{Op::kFunc}, hop, e, When::kAlways, "", {"ring.step_count"}},
      {{Op::kSplit}, hop, e, When::kAlways, "", {"hang.p2p_cycle"}},
  };
}

// Numbers that a changed kernel or column makes.
std::vector<TableRow> wrong_values() {
  const Effect e = Effect::kCorrupt;
  const Classes counts{C::kCount}, positions{C::kPosition, C::kMask};
  return {
      {kAllRows, {C::kPart, C::kMerge}, e, When::kAlways, "", {"softmax.lse_merge"}},
      {{Op::kZero}, {C::kPart, C::kMerge}, e, When::kAlways, "", {"softmax.lse_merge"}, false},  // rows not sampled
      {{Op::kScale}, {C::kShare}, e, When::kAlways, "", {"loss.grad_scale"}, true, Who::kOrNobody},
      {kValues, {C::kShare, C::kNorm, C::kClip}, e, When::kAlways, "", {}, true, Who::kOrNobody},
      {kValues, {C::kTotal}, e, When::kAlways, "", {}, true, Who::kOrNobody},
      {kValues, {C::kLossGradient}, e, When::kAlways, "", {}, true, Who::kOrNobody},
      {{Op::kScale}, {C::kLossGradient}, e, When::kAlways, "", {"loss.grad_scale"}, true, Who::kOrNobody},
      {kValues,
       counts,
       e,
       When::kAlways,
       "",
       {"loss.per_rank_mean", "loss.grad_scale", "loss.padding_counted"},
       true,
       Who::kOrNobody},
      {{Op::kOffset}, positions, e, When::kAlways, "", {"position.offset", "position.overlap", "position.gap"}},
      {{Op::kNextRank, Op::kRestart},
       positions,
       e,
       When::kAlways,
       "",
       {"position.restart", "position.offset", "position.overlap", "position.gap"}},
      {{Op::kHalves}, positions, e, When::kAlways, "", {"position.layout", "position.offset"}},
      {{Op::kLayout}, positions, e, When::kAlways, "", {"position.layout"}},
      // Of the first shard they are one thing.
      {{Op::kLayout}, positions, e, When::kAlways, "contiguous", {"position.restart"}},
      {{Op::kDuplicate}, positions, e, When::kAlways, "", {"position.overlap", "position.gap"}},
      {kColumns, {C::kMask}, e, When::kAlways, "", {"position.padding_shift"}},
      {{Op::kZero, Op::kPrevious, Op::kDrop},
       positions,
       e,
       When::kAlways,
       "",
       {"position.overlap", "position.gap", "position.restart", "position.offset", "position.padding_shift"}},
      {kColumns, {C::kLabel}, e, When::kAlways, "", {"loss.label_shift"}},
      {{Op::kZero, Op::kPrevious, Op::kDrop}, {C::kLabel}, e, When::kAlways, "", {"loss.label_shift"}},
      {kColumns, {C::kTokens}, e, When::kAlways, "", {}},
      {{Op::kZero, Op::kPrevious, Op::kDrop}, {C::kTokens}, e, When::kAlways, "", {}},
      {{Op::kNan}, {}, e, When::kAlways, "", {"numeric.nonfinite", "softmax.nan_rows"}, true, Who::kOrNobody},
      {kAnyOp, {}, e, When::kNonFinite, "", {"numeric.nonfinite", "softmax.nan_rows"}},
      // A call makes no NaN of numbers: it left memory unwritten, or what it moved came too late.
      {kAnyOp, kCalls, e, When::kNonFinite, "", {"race.uninitialised_read"}},
      {kAnyOp, {}, e, When::kUnwritten, "", {"race.uninitialised_read", "numeric.nonfinite", "softmax.nan_rows"}},
      {kAnyOp, {}, e, When::kCopies, "", {"numeric.replica"}},
  };
}

template <class List, class NameOf>
std::string joined(const List& list, NameOf name_of) {
  std::string text;
  for (const auto& item : list) text += (text.empty() ? "" : ", ") + std::string(name_of(item));
  return text;
}

std::string classes_text(const Classes& classes) {
  if (classes.empty()) return "any site";
  if (classes == kCalls) return "any call";
  if (classes == kCollectives) return "any collective";
  return joined(classes, [](SiteClass c) { return name(c); });
}

}  // namespace

const char* name(Effect effect) {
  constexpr const char* kNames[] = {"hang", "exit", "corrupt", "order", "harmless"};
  return kNames[size_t(effect)];
}

const char* name(When when) {
  constexpr const char* kNames[] = {"",
                                    "both calls of one group",
                                    "calls of two groups",
                                    "the same call is another one elsewhere",
                                    "the same call of other layers is another one",
                                    "memory that nothing wrote is read",
                                    "ranks that hold copies disagree",
                                    "a loss or norm is not finite",
                                    "the job has ring hops"};
  return kNames[size_t(when)];
}

std::span<const TableRow> judge_table() {
  static const std::vector<TableRow> table = [] {
    std::vector<TableRow> all = hangs();
    for (const auto& part : {wrong_calls(), wrong_values()}) all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return table;
}

std::string judge_table_text() {
  std::string text =
      "What a mutant may be called, by operation, site and effect. Accused must be the ranks that were changed;\n"
      "Of a hang that cannot be decided, most of a group having changed in a first step, the others may be named: "
      "partly.\n"
      "\"or nobody\": what was changed is mixed over ranks before it is recorded. \"silent\": nothing recorded shows "
      "it.\n"
      "A record or wait that is changed: the race.* that the judge's own happens-before finds where the edge was "
      "needed,\n"
      "whether the numbers differ or not; nothing where it was not.\n\n";
  const auto rows = mutation_ops();
  for (const TableRow& row : judge_table()) {
    const std::string ops =
        row.ops.empty() ? "any operation" : joined(row.ops, [&](MutationOp op) { return rows[size_t(op)].name; });
    text += fmt::format("{}{}{} @ {}\n", ops, row.value.empty() ? "" : "=", row.value, classes_text(row.classes));
    text += fmt::format("  {}{}{}: {}{}{}\n", name(row.effect), row.when == When::kAlways ? "" : ", where ",
                        name(row.when), row.ids.empty() ? "*.unexplained" : joined(row.ids, [](auto id) { return id; }),
                        row.who == Who::kOrNobody ? " (or nobody)" : "", row.counts ? "" : " (silent)");
  }
  return text;
}

}  // namespace ringscope::campaign
