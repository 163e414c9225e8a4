// hang.cross_group_cycle: ranks that block each other in a circle although every group's calls agree: they run the
// operations of two groups in different orders. A circle is a strongly connected part of what the replay left stuck
// that spans two ranks and two groups; no schedule can run it, so it needs no declared stall.
#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/circles.h"
#include "tools/analyze/hang/hang.h"
#include "tools/analyze/hang/job_order.h"

namespace ringscope {
namespace {

int lane_of(const Stuck& stuck, const Circle& circle, uint32_t head) {
  for (int lane : circle.lanes)
    if (stuck.lanes[size_t(lane)].head == head) return lane;
  return circle.lanes[0];
}

// An operation of another kind than the job's, of each kind one: what the order is between.
std::string order_text(const TraceIndex& index, const Circle& circle, const JobOrder& order) {
  std::string first, second;
  for (uint32_t row : circle.heads) {
    const CommRow* comm = comm_of(index, index.view.ops[row]);
    const std::string text = call_text(index, row) + (comm ? " over " + group_text(group_ref(*comm)) : "");
    (program_digest(index, row) == order.first ? first : second) = text;
  }
  return first + " comes before " + second;
}

Finding finding(const TraceIndex& index, const Stuck& stuck, const Circle& circle,
                const std::vector<const Circle*>& copies) {
  const JobOrder order = job_order(index, circle.heads);
  Finding f = make_finding("hang.cross_group_cycle");
  uint32_t shown = circle.heads[0];
  const auto departs = [&](uint32_t row) { return order.first != 0 && program_digest(index, row) != order.first; };
  for (const Circle* copy : copies)
    for (uint32_t row : copy->heads)
      if (departs(row)) f.ranks.push_back(index.view.ops[row].rank);
  // Others that departed and are stuck belong to a copy of the circle in which a rank without a trace takes part.
  for (int rank : order.departs)
    if (std::binary_search(stuck.pending.begin(), stuck.pending.end(), rank)) f.ranks.push_back(rank);
  sort_unique(f.ranks);
  if (f.ranks.empty())
    for (const Circle* copy : copies) f.ranks.insert(f.ranks.end(), copy->ranks.begin(), copy->ranks.end());
  sort_unique(f.ranks);
  for (uint32_t row : circle.heads)
    if (departs(row) && (!departs(shown) || row < shown)) shown = row;
  const OpRow& op = index.view.ops[shown];
  f.where = op.where;
  f.first_ns = op.start_ns ? op.start_ns : op.enqueue_ns;
  f.op = op_name(index, shown);
  f.seq = seq_of(index, op);
  if (const CommRow* comm = comm_of(index, op)) f.group = group_ref(*comm);
  f.sentence = "deadlock cycle: " + walk(index, stuck, lane_of(stuck, circle, shown));
  if (order.first != 0) {
    f.sentence += ". " + ranks_text(f.ranks) + (f.ranks.size() == 1 ? " departs" : " depart") +
                  " from the order of the job, in which " + order_text(index, circle, order) + " (" + order.why + ")";
    f.confidence = confidence(order.support);
  } else {
    f.sentence += ". Both orders are shown: nothing in the trace tells which one the job follows";
    f.confidence = confidence({1, 1, 1, 1});
    f.would_raise_confidence = "an earlier step in which the two operations completed";
  }
  for (const Circle* copy : copies) {
    if (copy != &circle) f.sentence += "; the same cycle stands around " + ranks_text(copy->ranks);
    for (uint32_t row : copy->heads)
      f.evidence.push_back(
          cite(index.view, "op", size_t(row),
               "rank " + std::to_string(index.view.ops[row].rank) + " is blocked in " + head_text(index, row)));
  }
  return f;
}

}  // namespace

std::vector<Finding> cross_group_cycles(const TraceIndex& index, const Stuck& stuck) {
  std::vector<Circle> circles = find_circles(stuck);
  std::erase_if(circles, [&](const Circle& circle) { return groups_of(index, circle).size() < 2; });
  std::vector<Finding> found;
  for (const auto& copies : put_together(index, circles)) found.push_back(finding(index, stuck, *copies[0], copies));
  return found;
}

}  // namespace ringscope
