// hang.cross_group_cycle: ranks that block each other in a circle although every group's calls agree: they run the
// operations of two groups in different orders. A circle is a strongly connected part of what the replay left stuck
// that spans two ranks and two groups; no schedule can run it, so it needs no declared stall.
#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/components.h"
#include "tools/analyze/hang/hang.h"
#include "tools/analyze/hang/job_order.h"

namespace ringscope {
namespace {

struct Circle {
  std::vector<int> lanes;  // in Stuck
  std::vector<int> ranks;  // sorted
  std::vector<uint32_t> heads;
};

std::vector<Circle> find_circles(const TraceIndex& index, const Stuck& stuck) {
  std::vector<Circle> all;
  const std::vector<int> component = strong_components(stuck.edges);
  std::unordered_map<int, size_t> known;
  for (size_t lane = 0; lane < stuck.lanes.size(); ++lane) {
    const auto [at, fresh] = known.try_emplace(component[lane], all.size());
    if (fresh) all.emplace_back();
    Circle& circle = all[at->second];
    circle.lanes.push_back(int(lane));
    circle.ranks.push_back(stuck.lanes[lane].rank);
    if (stuck.lanes[lane].head != kNoRow) circle.heads.push_back(stuck.lanes[lane].head);
  }
  std::vector<Circle> circles;
  for (Circle& circle : all) {
    std::set<uint32_t> groups;
    for (uint32_t row : circle.heads)
      if (const CommRow* comm = comm_of(index, index.view.ops[row])) groups.insert(comm->comm);
    sort_unique(circle.ranks);
    if (circle.ranks.size() > 1 && groups.size() > 1) circles.push_back(std::move(circle));
  }
  return circles;
}

// Replicas of one program close the same circle each: in equal operations.
uint64_t signature(const TraceIndex& index, const Circle& circle) {
  std::set<uint64_t> calls;
  for (uint32_t row : circle.heads)
    calls.insert(mix(program_digest(index, row), uint64_t(seq_of(index, index.view.ops[row]))));
  uint64_t h = 1;
  for (uint64_t call : calls) h = mix(h, call);
  return h;
}

std::string call(const TraceIndex& index, uint32_t row) {
  const OpRow& op = index.view.ops[row];
  std::string text = op_name(index, row) + " #" + std::to_string(seq_of(index, op));
  if (const CommRow* comm = comm_of(index, op)) text += " of " + group_text(group_ref(*comm));
  return text;
}

// The shortest way from a lane back to itself, in words.
std::string walk(const TraceIndex& index, const Stuck& stuck, int start) {
  std::vector<int> from(stuck.edges.size(), -1), queue{start};
  int last = -1;
  for (size_t head = 0; head < queue.size() && last < 0; ++head)
    for (int to : stuck.edges[size_t(queue[head])]) {
      if (to == start) {
        last = queue[head];
        break;
      }
      if (from[size_t(to)] >= 0) continue;
      from[size_t(to)] = queue[head];
      queue.push_back(to);
    }
  std::vector<int> way{};
  for (int v = last; v >= 0 && v != start; v = from[size_t(v)])
    if (size_t(v) < stuck.lanes.size()) way.push_back(v);
  way.push_back(start);
  std::reverse(way.begin(), way.end());
  std::string text;
  for (size_t i = 0; i < way.size(); ++i) {
    const StuckLane& lane = stuck.lanes[size_t(way[i])];
    const int next = stuck.lanes[size_t(way[(i + 1) % way.size()])].rank;
    text += (i ? "; " : "") + std::string("rank ") + std::to_string(lane.rank) + " waits " +
            (lane.head == kNoRow ? "" : "in " + call(index, lane.head) + " ") + "for " +
            (next == lane.rank ? "another of its streams" : "rank " + std::to_string(next));
  }
  return text;
}

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
               "rank " + std::to_string(index.view.ops[row].rank) + " is blocked in " + call(index, row)));
  }
  return f;
}

}  // namespace

std::vector<Finding> cross_group_cycles(const TraceIndex& index, const Stuck& stuck) {
  const std::vector<Circle> circles = find_circles(index, stuck);
  std::vector<std::vector<const Circle*>> mistakes;
  std::unordered_map<uint64_t, size_t> known;
  for (const Circle& circle : circles) {
    const auto [at, fresh] = known.try_emplace(signature(index, circle), mistakes.size());
    if (fresh) mistakes.emplace_back();
    mistakes[at->second].push_back(&circle);
  }
  std::vector<Finding> found;
  for (const auto& copies : mistakes) found.push_back(finding(index, stuck, *copies[0], copies));
  return found;
}

}  // namespace ringscope
