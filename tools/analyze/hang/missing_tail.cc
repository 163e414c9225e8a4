// A call at the end of the trace that some members of a group made and others did not: their sequences are prefixes, so
// no position differs. Who lacks it is accused only when it is known that the call will not come: the rank went past the
// place (it issued what others issue behind the call), it ended normally, or a stall was declared while its host was
// alive and had nothing else to wait for.
#include <algorithm>
#include <unordered_map>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"
#include "tools/analyze/hang/history.h"
#include "tools/analyze/hang/labels.h"
#include "tools/analyze/hang/steps.h"
#include "tools/analyze/ring/ring.h"

namespace ringscope {
namespace {

class Tails {
 public:
  Tails(const TraceIndex& index, const Stuck& stuck) : index_(index), view_(index.view), stuck_(stuck) {
    for (int rank : index.ranks())
      if (!is_stuck(rank) && !exited(rank)) idle_.push_back(rank);
  }

  std::vector<Divergence> find() {
    std::vector<Divergence> found;
    for (const Absence& absence : stuck_.absences)
      if (auto d = judge(absence)) found.push_back(std::move(*d));
    return found;
  }

 private:
  enum class State { kUnknown, kIdle, kWillNotCome };

  std::optional<Divergence> judge(const Absence& absence) {
    const OpRow& op = view_.ops[absence.waiting];
    const CommRow* comm = comm_of(index_, op);
    if (!comm || (op.p2p != kNoRow && (!is_ring(index_, *comm) || !goes_round(*comm, op)))) return std::nullopt;
    Divergence d;
    d.comm = comm;
    d.kind = Divergence::Kind::kMissing;
    d.tail = true;
    d.seq = d.earliest = uint64_t(seq_of(index_, op));
    d.expected = absence.waiting;
    for (int rank : absence.absent) {
      const State state = state_of(rank, absence.waiting);
      if (state == State::kUnknown) continue;
      d.idle = d.idle || state == State::kIdle;
      d.ranks.push_back(rank);
    }
    if (d.ranks.empty()) return std::nullopt;
    const size_t members = comm->ranks.size();
    d.support = {double(absence.makers.size() + absence.absent.size()) / double(members), double(absence.makers.size()),
                 0, 1};
    if (op.coll != kNoRow && !d.idle) weigh(d, absence);
    return d;
  }

  // Does the transfer go as far around the group as its hops do? One that does not is the odd one itself.
  bool goes_round(const CommRow& comm, const OpRow& op) {
    const auto distance = [&](const CommRow& of, const P2pRow& p2p) {
      return ring_distance(p2p, index_.group_rank(of.comm, view_.ops[p2p.op].rank), of.ranks.size());
    };
    if (distances_.empty())
      for (const P2pRow& p2p : view_.p2ps)
        if (const CommRow* of = index_.comm(p2p.comm); of && p2p.op < view_.ops.size()) {
          auto& counts = distances_[{p2p.comm, p2p.direction}];
          ++counts[distance(*of, p2p)];
          ++counts[UINT64_MAX];  // all of them
        }
    const P2pRow& own = view_.p2ps[op.p2p];
    auto& counts = distances_[{comm.comm, own.direction}];
    return counts[distance(comm, own)] * 2 > counts[UINT64_MAX];
  }

  State state_of(int rank, uint32_t waiting) {
    const RankExitRow* exit = index_.exit_of(rank);
    if (exit && died(*exit)) return State::kUnknown;  // hang.dead_rank tells that
    if (exit && exit->status == 0) return State::kWillNotCome;
    if (passed(rank, waiting)) return State::kWillNotCome;
    if (is_stuck(rank)) return State::kUnknown;  // it waits itself: what it waits for comes first
    // No word of how a rank ended is no evidence of life: it may be dead.
    const bool alive = exit || view_.meta.contains(meta_key::kSnapshot);
    if (index_.stalled) return alive ? State::kWillNotCome : State::kUnknown;
    const bool only_idle = idle_.size() == 1 && idle_[0] == rank;
    return alive && only_idle && !index_.ended ? State::kIdle : State::kUnknown;
  }

