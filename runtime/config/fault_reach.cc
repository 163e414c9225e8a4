#include "runtime/config/fault_reach.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/split.h"

namespace ringscope {
namespace {

const FaultRow& row_of(FaultId id) {
  const auto rows = fault_rows();
  return *std::find_if(rows.begin(), rows.end(), [&](const FaultRow& r) { return r.id == id; });
}

// What the layout lacks; "" when the code with the bug runs at all.
std::string missing_for(const JobConfig& c) {
  const bool ring = c.cp_comm == CpComm::kP2p;
  switch (c.fault.id) {
    case FaultId::kNone: return "";
    case FaultId::kRingEarlyExit:
    case FaultId::kLastPartWins: return c.cp >= 2 && ring ? "" : "--cp 2 or more and --cp-comm-type p2p";
    // Without overlap both streams are one, whose order needs no events.
    case FaultId::kRingUseBeforeArrival:
      return c.cp < 2 || !ring ? "--cp 2 or more and --cp-comm-type p2p" : c.overlap ? "" : "overlap: no --no-overlap";
    case FaultId::kRingBufferReuse:
      return c.cp < 4 || !ring ? "--cp 4 or more and --cp-comm-type p2p" : c.overlap ? "" : "overlap: no --no-overlap";
    case FaultId::kCrossGroupOrder:
    case FaultId::kCrossGroupOrderOne:
      return c.tp >= 2 && c.cp >= 2 && c.sequence_parallel ? "" : "--tp 2 --cp 2 --sequence-parallel";
    case FaultId::kOpMismatch:
    case FaultId::kSkipAllReduce:
    case FaultId::kPerRankMean: return c.cp * c.dp >= 2 ? "" : "--cp 2 or --dp 2";
    case FaultId::kRankExit: return c.world() >= 2 ? "" : "two ranks or more, for example --cp 2";
    case FaultId::kNoGlobalMax:
    case FaultId::kNoGlobalSum:
    case FaultId::kSumForMax:
      return c.cp >= 2 && c.cp_comm == CpComm::kGlobalSoftmax ? "" : "--cp 2 and --cp-comm-type global_softmax";
    case FaultId::kPositionRestart: return c.cp >= 2 ? "" : "--cp 2 or more";
    case FaultId::kZigzagOnContiguous:
      return c.cp >= 2 && c.cp_layout == CpLayout::kContiguous ? "" : "--cp 2 or more and --cp-layout contiguous";
  }
  return "";
}

Status check_place(const JobConfig& c) {
  const FaultPlan& f = c.fault;
  const FaultRow& row = row_of(f.id);
  const struct {
    const char* key;
    int value, limit;
    const char* of;
  } inside[] = {{"rank", f.rank, c.world(), "ranks"},
                {"layer", f.layer, c.model.num_layers, "layers"},
                {"step", f.step, c.train_iters, "steps"},
                {"ring_step", f.ring_step, c.cp - 1, "hops"}};
  for (const auto& i : inside)
    if (row.keys.find(i.key) != std::string_view::npos && i.value >= i.limit)
      return usage_error(fmt::format("fault {} at {}={}, but the job has {} {}: use at most {}", row.name, i.key,
                                     i.value, i.limit, i.of, i.limit - 1));
  // Hops 0 and 1 of a layer write buffers whose readers the layer before has ordered.
  if (f.id == FaultId::kRingBufferReuse && f.ring_step >= 0 && f.ring_step < 2)
    return usage_error(fmt::format(
        "fault {} at ring_step={}: the first two hops of a layer overwrite nothing that is still read; use {}{}",
        row.name, f.ring_step, c.cp == 4 ? "ring_step=2" : fmt::format("ring_step 2 to {}", c.cp - 2),
        c.cp == 4 ? "" : ", or leave it out"));
  return {};
}

// Does any row of this CP rank see a row of another one?
bool sees_another_shard(const SequenceSplit& split, int cp_rank) {
  int64_t first_foreign = 0;
  while (first_foreign < split.length() && split.owner(first_foreign) == cp_rank) ++first_foreign;
  const std::vector<int32_t> rows = split.rows(cp_rank);
  return std::any_of(rows.begin(), rows.end(),
                     [&](int32_t row) { return row > first_foreign && row < split.length(); });
}

// Has any token of this CP rank another position than its own, when counted within the shard or by zigzag's chunks?
bool position_differs(const JobConfig& c, const SequenceSplit& split, int cp_rank) {
  const std::vector<int32_t> rows = split.rows(cp_rank);
  std::vector<int32_t> wrong(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) wrong[i] = int32_t(i);
  if (c.fault.id == FaultId::kZigzagOnContiguous)
    wrong = SequenceSplit::make(split.padded(), split.cp(), CpLayout::kZigzag)->rows(cp_rank);
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i] < split.length() && rows[i] != wrong[i]) return true;
  return false;
}

