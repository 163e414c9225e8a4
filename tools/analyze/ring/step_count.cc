// ring.step_count: members of one ring ran fewer attention steps in a pass than the ring has blocks. Counted where the
// loop ran (ring_plan rows), so a rank that did not get that far is not mistaken for one that left early.
#include <algorithm>
#include <tuple>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

// The first receive of the left ring's neighbour that finds no block: hop number `hop` of this pass.
uint32_t neighbour_receive(const TraceIndex& index, const CommRow& comm, const Where& where, int rank, int hop) {
  const auto self = std::find(comm.ranks.begin(), comm.ranks.end(), rank);
  if (self == comm.ranks.end()) return kNoRow;
  const int next = comm.ranks[size_t(self - comm.ranks.begin() + 1) % comm.ranks.size()];
  const auto [begin, end] = index.ops_of(next);
  for (uint32_t row = begin; row < end; ++row) {
    const OpRow& op = index.view.ops[row];
    if (op.p2p == kNoRow || op.where.ring_step != hop) continue;
    Where w = op.where;
    w.ring_step = where.ring_step;
    if (w == where && index.view.p2ps[op.p2p].direction == Direction::kRecv &&
        index.view.p2ps[op.p2p].comm == comm.comm)
      return row;
  }
  return kNoRow;
}

}  // namespace

std::vector<ShortRing> find_short_rings(const TraceIndex& index) {
  std::map<std::pair<uint32_t, uint64_t>, std::vector<size_t>> passes;
  for (size_t i = 0; i < index.view.ring_plans.size(); ++i) {
    Where where = index.view.ring_plans[i].where;
    where.ring_step = -1;
    passes[{index.view.ring_plans[i].comm, where.pack()}].push_back(i);
  }
  std::map<uint32_t, ShortRing> first;  // by comm
  for (const auto& [key, plans] : passes) {
    const CommRow* comm = index.comm(key.first);
    if (!comm) continue;
    ShortRing ring;
    ring.comm = comm;
    ring.where = Where::unpack(key.second);
    uint32_t fewest = UINT32_MAX;
    for (size_t row : plans) {
      const RingPlanRow& plan = index.view.ring_plans[row];
      ring.expected = std::max(ring.expected, int(plan.expected_steps));
      ring.steps.emplace_back(plan.rank, int(plan.run_steps));
      ring.plan_rows.push_back(int64_t(row));
      if (plan.run_steps >= plan.expected_steps) continue;
      ring.ranks.push_back(plan.rank);
      if (plan.run_steps >= fewest) continue;
      fewest = plan.run_steps;
      ring.first = plan.rank;
    }
    if (ring.ranks.empty()) continue;
    sort_unique(ring.ranks);
    std::sort(ring.steps.begin(), ring.steps.end());
    // n attention steps take n - 1 hops, so hop n - 1 is the first that is missing.
    ring.where.ring_step = int16_t(fewest > 0 ? fewest - 1 : 0);
    const auto found = first.find(comm->comm);
    if (found == first.end() || earlier(ring.where, found->second.where)) first[comm->comm] = std::move(ring);
  }
  std::vector<ShortRing> rings;
  for (auto& [comm, ring] : first) {
    Where pass = ring.where;
    pass.ring_step = -1;
    ring.waiting_op = neighbour_receive(index, *ring.comm, pass, ring.first, ring.where.ring_step);
    rings.push_back(std::move(ring));
  }
  return rings;
}

std::string steps_text(const ShortRing& ring) {
  std::string text;
  for (const auto& [rank, steps] : ring.steps)
    text += (text.empty() ? "" : ", ") + std::string("rank ") + std::to_string(rank) + " ran " + std::to_string(steps);
  return text;
}

std::vector<Evidence> plan_evidence(const TraceIndex& index, const ShortRing& ring) {
  std::vector<Evidence> evidence;
  for (int64_t row : ring.plan_rows) {
    const RingPlanRow& plan = index.view.ring_plans[size_t(row)];
    evidence.push_back(cite(index.view, "ring_plan", size_t(row),
                            "rank " + std::to_string(plan.rank) + " ran " + std::to_string(plan.run_steps) + " of " +
                                std::to_string(plan.expected_steps) + " steps"));
  }
  return evidence;
}

Finding step_count_finding(const TraceIndex& index, const ShortRing& ring) {
  Finding f = make_finding("ring.step_count");
  f.ranks = ring.ranks;
  f.group = group_ref(*ring.comm);
  f.where = ring.where;
  f.confidence = 0.98;
  f.first_ns = index.step_ns(ring.ranks[0], ring.where.step);
  f.sentence = ranks_text(ring.ranks) + " ran too few attention steps in ring " + group_text(*f.group) + " at " +
               place_text(ring.where) + " (steps run, " + std::to_string(ring.expected) +
               " expected: " + steps_text(ring) + "); later blocks of this ring arrive one hop too early";
  f.evidence = plan_evidence(index, ring);
  return f;
}

}  // namespace ringscope
