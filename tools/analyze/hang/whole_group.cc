// Groups whose members all made the mistake of a group beside them: within such a group nothing differs. It came the same way
// to the same place as the group of the mistake, made the call that was found wrong there under the same label, and no other
// step of its own bears it out.
#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/hang.h"
#include "tools/analyze/hang/steps.h"

namespace ringscope {
namespace {

class WholeGroup {
 public:
  WholeGroup(const TraceIndex& index, const CommCalls& calls) : index_(index), calls_(calls) {
    for (const MemberCalls& member : calls.members)
      if (!member.calls.empty()) strands_.push_back(strand_of(index, member));
  }

  // All its members, if they made the mistake; nobody otherwise.
  std::vector<int> made(const Divergence& d, const Strand& accused) const {
    if (strands_.size() != calls_.comm->ranks.size() || calls_.comm->ranks.size() != d.comm->ranks.size()) return {};
    if (group_shape(*calls_.comm) != group_shape(*d.comm)) return {};
    const uint64_t wrong = accused.at(d.seq);
    std::vector<int> ranks;
    for (const Strand& strand : strands_) {
      if (strand.at(d.seq) != wrong || !same_label(index_.view.ops[strand.op(d.seq)], index_.view.ops[d.actual]))
        return {};
      for (uint64_t n = std::max(strand.first, accused.first); n < d.seq; ++n)
        if (strand.at(n) != accused.at(n)) return {};
      ranks.push_back(strand.rank);
    }
    const Precedent precedent = Steps(index_, strands_).precedent(d.seq);
    return precedent.seen > 0 && precedent.call == wrong ? std::vector<int>() : ranks;
  }

 private:
  const TraceIndex& index_;
  const CommCalls& calls_;
  std::vector<Strand> strands_;
};

}  // namespace

void add_whole_groups(const TraceIndex& index, const std::vector<const CommCalls*>& agreeing, Divergence& d) {
  if (d.ranks.empty() || d.actual == kNoRow || d.tail) return;
  const int member = index.group_rank(d.comm->comm, d.ranks[0]);
  if (member < 0) return;
  const Strand accused = strand_of(index, index.calls(d.comm->comm)->members[size_t(member)]);
  std::vector<int> more;
  for (const CommCalls* calls : agreeing) {
    const std::vector<int> ranks = WholeGroup(index, *calls).made(d, accused);
    more.insert(more.end(), ranks.begin(), ranks.end());
  }
  d.ranks.insert(d.ranks.end(), more.begin(), more.end());
  sort_unique(d.ranks);
}

}  // namespace ringscope
