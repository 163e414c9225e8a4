#include "tools/analyze/hang/camps.h"

#include <algorithm>
#include <utility>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/history.h"
#include "tools/analyze/hang/labels.h"
#include "tools/analyze/hang/steps.h"

namespace ringscope {
namespace {

constexpr int64_t kLook = 256;  // calls that are compared behind an edit
// An edit may take so many more calls than agree behind it: the host may be blocked there.
constexpr int64_t kLeast = 8;
constexpr int64_t kOpen = 4;        // what calls that an edit leaves unexplained count against it at most
constexpr size_t kLittlePast = 2;   // the same, where one camp made a call more: of one call alone, many are equal
constexpr size_t kTellingPast = 3;  // calls of the past that must be equal for it to outweigh a majority
constexpr uint64_t kPast = 32;      // calls of the past in which another group must be equal to bear witness

struct Edit {
  Divergence::Kind kind = Divergence::Kind::kOther;
  uint64_t length = 1;
  bool swapped = false;  // the replaced calls are those of the other, in another order
};

struct Camp {
  uint64_t call = 0;
  std::vector<const Strand*> members;
};

struct Ruling {
  int right = -1;           // camp
  double others = 0;        // groups that did the same
  double observations = 1;  // of the rule that was broken
  double against = 0;
  std::string why;
};

uint64_t past_key(const Agreed& past, uint64_t n) {
  uint64_t h = n == past.first ? past.shape : 1;
  for (uint64_t i = n - std::min(kPast, n - past.first); i < n; ++i) h = mix(h, past.calls[size_t(i - past.first)]);
  return h;
}

const Agreed& of_shape(Agreed& agreed, const CommRow& comm) {
  agreed.shape = group_shape(comm);
  return agreed;
}

class Split {
 public:
  Split(const TraceIndex& index, const CommRow& comm, size_t members, const std::vector<Strand>& strands, uint64_t n,
        const Witnesses& witnesses)
      : index_(index), comm_(comm), size_(members), strands_(strands), n_(n), past_(agreed_before(strands, n)),
        history_(continuation(past_.calls, past_.whole)), steps_(index, strands), place_(steps_.first_difference(n)),
        precedent_(steps_.precedent(place_)), witnesses_(witnesses.next(of_shape(past_, comm))),
        all_witnesses_(witnesses) {
    std::unordered_map<uint64_t, size_t> known;
    for (const Strand& strand : strands) {
      const uint64_t call = strand.at(n);
      if (call == 0) continue;
      const auto [at, fresh] = known.try_emplace(call, camps_.size());
      if (fresh) camps_.push_back({call, {}});
      camps_[at->second].members.push_back(&strand);
      ++voters_;
    }
    std::stable_sort(camps_.begin(), camps_.end(),
                     [](const Camp& x, const Camp& y) { return x.members.size() > y.members.size(); });
  }

  std::vector<Divergence> divergences() const {
    const Edit between = camps_.size() == 2 ? edit(*camps_[0].members[0], *camps_[1].members[0]) : Edit{};
    std::vector<Divergence> found;
    if (precedent_.known() && nobody_conforms()) {
      if (std::all_of(camps_.begin(), camps_.end(), [&](const Camp& camp) { return whole(camp); }))
        found.push_back(all_departed());
      return found;
    }
    const Ruling ruling = decide(between);
    if (ruling.right < 0) {
      if (whole(camps_[0]) && whole(camps_[1])) found.push_back(both_shown(between));
      return found;
    }
    const Camp& right = camps_[size_t(ruling.right)];
    for (const Camp& camp : camps_)
      if (&camp != &right && whole(camp)) found.push_back(depart(right, camp, ruling));
    return found;
  }

