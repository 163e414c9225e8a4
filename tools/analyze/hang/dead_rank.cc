// hang.dead_rank: a rank ended by itself, or was killed, and others are left waiting. Who waited first says nothing:
// others may block a few milliseconds before the end is written, and a watchdog stops a rank minutes after it blocked.
// What counts is what the rank was doing: one that was inside a call that others never joined was waiting itself.
// A rank that was killed leaves no end. Where a stall was declared, and the launcher wrote down every rank that it found
// alive, a rank without a line is one that was gone.
#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"

namespace ringscope {
namespace {

constexpr size_t kNoExit = SIZE_MAX;
constexpr int64_t kSignals = 128;  // an exit code of 128 + n is a death by signal n, as a shell writes it

std::string end_text(int64_t status) {
  if (status < 0) return "was killed by signal " + std::to_string(-status);
  if (status > kSignals && status <= kSignals + 64) return "was killed by signal " + std::to_string(status - kSignals);
  return "ended by itself with exit code " + std::to_string(status);
}

class Deaths {
 public:
  explicit Deaths(const TraceIndex& index) : index_(index), view_(index.view) {
    for (size_t i = 0; i < view_.rank_exits.size(); ++i) {
      const RankExitRow& exit = view_.rank_exits[i];
      if (died(exit) && index.exit_of(exit.rank) == &exit) dead_.emplace(exit.rank, i);
    }
    for (int rank : vanished()) dead_.emplace(rank, kNoExit);
  }

  std::vector<Death> find() {
    std::vector<Death> found;
    if (dead_.empty()) return found;
    find_waiting();
    for (const auto& [rank, exit] : dead_) {
      const bool follows = !was_free(rank);
      // A run that says how it ended, and not that it stalled, was left by this rank without anybody waiting.
      if (follows || index_.stalled || !index_.ended || waiting_.contains(rank) || nobody_is_left())
        found.push_back({finding(rank, exit), follows});
    }
    return found;
  }

 private:
  // Seen, without a loss, and without an end, where every other rank has one and somebody was found blocked.
  std::vector<int> vanished() const {
    std::vector<int> ranks;
    bool somebody_blocked = false;
    for (const RankExitRow& exit : view_.rank_exits) somebody_blocked = somebody_blocked || exit.status == -2;
    if (!somebody_blocked || !index_.lossless(-1)) return ranks;
    for (int rank : index_.ranks())
      if (!index_.exit_of(rank) && index_.lossless(rank)) ranks.push_back(rank);
    // Killed before it issued anything: only its start was written.
    for (const RankRow& row : view_.ranks)
      if (!index_.seen(row.rank) && !index_.exit_of(row.rank) && index_.lossless(row.rank)) ranks.push_back(row.rank);
    return ranks;
  }
  bool nobody_is_left() const {
    const auto& ranks = index_.ranks();
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return dead_.contains(rank); });
  }

  // Of the operations that are blocked, those that wait for a dead rank; of each rank's the one that blocked first.
  void find_waiting() {
    std::unordered_map<uint32_t, std::vector<int>> dead_members;
    for (const CommRow& comm : view_.comms)
      for (int rank : comm.ranks)
        if (dead_.contains(rank)) dead_members[comm.comm].push_back(rank);
    for (uint32_t row = 0; row < view_.ops.size(); ++row) {
      const OpRow& op = view_.ops[row];
      if (!is_call(op) || op.state != OpState::kStarted) continue;
      if (op.p2p != kNoRow) note(peer_rank(index_, op), row);
      if (op.coll == kNoRow) continue;
      const auto members = dead_members.find(view_.colls[op.coll].comm);
      if (members == dead_members.end()) continue;
      for (int rank : members->second) note(rank, row);
    }
  }
  void note(int dead, uint32_t row) {
    if (!dead_.contains(dead) || view_.ops[row].rank == dead) return;
    const auto [at, fresh] = waiting_.try_emplace(dead, row);
    if (!fresh && view_.ops[row].start_ns < view_.ops[at->second].start_ns) at->second = row;
  }

