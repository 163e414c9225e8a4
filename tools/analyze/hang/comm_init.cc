// hang.comm_init_mismatch: communicators that are never there, because ranks ask for them in different orders, or because a
// member went on without asking. Creation blocks the host and matches by members and by count, as a bootstrap network does.
#include <algorithm>
#include <map>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"

namespace ringscope {
namespace {

struct Creation {
  uint32_t op = kNoRow;
  const CommRow* comm = nullptr;
  bool there = false;
};

class Creations {
 public:
  explicit Creations(const TraceIndex& index) : index_(index), view_(index.view) {
    std::map<std::string_view, std::vector<const CommRow*>> named;
    for (const CommRow& comm : view_.comms) named[comm.name].push_back(&comm);
    for (uint32_t row = 0; row < view_.ops.size(); ++row) {
      const OpRow& op = view_.ops[row];
      if (op.kind != OpKind::kCommInit) continue;
      Creation creation{row, nullptr, op.state == OpState::kCompleted};
      for (const CommRow* comm : named[view_.text(op.name)])
        if (std::count(comm->ranks.begin(), comm->ranks.end(), op.rank)) creation.comm = comm;
      of_rank_[op.rank].push_back(creation);
      if (!creation.there && creation.comm) waiting_[op.rank] = creation;
    }
  }

  std::vector<Finding> find() {
    if (waiting_.empty() || !index_.lossless(-1)) return {};
    std::vector<int> circle = in_circles();
    if (!circle.empty()) return {order_finding(circle)};
    std::vector<int> without;
    for (const auto& [rank, creation] : waiting_)
      for (int member : creation.comm->ranks)
        if (went_on_without(member, *creation.comm)) without.push_back(member);
    sort_unique(without);
    if (without.empty()) return {};
    return {missing_finding(without)};
  }

 private:
  bool asked_for(int rank, const CommRow& comm) const {
    const auto found = of_rank_.find(rank);
    return found != of_rank_.end() &&
           std::any_of(found->second.begin(), found->second.end(), [&](const Creation& c) { return c.comm == &comm; });
  }

  // It asked for others, has them all, and issued something behind that. Its end is told elsewhere.
  bool went_on_without(int rank, const CommRow& comm) const {
    if (asked_for(rank, comm) || waiting_.contains(rank) || !index_.seen(rank) || !index_.lossless(rank)) return false;
    const RankExitRow* exit = index_.exit_of(rank);
    if (!exit || died(*exit)) return false;
    const auto [begin, end] = index_.ops_of(rank);
    return std::any_of(view_.ops.begin() + begin, view_.ops.begin() + end,
                       [](const OpRow& op) { return op.kind != OpKind::kCommInit; });
  }

  // Ranks that wait, over others that wait, for themselves. Who waits has one creation open: a walk of at most as many
  // steps as ranks, coloured so that each is taken once.
  std::vector<int> in_circles() const {
    std::map<int, int> colour;  // 0 = not seen, else the number of its walk
    std::vector<int> circle;
    int walk = 0;
    for (const auto& [start, creation] : waiting_) {
      ++walk;
      std::vector<int> path;
      int at = start;
      while (at >= 0 && colour[at] == 0) {
        colour[at] = walk;
        path.push_back(at);
        at = waits_for(at);
      }
      if (at < 0 || colour[at] != walk) continue;
      circle.insert(circle.end(), std::find(path.begin(), path.end(), at), path.end());
    }
    sort_unique(circle);
    return circle;
  }
  int waits_for(int rank) const {
    const auto found = waiting_.find(rank);
    if (found == waiting_.end()) return -1;
    for (int member : found->second.comm->ranks)
      if (!asked_for(member, *found->second.comm) && waiting_.contains(member)) return member;
    return -1;
  }

  // What the rank asked for as its n-th: size and distances of the members, which copies of a group share. 0 = nothing.
  uint64_t asked(int rank, size_t n) const {
    const auto found = of_rank_.find(rank);
    if (found == of_rank_.end() || n >= found->second.size() || !found->second[n].comm) return 0;
    return group_shape(*found->second[n].comm);
  }