 private:
  // A call of a strand, or, behind its end, what the past says would have come: the host may be blocked there, unless the
  // rank came to its end.
  uint64_t call(const Strand& strand, uint64_t n) const {
    if (n < strand.end()) return strand.at(n);
    if (ended(strand)) return 0;
    if (precedent_.known() && place_ == n_ && precedent_.at < n_) {
      const uint64_t like = precedent_.at + (n - n_);
      return steps_.conforms(precedent_, strand, n_) && like < n_ ? precedent_.strand->at(like) : 0;
    }
    const bool conforms = history_.next != 0 && strand.at(n_) == history_.next;
    const uint64_t at = history_.at + (n - n_);
    return conforms && at < past_.calls.size() ? past_.calls[size_t(at)] : 0;
  }

  bool ended(const Strand& strand) const {
    const RankExitRow* exit = index_.exit_of(strand.rank);
    return exit && exit->status == 0;
  }

  // How b departs from a at n: what was left out of b, put into b, or replaced. The edit that explains most: calls that
  // agree behind it, less those that it takes and those that differ again behind what agrees; of equal ones the one that also
  // explains the lengths.
  Edit edit(const Strand& a, const Strand& b) const {
    const int64_t longer = int64_t(a.end()) - int64_t(b.end());
    Edit best;
    std::pair<int64_t, bool> best_score{-kLeast, false};
    const bool over = ended(a) && ended(b);  // then one that goes on is not explained either
    const auto left = [](const Strand& of, uint64_t from) { return int64_t(of.end() - std::min(of.end(), from)); };
    const auto offer = [&](Divergence::Kind kind, uint64_t length, uint64_t i, uint64_t j, int64_t explains) {
      int64_t agreed = 0;
      while (agreed < kLook + int64_t(length) && call(a, i + uint64_t(agreed)) != 0 &&
             call(a, i + uint64_t(agreed)) == call(b, j + uint64_t(agreed)))
        ++agreed;
      // Two neighbours exchanged are one mistake, as one call left out is.
      const bool exchanged = kind == Divergence::Kind::kOther && length == 2 && permuted(a, b, 2);
      const int64_t of_a = left(a, i + uint64_t(agreed)), of_b = left(b, j + uint64_t(agreed));
      const int64_t open = std::min(over ? std::max(of_a, of_b) : std::min(of_a, of_b), kOpen);
      const std::pair<int64_t, bool> score{agreed - int64_t(exchanged ? 1 : length) - open, explains == longer};
      const bool at_the_end = exchanged && left(a, i) == 0 && left(b, j) == 0;
      if ((agreed > 0 || at_the_end) && score > best_score) best = {kind, length, false}, best_score = score;
    };
    // A score below -kLeast is none, so an edit is no longer than what can agree behind it and that.
    const uint64_t longest = std::max(a.end(), b.end()) - n_ + uint64_t(kLeast);
    for (uint64_t k = 1; k <= longest; ++k) {
      offer(Divergence::Kind::kMissing, k, n_ + k, n_, int64_t(k));
      offer(Divergence::Kind::kExtra, k, n_, n_ + k, -int64_t(k));
      offer(Divergence::Kind::kOther, k, n_ + k, n_ + k, 0);
    }
    if (best_score.first == -kLeast)
      if (const uint64_t skipped = skipped_by_label(b)) best = {Divergence::Kind::kMissing, skipped, false};
    best.swapped = best.kind == Divergence::Kind::kOther && permuted(a, b, best.length);
    return best;
  }

  // How many calls of the step b left out, if its call here is one that the precedent makes later in the step: the same call
  // under the same label. 0 = it is not.
  uint64_t skipped_by_label(const Strand& b) const {
    const uint32_t row = b.op(n_);
    if (!precedent_.known() || place_ != n_ || row == kNoRow || index_.view.ops[row].name == 0) return 0;
    const OpRow& here = index_.view.ops[row];
    for (uint64_t k = 1; precedent_.strand->op(precedent_.at + k) != kNoRow; ++k) {
      const OpRow& later = index_.view.ops[precedent_.strand->op(precedent_.at + k)];
      Where place = later.where;
      if (place.step != index_.view.ops[precedent_.strand->op(precedent_.at)].where.step) return 0;
      place.step = here.where.step;
      if (later.name == here.name && place == here.where && precedent_.strand->at(precedent_.at + k) == b.at(n_))
        return k;
    }
    return 0;
  }

