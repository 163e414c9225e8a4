// The hang and ring families together: roots, and what follows from them. Every rank blocks once, so what departed
// first explains all that comes later: a difference between the calls of a group before a circle of waits (whose groups
// must agree), both before a call that is absent at the end of the trace.
#include <algorithm>

#include "tools/analyze/hang/hang.h"
#include "tools/analyze/ring/ring.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

bool shares_member(const CommRow& comm, const std::vector<int>& ranks) {
  return std::any_of(comm.ranks.begin(), comm.ranks.end(),
                     [&](int rank) { return std::binary_search(ranks.begin(), ranks.end(), rank); });
}

class Diagnosis {
 public:
  explicit Diagnosis(const TraceIndex& index) : index_(index) {}

  std::vector<Finding> run() {
    const std::vector<Death> deaths = find_deaths(index_);
    roots_ = comm_init_mismatches(index_);
    if (roots_.empty()) compare_calls();
    if (roots_.empty())
      if (auto hop = unequal_hops(index_)) roots_.push_back(std::move(*hop));
    for (const Death& death : deaths)
      if (!death.follows && !explained(death)) add_death(death.finding);
    const auto outcome = index_.view.meta.find(meta_key::kOutcome);
    const bool completed = outcome != index_.view.meta.end() && outcome->second == "completed";
    if (roots_.empty() && !completed) look_at_the_end();
    for (Finding& f : roots_) set_waiting(f);
    for (const Death& death : deaths)
      if (!roots_.empty() && (death.follows || explained(death))) follow(death.finding);
    for (Finding& f : followers_) roots_.push_back(std::move(f));
    return std::move(roots_);
  }

 private:
  // Groups and rings whose members' calls differ. One accused rank departs once: the earlier difference is kept.
  void compare_calls() {
    std::vector<RingFault> rings = merge(find_ring_faults(index_));
    std::vector<Finding> calls;
    for (const Divergence& d : merge_divergences(index_, find_divergences(index_))) {
      Finding f = divergence_finding(index_, d);
      const bool follows = std::any_of(rings.begin(), rings.end(), [&](const RingFault& ring) {
        return shares_member(*d.comm, ring.ranks) && time_of(ring) < f.first_ns;
      });
      if (!follows) calls.push_back(std::move(f));
    }
    std::erase_if(rings, [&](const RingFault& ring) {
      return std::any_of(calls.begin(), calls.end(), [&](const Finding& f) {
        return shares_member(*ring.comm, f.ranks) && f.first_ns < time_of(ring);
      });
    });
    for (Finding& f : calls) roots_.push_back(std::move(f));
    for (const RingFault& ring : rings) add_ring(ring);
  }

  // Ranks that ended alike at one place of the program made one mistake.
  void add_death(const Finding& death) {
    for (Finding& f : roots_) {
      const bool alike = f.id == death.id && end_of(f) == end_of(death) && f.where == death.where;
      if (!alike) continue;
      f.ranks.insert(f.ranks.end(), death.ranks.begin(), death.ranks.end());
      sort_unique(f.ranks);
      f.evidence.insert(f.evidence.end(), death.evidence.begin(), death.evidence.end());
      f.first_ns = std::min(f.first_ns, death.first_ns);
      f.sentence += "; so did rank " + std::to_string(death.ranks[0]);
      return;
    }
    roots_.push_back(death);
  }
  std::pair<int64_t, std::string> end_of(const Finding& death) const {
    const RankExitRow* exit = index_.exit_of(death.ranks[0]);
    return exit ? std::pair(exit->status, exit->reason) : std::pair(int64_t(-2), std::string());
  }

  int64_t time_of(const RingFault& ring) const {
    return index_.view.ops[ring.more ? ring.first.actual : ring.first.expected].enqueue_ns;
  }