  // Does the call continue what the group did before? Then those who lack it are accused, majority or not; if it
  // breaks that, those who made it. Without a past the majority decides, and labels break a tie.
  void weigh(Divergence& d, const Absence& absence) const {
    const OpRow& op = view_.ops[d.expected];
    const CommCalls* calls = index_.calls(d.comm->comm);
    const Strand with = strand_of(index_, calls->members[size_t(index_.group_rank(d.comm->comm, op.rank))]);
    const Strand without = strand_of(index_, calls->members[size_t(index_.group_rank(d.comm->comm, d.ranks[0]))]);
    const std::span<const uint64_t> past(with.calls.data(), size_t(d.seq - with.first));
    const uint64_t call = with.at(d.seq);
    const Continuation history = continuation(past, with.whole);
    const bool more_of_one =
        !past.empty() && std::all_of(past.begin(), past.end(), [&](uint64_t c) { return c == call; });
    const size_t makers = absence.makers.size(), lacking = d.ranks.size();
    const uint64_t place = place_by_label(index_, with, without, d.seq);
    d.support.observations += history.seen;
    // Others that came to their end: either they had less to do (uneven batches), or this is one call too many, which a label
    // can tell.
    const bool over = std::all_of(d.ranks.begin(), d.ranks.end(), [&](int rank) {
      const RankExitRow* exit = index_.exit_of(rank);
      return exit && exit->status == 0;
    });
    const std::optional<bool> belongs = belongs_by_label(index_, with, place);
    if (over && makers < lacking && !belongs.value_or(true)) {
      d.support.observations = 1;
      accuse_makers(d, absence);
      d.why = "the others had made all their calls, and ended";
      return;
    }
    if (const std::optional<bool> precedes = by_other_steps(*calls, op.rank, d)) {
      if (!*precedes) return accuse_makers(d, absence);
      d.why = "the group made this call at this place in other steps";
      return place_at(d, with, place);
    }
    const bool told = history.next != 0 && from_earlier_step(index_, with.ops[history.at], with.op(d.seq), history);
    if (more_of_one || (told && history.next == call && !other_label(with, history.at, d.seq))) {
      d.support.against = double(lacking > makers ? lacking - makers : 0);
      d.why = "the group made this call at this place before";
    } else if (told) {
      return accuse_makers(d, absence);
    } else if (makers < lacking) {
      return accuse_makers(d, absence);
    } else if (makers == lacking && !belongs.value_or(false)) {
      d.ranks.clear();
      return;
    }
    place_at(d, with, place);
  }

  void place_at(Divergence& d, const Strand& with, uint64_t place) const {
    d.seq = d.earliest = place;
    d.expected = with.op(place);
    if (!has_label(view_.ops[d.expected])) d.earliest = earliest_place(with, place, 1);
  }

  // Does the call belong to its step, by other steps of the group? Empty = they do not tell.
  std::optional<bool> by_other_steps(const CommCalls& calls, int maker, Divergence& d) const {
    std::vector<Strand> strands;
    for (const MemberCalls& member : calls.members)
      if (!member.calls.empty()) strands.push_back(strand_of(index_, member));
    const Steps steps(index_, strands);
    const uint64_t n = steps.first_difference(d.seq);
    const Precedent precedent = steps.precedent(n);
    if (!precedent.known()) return std::nullopt;
    d.support.observations = precedent.seen;
    d.support.against = precedent.against;
    bool makes = false, lacks = false;
    for (const Strand& strand : strands) {
      const bool accused = std::binary_search(d.ranks.begin(), d.ranks.end(), strand.rank);
      if (strand.rank == maker) makes = steps.conforms(precedent, strand, n);
      if (accused && strand.at(n) != 0) lacks = lacks || steps.conforms(precedent, strand, n);
    }
    if (makes == lacks && makes) return std::nullopt;
    return makes;
  }

  // The call that came there before carries another label, one that the group used again and again, and this call's
  // own label is new: equal arguments, but not the same call.
  bool other_label(const Strand& with, size_t before, uint64_t seq) const {
    const auto name_of = [&](uint32_t row) { return row == kNoRow ? 0 : view_.ops[row].name; };
    const uint32_t own = name_of(with.op(seq)), usual = name_of(with.ops[before]);
    if (own == 0 || usual == 0 || usual == own) return false;
    const auto used = [&](uint32_t name) {
      return std::count_if(with.ops.begin(), with.ops.end(), [&](uint32_t row) { return name_of(row) == name; });
    };
    return used(usual) > 1 && used(own) == 1;
  }

  void accuse_makers(Divergence& d, const Absence& absence) const {
    d.kind = Divergence::Kind::kExtra;
    d.support.agree = double(d.ranks.size());
    d.ranks = absence.makers;
    std::swap(d.expected, d.actual);
    d.why = "the group made no such call at this place before";
  }

  bool is_stuck(int rank) const { return std::binary_search(stuck_.ranks.begin(), stuck_.ranks.end(), rank); }
  bool exited(int rank) const {
    const RankExitRow* exit = index_.exit_of(rank);
    return exit && (exit->status == 0 || died(*exit));
  }

  // ---- did the rank go past the call?

  bool passed(int rank, uint32_t waiting) {
    return went_on(rank, waiting) || (index_.stalled && ran_behind(rank, waiting));
  }