  bool permuted(const Strand& a, const Strand& b, uint64_t length) const {
    std::vector<uint64_t> x, y;
    for (uint64_t i = n_; i < n_ + length; ++i) x.push_back(a.at(i)), y.push_back(b.at(i));
    std::sort(x.begin(), x.end());
    std::sort(y.begin(), y.end());
    return length > 1 && x == y && x.front() != 0;
  }

  Ruling decide(const Edit& between) const {
    if (const int camp = by_precedent(); camp >= 0)
      return {
          camp, votes(camp), double(precedent_.seen), double(precedent_.against),
          "the group did so in " + std::to_string(precedent_.seen) + " other step" + (precedent_.seen == 1 ? "" : "s")};
    const bool some_only = camps_.size() == 2 && between.kind != Divergence::Kind::kOther;
    // Of the whole group: members that the trace lacks could have voted otherwise.
    const bool majority = camps_[0].members.size() * 2 > std::max(size_, voters_);
    const int past = tells() ? camp_of(history_.next) : -1;
    // Groups that lie alike and came the same way to this place know more of it than an earlier place of this group.
    if (const int camp = only_witnesses(); camp >= 0 && past >= 0 && camp != past) return by_witnesses(camp, past);
    // Another call that the whole group's past shows at this place outweighs what most do now: a mistake in the code of
    // most ranks is no majority for itself.
    if (past >= 0 && history_.context >= (some_only ? kLittlePast : kTellingPast)) return by_past(past);
    if (const int camp = some_only ? -1 : by_usage(); camp >= 0)
      return {camp, 0, 1, 0, "its label is used for this call elsewhere"};
    if (majority) return by_majority(past);
    if (const int camp = most_witnesses(); camp >= 0) return by_witnesses(camp, past);
    const int camp = camps_.size() != 2 ? -1 : some_only ? by_label(between) : by_use();
    if (past >= 0 && !(some_only && camp >= 0)) return by_past(past);
    if (camp >= 0)
      return {camp, 0, 1, 0,
              some_only ? "its labels tell which call is the one more" : "the group uses this call elsewhere"};
    return {};
  }

  // The one camp that goes on as other steps did.
  int by_precedent() const {
    if (!precedent_.known()) return -1;
    int found = -1;
    for (size_t i = 0; i < camps_.size(); ++i) {
      const auto& members = camps_[i].members;
      const auto conforming = std::count_if(members.begin(), members.end(), [&](const Strand* strand) {
        return steps_.conforms(precedent_, *strand, place_);
      });
      if (conforming == 0) continue;
      if (found >= 0 || conforming != std::ssize(members)) return -1;
      found = int(i);
    }
    return found;
  }

  // Every member called another function here than the group does in other steps, and not all with the same arguments.
  // (Another count alone may be the step's own.)
  bool nobody_conforms() const {
    if (place_ != n_ || precedent_.call == 0) return false;
    const auto function = [&](uint32_t op) {
      const uint32_t coll = op == kNoRow ? kNoRow : index_.view.ops[op].coll;
      return coll == kNoRow ? CollFunc::kUnknown : index_.view.colls[coll].func;
    };
    const CollFunc usual = function(precedent_.strand->op(precedent_.at));
    return usual != CollFunc::kUnknown && std::all_of(camps_.begin(), camps_.end(), [&](const Camp& camp) {
             const CollFunc now = function(camp.members[0]->op(n_));
             return now != usual && now != CollFunc::kUnknown;
           });
  }

  bool tells() const {
    uint32_t then = kNoRow, now = kNoRow;
    for (const Strand& strand : strands_) {
      if (then == kNoRow) then = strand.op(past_.first + history_.at);
      if (now == kNoRow || strand.at(n_) == history_.next) now = strand.op(n_) == kNoRow ? now : strand.op(n_);
    }
    return from_earlier_step(index_, then, now, history_);
  }