  // Rings whose ranks made the same mistake at the same place: one mistake.
  static std::vector<RingFault> merge(std::vector<RingFault> faults) {
    std::vector<RingFault> merged;
    for (RingFault& fault : faults) {
      const auto same = std::find_if(merged.begin(), merged.end(), [&](const RingFault& known) {
        return known.kind == fault.kind && known.more == fault.more && known.first.seq == fault.first.seq &&
               known.where == fault.where && known.comm->ranks.size() == fault.comm->ranks.size();
      });
      if (same == merged.end()) {
        merged.push_back(std::move(fault));
        continue;
      }
      same->ranks.insert(same->ranks.end(), fault.ranks.begin(), fault.ranks.end());
      sort_unique(same->ranks);
      same->hops.insert(same->hops.end(), fault.hops.begin(), fault.hops.end());
      same->unfinished = same->unfinished || fault.unfinished;
    }
    return merged;
  }

  // A ring that came to a stop is a hang; one that went on with blocks of the wrong hop is wrong in its numbers.
  void add_ring(const RingFault& ring) {
    if (ring.kind == RingFault::Kind::kNeighbour) {
      roots_.push_back(wrong_neighbour_finding(index_, ring));
      return;
    }
    if (ring.kind == RingFault::Kind::kSize) {
      roots_.push_back(hop_size_finding(index_, ring));
      return;
    }
    Finding count = step_count_finding(index_, ring);
    if (!index_.stalled && (index_.ended || !ring.unfinished)) {
      roots_.push_back(std::move(count));
      return;
    }
    roots_.push_back(ring_break_finding(index_, ring));
    count.root = false;
    count.caused_by = int(roots_.size() - 1);
    followers_.push_back(std::move(count));
  }

  void look_at_the_end() {
    const Stuck stuck = replay(index_);
    roots_ = cross_group_cycles(index_, stuck);
    if (roots_.empty()) roots_ = p2p_cycles(index_, stuck);
    if (!roots_.empty()) return;
    const std::vector<int> silent = silent_hosts(index_, stuck);
    for (const Divergence& d : merge_divergences(index_, find_missing_tails(index_, stuck)))
      roots_.push_back(tail_finding(index_, d));
    add_silent_hosts(silent);
    if (roots_.empty() && index_.stalled) roots_ = p2p_cycles(index_, replay(index_, Sends::kMeets));
    if (roots_.empty() && (index_.stalled || undetermined(stuck))) roots_.push_back(undecided(index_, stuck));
  }

  // Hosts that stopped issuing are one mistake, whichever of them the others came to miss first.
  void add_silent_hosts(const std::vector<int>& silent) {
    if (silent.empty()) return;
    std::erase_if(roots_, [&](const Finding& f) {
      return f.ranks.empty() || !std::includes(silent.begin(), silent.end(), f.ranks.begin(), f.ranks.end());
    });
    if (roots_.empty()) {
      roots_.push_back(silent_finding(index_, silent));
      return;
    }
    roots_.resize(1);
    roots_[0].sentence += "; " + silent_text(index_, silent);
    roots_[0].ranks = silent;
  }

  // Operations are open, and nothing says how it ended. A picture of a running job is such a trace: if several of its
  // ranks have nothing to wait for, the job runs. A run of ours that was killed says so elsewhere: its end is missing.
  bool undetermined(const Stuck& stuck) const {
    const auto& meta = index_.view.meta;
    if (index_.ended || meta.contains(meta_key::kToolVersion) || stuck.pending.empty()) return false;
    return !meta.contains(meta_key::kSnapshot) || index_.ranks().size() < stuck.ranks.size() + 2;
  }

  // A rank that died behind what it, or its group, did wrong before.
  bool explained(const Death& death) const {
    return std::any_of(roots_.begin(), roots_.end(), [&](const Finding& f) {
      return f.id != "hang.dead_rank" && f.id != "hang.undecided" &&
             std::find(f.ranks.begin(), f.ranks.end(), death.finding.ranks[0]) != f.ranks.end();
    });
  }
  void follow(Finding f) {
    f.root = false;
    f.caused_by = 0;
    followers_.push_back(std::move(f));
  }

  // Everything that is blocked and not accused waits for the root.
  void set_waiting(Finding& f) const {
    f.waiting.clear();
    for (int rank : index_.blocked())
      if (!std::binary_search(f.ranks.begin(), f.ranks.end(), rank)) f.waiting.push_back(rank);
  }

  const TraceIndex& index_;
  std::vector<Finding> roots_, followers_;
};

}  // namespace

std::vector<Finding> hang_and_ring(const TraceIndex& index) { return Diagnosis(index).run(); }

}  // namespace ringscope
