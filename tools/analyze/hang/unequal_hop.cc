// hang.arg_mismatch of a transfer that every member changed alike: rings have no odd member then (hop_size.cc), but the two
// sides of a message, the k-th send and the k-th receive of a pair, name different sizes. Whose is the odd one is told by the
// size that the job otherwise moves under the same label.
#include <algorithm>
#include <map>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"
#include "tools/analyze/hang/transfers.h"

namespace ringscope {
namespace {

struct Unequal {
  uint32_t send = kNoRow, receive = kNoRow;  // in p2ps
};

class UnequalHops {
 public:
  explicit UnequalHops(const TraceIndex& index) : index_(index), p2ps_(index.view.p2ps) {}

  std::optional<Finding> find() {
    const Transfers transfers(index_);
    for (const Channel& channel : transfers.channels()) look_at(channel);
    if (unequal_.empty()) return std::nullopt;
    return finding();
  }

 private:
  const OpRow& op(uint32_t p2p) const { return index_.view.ops[p2ps_[p2p].op]; }

  // The first message of the pair. Numbers that were counted are shifted by a loss anywhere.
  void look_at(const Channel& channel) {
    if (channel.sends.empty() || channel.receives.empty()) return;
    for (uint64_t k = std::max(channel.sends.first, channel.receives.first);
         k < std::min(channel.sends.end(), channel.receives.end()); ++k) {
      const uint32_t send = channel.sends.at(k), receive = channel.receives.at(k);
      if (send == kNoRow || receive == kNoRow || p2ps_[send].bytes == p2ps_[receive].bytes) continue;
      if (index_.view.lossless(op(send).rank) && index_.view.lossless(op(receive).rank))
        unequal_.push_back({send, receive});
      return;
    }
  }

  // The size under the label of this transfer that is more frequent than all others together; 0 = there is none.
  uint64_t usual(uint32_t row) {
    if (usual_.empty())
      for (const P2pRow& p2p : p2ps_)
        if (p2p.op < index_.view.ops.size()) ++usual_[index_.view.ops[p2p.op].name][p2p.bytes];
    size_t all = 0;
    std::pair<uint64_t, size_t> most{0, 0};
    for (const auto& [bytes, times] : usual_[op(row).name]) {
      all += times;
      if (times > most.second) most = {bytes, times};
    }
    return 2 * most.second > all ? most.first : 0;
  }

  Finding finding() {
    const auto first = std::min_element(unequal_.begin(), unequal_.end(), [&](const Unequal& a, const Unequal& b) {
      return op(a.send).enqueue_ns < op(b.send).enqueue_ns;
    });
    const Unequal shown = *first;
    const auto same_place = [&](const Unequal& u) {
      return op(u.send).where == op(shown.send).where && op(u.receive).where == op(shown.receive).where;
    };
    Finding f = make_finding("hang.arg_mismatch");
    size_t places = 0;
    for (const Unequal& u : unequal_) {
      if (!same_place(u)) continue;
      ++places;
      for (const uint32_t row : {u.send, u.receive})
        if (const uint64_t right = usual(row); right != 0 && right != p2ps_[row].bytes) f.ranks.push_back(op(row).rank);
    }
    sort_unique(f.ranks);
    if (const CommRow* comm = comm_of(index_, op(shown.send))) f.group = group_ref(*comm);
    f.op = op_name(index_, p2ps_[shown.send].op);
    f.seq = seq_of(index_, op(shown.send));
    f.where = op(shown.send).where;
    f.first_ns = op(shown.send).enqueue_ns;
    f.confidence = confidence({.agree = double(places), .observations = double(places)});
    f.sentence = "the two sides of a message name different sizes: rank " + std::to_string(op(shown.send).rank) +
                 " sends " + std::to_string(p2ps_[shown.send].bytes) + " bytes in " +
                 call_text(index_, p2ps_[shown.send].op) + ", rank " + std::to_string(op(shown.receive).rank) +
                 " receives " + std::to_string(p2ps_[shown.receive].bytes) + " in " +
                 call_text(index_, p2ps_[shown.receive].op) + "; ";
    f.sentence += f.ranks.empty() ? "nothing tells which size is meant, so nobody is accused"
                                  : "otherwise the job moves " + std::to_string(usual_of(shown)) +
                                        " bytes under this label, " + ranks_text(f.ranks) + " did not";
    f.sentence += "; the receiver waits for the rest, or takes what is too much for its next message";
    for (const auto& [row, what] : {std::pair(shown.send, "the send"), std::pair(shown.receive, "its receive")})
      f.evidence.push_back(cite(index_.view, "p2p", row, what));
    f.would_raise_confidence = "the size that this hop should have by the layout of the job";
    return f;
  }
  uint64_t usual_of(const Unequal& u) {
    const uint64_t of_send = usual(u.send);
    return of_send && of_send != p2ps_[u.send].bytes ? of_send : usual(u.receive);
  }

  const TraceIndex& index_;
  const std::vector<P2pRow>& p2ps_;
  std::vector<Unequal> unequal_;                          // of each pair the first
  std::map<uint32_t, std::map<uint64_t, size_t>> usual_;  // label -> bytes -> times
};

}  // namespace

std::optional<Finding> unequal_hops(const TraceIndex& index) { return UnequalHops(index).find(); }

}  // namespace ringscope
