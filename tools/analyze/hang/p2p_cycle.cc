// hang.p2p_cycle: transfers that wait in a circle. Receives whose sends stand behind them never end; sends whose receives
// stand behind them end where there is room for the message, and nowhere else.
#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/circles.h"
#include "tools/analyze/hang/hang.h"

namespace ringscope {
namespace {

bool is_send(const TraceIndex& index, uint32_t row) {
  const OpRow& op = index.view.ops[row];
  return op.p2p != kNoRow && index.view.p2ps[op.p2p].direction == Direction::kSend;
}

// Every rank of it is blocked in a transfer that has started: observed, not only possible.
bool of_transfers(const TraceIndex& index, const Circle& circle) {
  return !circle.heads.empty() && std::all_of(circle.heads.begin(), circle.heads.end(), [&](uint32_t row) {
    return index.view.ops[row].p2p != kNoRow && index.view.ops[row].state == OpState::kStarted;
  });
}

Finding finding(const TraceIndex& index, const Stuck& stuck, const std::vector<const Circle*>& copies) {
  const Circle& circle = *copies[0];
  Finding f = make_finding("hang.p2p_cycle");
  uint32_t shown = kNoRow;
  for (const Circle* copy : copies) {
    f.ranks.insert(f.ranks.end(), copy->ranks.begin(), copy->ranks.end());
    for (uint32_t row : copy->heads) {
      f.evidence.push_back(
          cite(index.view, "op", size_t(row),
               "rank " + std::to_string(index.view.ops[row].rank) + " is blocked in " + head_text(index, row)));
      if (shown == kNoRow || row < shown) shown = row;
    }
  }
  sort_unique(f.ranks);
  const OpRow& op = index.view.ops[shown];
  f.where = op.where;
  f.first_ns = op.start_ns ? op.start_ns : op.enqueue_ns;
  f.op = op_name(index, shown);
  f.seq = seq_of(index, op);
  if (const CommRow* comm = comm_of(index, op)) f.group = group_ref(*comm);
  const auto at = std::find_if(circle.lanes.begin(), circle.lanes.end(),
                               [&](int lane) { return stuck.lanes[size_t(lane)].head == shown; });
  const bool sends = is_send(index, shown);
  f.sentence = "transfers wait in a circle: " + walk(index, stuck, at == circle.lanes.end() ? circle.lanes[0] : *at) +
               (sends ? ". Each has its receive behind the send, so that " +
                            std::to_string(index.view.p2ps[op.p2p].bytes) + " bytes need room that there was not"
                      : ". Each has its send behind the receive that it waits in");
  for (const Circle* copy : copies)
    if (copy != &circle) f.sentence += "; the same circle stands around " + ranks_text(copy->ranks);
  f.confidence = confidence({1, double(circle.ranks.size()), 0, double(copies.size())});
  f.would_raise_confidence =
      "the same run with room for the message (more slots, or a smaller one), which would not hang";
  return f;
}

}  // namespace

std::vector<Finding> p2p_cycles(const TraceIndex& index, const Stuck& stuck) {
  std::vector<Circle> circles = find_circles(stuck);
  std::erase_if(circles, [&](const Circle& circle) { return !of_transfers(index, circle); });
  std::vector<Finding> found;
  for (const auto& copies : put_together(index, circles)) found.push_back(finding(index, stuck, copies));
  return found;
}

}  // namespace ringscope
