#include "tools/analyze/hang/circles.h"

#include <algorithm>
#include <unordered_map>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/components.h"

namespace ringscope {
namespace {

uint64_t signature(const TraceIndex& index, const Circle& circle) {
  std::set<uint64_t> calls;
  for (uint32_t row : circle.heads)
    calls.insert(mix(program_digest(index, row), uint64_t(seq_of(index, index.view.ops[row]))));
  uint64_t h = 1;
  for (uint64_t call : calls) h = mix(h, call);
  return h;
}

}  // namespace

std::vector<Circle> find_circles(const Stuck& stuck) {
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
    sort_unique(circle.ranks);
    if (circle.ranks.size() > 1) circles.push_back(std::move(circle));
  }
  return circles;
}

std::string head_text(const TraceIndex& index, uint32_t row) {
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
            (lane.head == kNoRow ? "" : "in " + head_text(index, lane.head) + " ") + "for " +
            (next == lane.rank ? "another of its streams" : "rank " + std::to_string(next));
  }
  return text;
}

std::set<uint32_t> groups_of(const TraceIndex& index, const Circle& circle) {
  std::set<uint32_t> groups;
  for (uint32_t row : circle.heads)
    if (const CommRow* comm = comm_of(index, index.view.ops[row])) groups.insert(comm->comm);
  return groups;
}

std::vector<std::vector<const Circle*>> put_together(const TraceIndex& index, const std::vector<Circle>& circles) {
  std::vector<std::vector<const Circle*>> mistakes;
  std::unordered_map<uint64_t, size_t> known;
  for (const Circle& circle : circles) {
    const auto [at, fresh] = known.try_emplace(signature(index, circle), mistakes.size());
    if (fresh) mistakes.emplace_back();
    mistakes[at->second].push_back(&circle);
  }
  return mistakes;
}

}  // namespace ringscope