  Ruling by_past(int camp) const {
    const double size = double(camps_[size_t(camp)].members.size());
    return {
        camp, votes(camp), double(history_.seen) + (2 * size > double(voters_)),
        std::max(0.0, double(voters_) - 2 * size) + history_.against,
        "the group did so " + std::to_string(history_.seen) + (history_.seen == 1 ? " time" : " times") + " before"};
  }
  Ruling by_majority(int past) const {
    const size_t size = camps_[0].members.size();
    return {0, votes(0), double(1 + (past == 0 ? history_.seen : 0)), double(past > 0),
            std::to_string(size) + " of " + std::to_string(voters_) + " members agree"};
  }

  int camp_of(uint64_t call) const {
    for (size_t i = 0; call != 0 && i < camps_.size(); ++i)
      if (camps_[i].call == call) return int(i);
    return -1;
  }
  double votes(int camp) const {
    const auto found = witnesses_.find(camps_[size_t(camp)].call);
    return found == witnesses_.end() ? 0 : found->second;
  }
  Ruling by_witnesses(int camp, int past) const {
    return {camp, votes(camp), double(1 + history_.seen * (camp == past)), double(past >= 0 && camp != past),
            "other groups did so at this place"};
  }
  // The camp that every other group bears out; -1 = they differ, or there are none.
  int only_witnesses() const { return witnesses_.size() == 1 ? camp_of(witnesses_.begin()->first) : -1; }
  int most_witnesses() const {
    int best = -1;
    bool tie = false;
    for (size_t i = 0; i < camps_.size(); ++i) {
      if (votes(int(i)) == 0) continue;
      tie = best >= 0 && votes(int(i)) == votes(best);
      if (best < 0 || votes(int(i)) > votes(best)) best = int(i);
    }
    return tie ? -1 : best;
  }

  // Another call under the label of this one: the one for which the job uses the label elsewhere, if it is no other's.
  int by_usage() const {
    int conforms = -1;
    for (size_t i = 0; i < camps_.size(); ++i) {
      const uint32_t row = camps_[i].members[0]->op(n_);
      if (row == kNoRow) return -1;
      const Usage::Elsewhere elsewhere = all_witnesses_.usage(index_).elsewhere(row);
      if (elsewhere.same > elsewhere.other) {
        if (conforms >= 0) return -1;
        conforms = int(i);
      } else if (elsewhere.other == 0 || elsewhere.same > 0) {
        return -1;
      }
    }
    return conforms;
  }

  // Another call: the one that the group makes elsewhere is the right one, if the other is made nowhere else.
  int by_use() const {
    size_t uses[2] = {};
    for (const Strand& strand : strands_)
      for (uint64_t n = strand.first; n < strand.end(); ++n)
        for (int i = 0; i < 2; ++i) uses[i] += n != n_ && strand.at(n) == camps_[size_t(i)].call;
    return (uses[0] > 0) == (uses[1] > 0) ? -1 : uses[0] > 0 ? 0 : 1;
  }

  // A call that only one camp made, by its label.
  int by_label(const Edit& between) const {
    const int maker = between.kind == Divergence::Kind::kMissing ? 0 : 1;
    const Strand &with = *camps_[size_t(maker)].members[0], &without = *camps_[size_t(1 - maker)].members[0];
    const auto belongs = belongs_by_label(index_, with, place_by_label(index_, with, without, n_));
    return !belongs ? -1 : *belongs ? maker : 1 - maker;
  }

  // A loss around the place may have been the call itself.
  bool whole(const Camp& camp) const {
    for (const Strand* strand : camp.members) {
      const uint64_t from = !strand->counted ? n_ - 1 : strand->first;
      if (!index_.lossless(strand->rank, time(*strand, from), time(*strand, n_))) return false;
    }
    return true;
  }
  int64_t time(const Strand& strand, uint64_t n) const {
    const uint32_t row = strand.op(n);
    return row == kNoRow ? 0 : index_.view.ops[row].enqueue_ns;
  }

