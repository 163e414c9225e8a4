// First divergence of a group's collectives: its members' calls are compared position by position, as NCCL matches
// them.
#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/camps.h"

namespace ringscope {
namespace {

std::vector<Strand> strands_of(const TraceIndex& index, const CommCalls& calls) {
  std::vector<Strand> strands;
  for (const MemberCalls& member : calls.members)
    if (!member.calls.empty()) strands.push_back(strand_of(index, member));
  return strands;
}

}  // namespace

std::vector<Divergence> find_divergences(const TraceIndex& index) {
  std::vector<uint64_t> differs;  // by comm
  bool any = false;
  for (const CommCalls& calls : index.comms) {
    differs.push_back(first_difference(strands_of(index, calls)));
    any = any || differs.back() != UINT64_MAX;
  }
  std::vector<Divergence> found;
  if (!any) return found;
  Witnesses witnesses;
  for (size_t i = 0; i < index.comms.size(); ++i) {
    const std::vector<Strand> strands = strands_of(index, index.comms[i]);
    uint64_t end = differs[i];
    if (end == UINT64_MAX) {
      end = 0;
      for (const Strand& strand : strands) end = std::max(end, strand.end());
    }
    if (strands.size() < 2) continue;
    Agreed agreed = agreed_before(strands, end);
    agreed.shape = group_shape(*index.comms[i].comm);
    witnesses.add(std::move(agreed));
  }
  std::vector<const CommCalls*> agreeing;
  for (size_t i = 0; i < index.comms.size(); ++i)
    if (differs[i] == UINT64_MAX) agreeing.push_back(&index.comms[i]);
  for (size_t i = 0; i < index.comms.size(); ++i) {
    if (differs[i] == UINT64_MAX) continue;
    const CommCalls& calls = index.comms[i];
    for (Divergence& d :
         explain(index, *calls.comm, calls.members.size(), strands_of(index, calls), differs[i], witnesses)) {
      add_whole_groups(index, agreeing, d);
      found.push_back(std::move(d));
    }
  }
  return found;
}

}  // namespace ringscope