// Labels of every DP x CP rank in one step. Sample i of the step keeps its first labels_kept[(i + step) mod n].
std::vector<int64_t> label_counts(const JobConfig& c, const SequenceSplit& split, int step) {
  std::vector<int64_t> counts(size_t(c.dp * c.cp), 0);
  for (int i = 0; i < c.global_batch_size; ++i) {
    const size_t n = c.labels_kept.size();
    const int64_t kept =
        n == 0 ? split.length() : std::min<int64_t>(split.length(), c.labels_kept[size_t(i + step) % n]);
    const int dp = i / c.micro_batch_size % c.dp;
    for (int cp = 0; cp < c.cp; ++cp)
      for (const Run& run : split.runs(cp))
        counts[size_t(dp * c.cp + cp)] += std::clamp<int64_t>(kept - run.start, 0, run.count);
  }
  return counts;
}
bool counts_differ(const JobConfig& c, const SequenceSplit& split) {
  const int period = std::max<int>(1, int(c.labels_kept.size()));
  for (int step = c.fault.step; step < std::min(c.train_iters, c.fault.step + period); ++step) {
    const std::vector<int64_t> counts = label_counts(c, split, step);
    if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) != counts.end()) return true;
  }
  return false;
}

// The ranks whose program is wrong: all of a CP group, or the one that was named.
bool shows_on_some_rank(const JobConfig& c, const SequenceSplit& split, auto shows) {
  if (c.fault.rank_given) return shows(split, Mesh::make(c.tp, c.cp, c.dp, c.pp, c.order)->coord(c.fault.rank).cp);
  for (int cp = 0; cp < c.cp; ++cp)
    if (shows(split, cp)) return true;
  return false;
}

Status check_effect(const JobConfig& c) {
  const std::string_view name = row_of(c.fault.id).name;
  const SequenceSplit split = *sequence_split(c);
  switch (c.fault.id) {
    case FaultId::kNoGlobalMax:
    case FaultId::kNoGlobalSum:
    case FaultId::kSumForMax:
    case FaultId::kLastPartWins:
      if (shows_on_some_rank(c, split, sees_another_shard)) return {};
      return usage_error(fmt::format("fault {}: {} sees keys of another shard: use {}", name,
                                     c.fault.rank_given ? fmt::format("no row of rank {}", c.fault.rank) : "no row",
                                     c.fault.rank_given ? "another rank" : "a longer --seq-length"));
    case FaultId::kPositionRestart:
    case FaultId::kZigzagOnContiguous:
      if (shows_on_some_rank(c, split, [&](const SequenceSplit& s, int cp) { return position_differs(c, s, cp); }))
        return {};
      return usage_error(fmt::format("fault {}: the positions of {} come out right: use {}", name,
                                     c.fault.rank_given ? fmt::format("rank {}", c.fault.rank) : "every rank",
                                     c.fault.rank_given ? "another rank" : "a longer --seq-length"));
    case FaultId::kPerRankMean:
      if (counts_differ(c, split)) return {};
      return usage_error(
          fmt::format("fault {}: every rank has as many labels, and the mean of means is the mean: use --labels-kept "
                      "20,60,7, or --cp 2 --cp-layout contiguous --seq-length 61",
                      name));
    default: return {};
  }
}

}  // namespace

Status check_fault_reach(const JobConfig& c) {
  if (c.fault.id == FaultId::kNone) return {};
  if (const std::string missing = missing_for(c); !missing.empty())
    return usage_error(fmt::format("fault {} needs {}", row_of(c.fault.id).name, missing));
  if (auto status = check_place(c); !status) return status;
  return check_effect(c);
}

}  // namespace ringscope