  // Was the rank in no call that some other never joined? A member whose records are missing may have joined or not.
  bool was_free(int rank) {
    const auto [begin, end] = index_.ops_of(rank);
    for (uint32_t row = begin; row < end; ++row) {
      const OpRow& op = view_.ops[row];
      if (is_call(op) && op.state == OpState::kStarted && !all_joined(op)) return false;
    }
    return true;
  }
  bool all_joined(const OpRow& op) {
    if (op.coll == kNoRow) return transfer_joined(op);
    const CollRow& coll = view_.colls[op.coll];
    const CommCalls* calls = index_.calls(coll.comm);
    if (!calls) return true;
    for (const MemberCalls& member : calls->members) {
      const uint32_t row = member.calls.at(coll.seq);
      if (member.rank != op.rank && (row == kNoRow || !joined(view_.colls[row].op))) return false;
    }
    return true;
  }
  bool transfer_joined(const OpRow& op) {
    if (op.p2p == kNoRow) return true;
    if (!transfers_) transfers_ = std::make_unique<Transfers>(index_);
    const uint32_t other = transfers_->counterpart(op.p2p);
    return other != kNoRow && joined(view_.p2ps[other].op);
  }
  // It reached the head of its stream, or nothing but the end of its rank kept it from that.
  bool joined(uint32_t row) {
    const OpRow& op = view_.ops[row];
    return op.state != OpState::kScheduled || (dead_.contains(op.rank) && first_open(op.rank) == row);
  }
  uint32_t first_open(int rank) {
    const auto [at, fresh] = first_open_.try_emplace(rank, kNoRow);
    if (!fresh) return at->second;
    const auto [begin, end] = index_.ops_of(rank);
    for (uint32_t row = begin; row < end && at->second == kNoRow; ++row)
      if (is_call(view_.ops[row]) && view_.ops[row].state != OpState::kCompleted) at->second = row;
    return at->second;
  }

  Finding finding(int rank, size_t exit_row) const {
    Finding f = make_finding("hang.dead_rank");
    f.ranks = {rank};
    const auto [begin, end] = index_.ops_of(rank);
    if (begin < end) f.where = view_.ops[end - 1].where;
    f.sentence = "rank " + std::to_string(rank) + " ";
    if (exit_row == kNoExit) {
      if (begin < end) f.first_ns = view_.ops[end - 1].enqueue_ns;
      f.sentence +=
          "is gone without a word: every other rank was found alive, or its end was written, when the run stalled";
    } else {
      const RankExitRow& exit = view_.rank_exits[exit_row];
      f.first_ns = exit.time_ns;
      f.sentence += end_text(exit.status) + (exit.reason.empty() ? "" : " (" + exit.reason + ")");
      f.evidence.push_back(cite(view_, "rank_exit", exit_row,
                                "rank " + std::to_string(rank) + " exit status " + std::to_string(exit.status)));
    }
    if (begin < end) {
      const std::string place = place_text(f.where);
      f.sentence +=
          "; the last operation it issued was " + op_name(index_, end - 1) + (place.empty() ? "" : " at " + place);
      f.evidence.push_back(cite(view_, "op", size_t(end - 1), "the last operation of rank " + std::to_string(rank)));
    }
    describe_waiting(f, rank);
    // Witnesses are the launcher and everybody who is left waiting; the exit and the end of the rank's own records agree.
    const double told = index_.seen(rank) && exit_row != kNoExit ? 2 : 1;
    f.confidence = confidence({1, 1 + double(index_.blocked().size()), 0, told});
    f.would_raise_confidence = exit_row == kNoExit ? "the log of the launcher or of the machine: which signal ended it"
                                                   : "the log of the rank: what made it end";
    return f;
  }
  void describe_waiting(Finding& f, int rank) const {
    const auto found = waiting_.find(rank);
    if (found == waiting_.end()) return;
    const OpRow& op = view_.ops[found->second];
    if (const CommRow* comm = comm_of(index_, op)) f.group = group_ref(*comm);
    f.op = op_name(index_, found->second);
    f.seq = seq_of(index_, op);
    f.sentence += "; rank " + std::to_string(op.rank) + " was the first to wait for it, in " +
                  call_text(index_, found->second) + ", " + group_call_text(index_, op);
    f.evidence.push_back(cite(view_, "op", size_t(found->second),
                              "rank " + std::to_string(op.rank) + " started " + *f.op + " and did not finish it"));
  }

  const TraceIndex& index_;
  const TraceView& view_;
  std::map<int, size_t> dead_;                 // rank -> row in rank_exits, or kNoExit
  std::unordered_map<int, uint32_t> waiting_;  // dead rank -> op row
  std::unordered_map<int, uint32_t> first_open_;
  std::unique_ptr<Transfers> transfers_;
};

}  // namespace

bool died(const RankExitRow& exit) { return exit.status > 0 || exit.status < -2; }

std::vector<Death> find_deaths(const TraceIndex& index) { return Deaths(index).find(); }

}  // namespace ringscope