  // Its program, from its last call of the group on, runs as the waiting rank's did up to the call, and then goes on
  // with something else. Only within one host thread is the order of calls the program's.
  bool went_on(int rank, uint32_t waiting) {
    const OpRow& op = view_.ops[waiting];
    const uint32_t mine = previous(op.rank, op), theirs = previous(rank, op);
    if ((mine == kNoRow) != (theirs == kNoRow)) return false;
    if (mine != kNoRow && view_.ops[mine].thread != op.thread) return false;
    const std::vector<uint32_t>& with = program_of(op.rank, op.thread);
    const std::vector<uint32_t>& without = program_of(rank, theirs == kNoRow ? op.thread : view_.ops[theirs].thread);
    auto i = mine == kNoRow ? with.begin() : std::upper_bound(with.begin(), with.end(), mine);
    auto j = theirs == kNoRow ? without.begin() : std::upper_bound(without.begin(), without.end(), theirs);
    for (; i != with.end() && *i < waiting; ++i, ++j)
      if (j == without.end() || program_digest(index_, *i) != program_digest(index_, *j)) return false;
    // A hop is a receive and a send: a rank that made one of the two may be about to make the other.
    return std::distance(j, without.end()) >= (op.p2p == kNoRow ? 1 : 2);
  }
  // The rank's operation in front of this call, in the same group (or channel of the ring).
  uint32_t previous(int rank, const OpRow& op) const {
    const CommRow* comm = comm_of(index_, op);
    const int at = index_.group_rank(comm->comm, rank);
    if (op.coll == kNoRow || at < 0) return kNoRow;
    const uint64_t seq = view_.colls[op.coll].seq;
    const uint32_t row = seq == 0 ? kNoRow : index_.calls(comm->comm)->members[size_t(at)].calls.at(seq - 1);
    return row == kNoRow ? kNoRow : view_.colls[row].op;
  }
  const std::vector<uint32_t>& program_of(int rank, uint16_t thread) {
    const auto [at, fresh] = programs_.try_emplace({rank, thread});
    if (fresh) at->second = program(index_, rank, thread);
    return at->second;
  }

  // It issued an operation that the waiting rank's host issued only behind the call. Operations of one label are
  // counted, so one that also runs before the call proves nothing.
  bool ran_behind(int rank, uint32_t waiting) {
    const std::unordered_map<uint64_t, int>& made = labels_of(rank);
    std::unordered_map<uint64_t, int> seen;
    const auto [begin, end] = index_.ops_of(view_.ops[waiting].rank);
    for (uint32_t row = begin; row < end; ++row) {
      const OpRow& op = view_.ops[row];
      if (op.thread != view_.ops[waiting].thread || op.name == 0 || op.where == Where{}) continue;
      const int nth = ++seen[label(op)];
      if (row <= waiting) continue;
      const auto found = made.find(label(op));
      if (found != made.end() && found->second >= nth) return true;
    }
    return false;
  }
  const std::unordered_map<uint64_t, int>& labels_of(int rank) {
    const auto [at, fresh] = labels_.try_emplace(rank);
    if (!fresh) return at->second;
    const auto [begin, end] = index_.ops_of(rank);
    for (uint32_t row = begin; row < end; ++row) ++at->second[label(view_.ops[row])];
    return at->second;
  }
  static uint64_t label(const OpRow& op) { return mix(mix(op.where.pack(), op.name), uint64_t(op.kind)); }

  const TraceIndex& index_;
  const TraceView& view_;
  const Stuck& stuck_;
  std::vector<int> idle_;  // ranks with nothing to wait for, that are not known to have ended
  std::map<std::pair<uint32_t, Direction>, std::unordered_map<uint64_t, size_t>> distances_;
  std::map<std::pair<int, uint16_t>, std::vector<uint32_t>> programs_;
  std::unordered_map<int, std::unordered_map<uint64_t, int>> labels_;
};

}  // namespace

std::vector<Divergence> find_missing_tails(const TraceIndex& index, const Stuck& stuck) {
  return Tails(index, stuck).find();
}

Finding tail_finding(const TraceIndex& index, const Divergence& d) {
  const uint32_t row = d.expected != kNoRow ? d.expected : d.actual;
  const OpRow& op = index.view.ops[row];
  if (op.coll != kNoRow) return divergence_finding(index, d);
  Finding f = make_finding("hang.ring_break");
  f.ranks = d.ranks;
  f.group = group_ref(*d.comm);
  f.seq = seq_of(index, op);
  f.op = op_name(index, row);
  f.where = op.where;
  f.first_ns = op.start_ns ? op.start_ns : op.enqueue_ns;
  f.confidence = confidence(d.support);
  if (d.idle) f.severity = Severity::kWarning;
  f.sentence = "ring " + group_text(*f.group) + " is broken at hop " + std::to_string(peer_rank(index, op)) + "->" +
               std::to_string(op.rank) + ": rank " + std::to_string(op.rank) + " waits in " + call_text(index, row) +
               ", #" + std::to_string(*f.seq) + " of this channel, and " + ranks_text(d.ranks) +
               (d.idle ? " has not sent it" : " never sent it");
  f.evidence.push_back(cite(index.view, "p2p", size_t(op.p2p), "rank " + std::to_string(op.rank) + " waits in it"));
  if (d.idle) f.would_raise_confidence = "a second snapshot without progress, or a timeout that fired";
  return f;
}

}  // namespace ringscope
