#include "tools/analyze/hang/strand.h"

#include <algorithm>

#include "tools/analyze/hang/calls.h"

namespace ringscope {
namespace {

// One pass a strand, in the order it lies in memory: `reference` holds the first call seen at every number.
uint64_t compare(const std::vector<Strand>& strands, uint64_t first, std::vector<uint64_t>& reference) {
  uint64_t differs = UINT64_MAX;
  for (const Strand& strand : strands)
    for (size_t i = 0; i < strand.calls.size(); ++i) {
      const uint64_t n = strand.first + i;
      if (n >= differs) break;
      if (n < first || strand.calls[i] == 0) continue;
      if (reference.size() <= n - first) reference.resize(size_t(n - first + 1), 0);
      uint64_t& known = reference[size_t(n - first)];
      if (known == 0) known = strand.calls[i];
      else if (known != strand.calls[i]) differs = n;
    }
  return differs;
}

}  // namespace

Strand strand_of(const TraceIndex& index, const MemberCalls& member) {
  Strand strand;
  strand.rank = member.rank;
  strand.first = member.calls.first;
  strand.whole = member.calls.first == 0;
  strand.calls.reserve(member.calls.rows.size());
  strand.ops.reserve(member.calls.rows.size());
  for (uint32_t row : member.calls.rows) {
    strand.calls.push_back(row == kNoRow ? 0 : call_digest(index.view.colls[row]));
    strand.ops.push_back(row == kNoRow ? kNoRow : index.view.colls[row].op);
  }
  return strand;
}

uint64_t first_difference(const std::vector<Strand>& strands) {
  uint64_t first = UINT64_MAX;
  for (const Strand& strand : strands) first = std::min(first, strand.first);
  std::vector<uint64_t> reference;
  return strands.empty() ? UINT64_MAX : compare(strands, first, reference);
}

Agreed agreed_before(const std::vector<Strand>& strands, uint64_t end) {
  Agreed agreed;
  agreed.first = end;
  for (const Strand& strand : strands) {
    agreed.whole = agreed.whole && strand.whole;
    agreed.first = std::min(agreed.first, strand.first);
  }
  compare(strands, agreed.first, agreed.calls);
  agreed.calls.resize(size_t(end - agreed.first), 0);
  return agreed;
}

}  // namespace ringscope