  Finding order_finding(const std::vector<int>& circle) const {
    std::map<uint64_t, std::vector<int>> camps;
    size_t n = 0;
    for (; n < of_rank_.at(circle[0]).size(); ++n) {
      camps.clear();
      for (const auto& [rank, creations] : of_rank_) camps[asked(rank, n)].push_back(rank);
      camps.erase(0);
      if (camps.size() > 1) break;
    }
    const auto most = std::max_element(camps.begin(), camps.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    Finding f = base(waiting_.at(circle[0]));
    size_t all = 0;
    for (const auto& [shape, ranks] : camps) all += ranks.size();
    const bool majority = most != camps.end() && most->second.size() * 2 > all;
    for (const auto& [shape, ranks] : camps)
      if (majority && shape != most->first) f.ranks.insert(f.ranks.end(), ranks.begin(), ranks.end());
    if (!majority) f.ranks = circle;
    sort_unique(f.ranks);
    f.sentence = "communicators are created in different orders: ";
    for (size_t i = 0; i < circle.size(); ++i)
      f.sentence += (i ? ", " : "") + std::string("rank ") + std::to_string(circle[i]) + " waits in " +
                    group_text(group_ref(*waiting_.at(circle[i]).comm)) + " for rank " +
                    std::to_string(waits_for(circle[i]));
    if (majority)
      f.sentence += "; " + std::to_string(most->second.size()) + " of " + std::to_string(all) +
                    " ranks follow one order, " + ranks_text(f.ranks) + " another";
    else f.sentence += "; both orders are followed by as many, so all of the circle are shown";
    f.confidence = majority ? confidence({1, double(most->second.size()), double(all - most->second.size()), 1})
                            : confidence({1, 1, 1, 1});
    f.would_raise_confidence = "a start of the same job that came through: the order in which it asked for its groups";
    for (int rank : circle) cite_creation(f, waiting_.at(rank));
    return f;
  }

  Finding missing_finding(const std::vector<int>& without) const {
    const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& entry) {
      const auto& ranks = entry.second.comm->ranks;
      return std::any_of(ranks.begin(), ranks.end(), [&](int rank) {
        return std::binary_search(without.begin(), without.end(), rank) && !asked_for(rank, *entry.second.comm);
      });
    });
    Finding f = base(waiting->second);
    f.ranks = without;
    f.sentence = "rank " + std::to_string(waiting->first) + " waits for communicator " +
                 group_text(group_ref(*waiting->second.comm)) + " to be created, and " + ranks_text(without) +
                 " went on without asking for it";
    f.confidence = confidence({1, double(waiting_.size()), 0, 1});
    f.would_raise_confidence = "the host stack of " + ranks_text(without);
    cite_creation(f, waiting->second);
    return f;
  }

  Finding base(const Creation& creation) const {
    Finding f = make_finding("hang.comm_init_mismatch");
    f.group = group_ref(*creation.comm);
    f.op = "comm_init";
    f.where = view_.ops[creation.op].where;
    f.first_ns = view_.ops[creation.op].enqueue_ns;
    return f;
  }
  void cite_creation(Finding& f, const Creation& creation) const {
    f.evidence.push_back(cite(view_, "op", size_t(creation.op),
                              "rank " + std::to_string(view_.ops[creation.op].rank) + " asked for " +
                                  group_text(group_ref(*creation.comm)) + ", and it was not there at the end"));
  }

  const TraceIndex& index_;
  const TraceView& view_;
  std::map<int, std::vector<Creation>> of_rank_;  // in order
  std::map<int, Creation> waiting_;
};

}  // namespace

std::vector<Finding> comm_init_mismatches(const TraceIndex& index) {
  if (index.ended && !index.stalled) return {};
  return Creations(index).find();
}

}  // namespace ringscope
