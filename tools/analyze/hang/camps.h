// Who is right where the members of a group differ. The rules, in FINDINGS.md's order:
//   a call that only some made: the period of the sequence decides, majority or not, then the majority;
//   another call: the majority, then other groups at this place, then the period;
//   then labels, which only break ties. Two camps that nothing tells apart are shown, and nobody is accused.
#pragma once

#include <memory>
#include <unordered_map>

#include "tools/analyze/hang/hang.h"
#include "tools/analyze/hang/strand.h"
#include "tools/analyze/hang/usage.h"

namespace ringscope {

// What other groups did at the same place: groups with the same past up to a number, whose members agree there. A
// group that is split itself bears no witness, so copies of one mistake do not confirm each other.
class Witnesses {
 public:
  void add(Agreed agreed) { groups_.push_back(std::move(agreed)); }
  const Usage& usage(const TraceIndex& index) const {
    if (!usage_) usage_ = std::make_unique<Usage>(index);
    return *usage_;
  }
  // Groups that went on with each call, behind this past at this number.
  const std::unordered_map<uint64_t, int>& next(const Agreed& past) const;

 private:
  mutable std::unique_ptr<Usage> usage_;
  std::vector<Agreed> groups_;
  mutable std::unordered_map<uint64_t, std::unordered_map<uint64_t, std::unordered_map<uint64_t, int>>> votes_;
};

// The divergences of one group at number n, the first at which its strands differ. `members` counts those of the group,
// seen or not.
std::vector<Divergence> explain(const TraceIndex&, const CommRow&, size_t members, const std::vector<Strand>&,
                                uint64_t n, const Witnesses&);

}  // namespace ringscope