  Divergence depart(const Camp& right, const Camp& camp, const Ruling& ruling) const {
    const Strand &a = *right.members[0], &b = *camp.members[0];
    const Edit how = edit(a, b);
    Divergence d;
    d.kind = how.kind;
    d.swapped = how.swapped;
    d.comm = &comm_;
    d.length = how.length;
    d.seq = d.earliest = n_;
    if (how.kind != Divergence::Kind::kOther) {
      const Strand& with = how.kind == Divergence::Kind::kMissing ? a : b;
      d.seq = d.earliest = place_by_label(index_, with, &with == &a ? b : a, n_);
      const uint32_t row = with.op(d.seq);
      if (row == kNoRow || !has_label(index_.view.ops[row])) d.earliest = earliest_place(with, d.seq, how.length);
    }
    for (const Strand* strand : camp.members) d.ranks.push_back(strand->rank);
    sort_unique(d.ranks);
    d.expected = a.op(d.seq);
    d.actual = b.op(d.seq);
    d.support = {double(voters_) / double(std::max(size_, voters_)), double(right.members.size()) + ruling.others,
                 ruling.against, ruling.observations};
    d.why = ruling.why;
    return d;
  }

  Divergence all_departed() const {
    Divergence d;
    d.kind = Divergence::Kind::kOther;
    d.comm = &comm_;
    d.seq = d.earliest = n_;
    for (const Camp& camp : camps_)
      for (const Strand* strand : camp.members) d.ranks.push_back(strand->rank);
    sort_unique(d.ranks);
    d.expected = precedent_.strand->op(precedent_.at);
    d.actual = camps_[0].members[0]->op(n_);
    d.support = {double(voters_) / double(std::max(size_, voters_)), double(precedent_.seen),
                 double(precedent_.against), double(precedent_.seen)};
    d.why = "the group did so in " + std::to_string(precedent_.seen) + " other step" +
            (precedent_.seen == 1 ? "" : "s") + ", and now no two camps of it agree";
    return d;
  }

  Divergence both_shown(const Edit& between) const {
    Divergence d;
    d.kind = Divergence::Kind::kOther;
    d.swapped = between.swapped;
    d.comm = &comm_;
    d.seq = d.earliest = n_;
    d.expected = camps_[0].members[0]->op(n_);
    d.actual = camps_[1].members[0]->op(n_);
    d.support = {double(voters_) / double(std::max(size_, voters_)), double(camps_[0].members.size()),
                 double(voters_ - camps_[0].members.size()), 0};
    return d;
  }

  const TraceIndex& index_;
  const CommRow& comm_;
  size_t size_;
  const std::vector<Strand>& strands_;
  uint64_t n_;
  Agreed past_;
  Continuation history_;
  Steps steps_;
  uint64_t place_;
  Precedent precedent_;
  const std::unordered_map<uint64_t, int>& witnesses_;
  const Witnesses& all_witnesses_;
  std::vector<Camp> camps_;
  size_t voters_ = 0;
};

}  // namespace

const std::unordered_map<uint64_t, int>& Witnesses::next(const Agreed& past) const {
  static const std::unordered_map<uint64_t, int> nobody;
  const uint64_t n = past.end();
  if (n == past.first && !past.whole) return nobody;
  const auto [at, fresh] = votes_.try_emplace(n);
  if (fresh)
    for (const Agreed& group : groups_)
      // The beginning of a whole sequence is a past as well, among groups that lie alike.
      if ((n > group.first || (n == group.first && group.whole)) && n < group.end() &&
          group.calls[size_t(n - group.first)] != 0)
        ++at->second[past_key(group, n)][group.calls[size_t(n - group.first)]];
  const auto found = at->second.find(past_key(past, n));
  return found == at->second.end() ? nobody : found->second;
}

std::vector<Divergence> explain(const TraceIndex& index, const CommRow& comm, size_t members,
                                const std::vector<Strand>& strands, uint64_t n, const Witnesses& witnesses) {
  return Split(index, comm, members, strands, n, witnesses).divergences();
}

}  // namespace ringscope
