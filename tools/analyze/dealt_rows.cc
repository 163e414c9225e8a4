#include "tools/analyze/dealt_rows.h"

#include <algorithm>
#include <climits>
#include <set>
#include <tuple>

namespace ringscope {
namespace {

// Do the members hold parts of the same samples, no row twice? Members that recorded nothing say nothing.
bool splits(const CommRow& comm, const DealtRows& rows) {
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t, int>> runs;  // sample, begin, end, rank
  std::map<uint32_t, std::set<int>> holders;                        // by sample
  size_t members = 0;
  for (int rank : comm.ranks) {
    const auto held = rows.find(rank);
    if (held == rows.end()) continue;
    ++members;
    for (const DealtRun& run : held->second) {
      runs.emplace_back(run.sample, run.start, uint64_t(run.start) + run.count, rank);
      holders[run.sample].insert(rank);
    }
  }
  if (members < 2) return false;
  for (const auto& [sample, ranks] : holders)
    if (ranks.size() < members) return false;
  std::sort(runs.begin(), runs.end());
  for (size_t i = 1; i < runs.size(); ++i)
    if (std::get<0>(runs[i]) == std::get<0>(runs[i - 1]) && std::get<1>(runs[i]) < std::get<2>(runs[i - 1]))
      return false;
  return true;
}

}  // namespace

DealtRows dealt_rows(const TraceView& view) {
  int first = INT_MAX;
  for (const PositionRunRow& run : view.position_runs)
    if (run.role == PositionRole::kData) first = std::min(first, int(run.where.step));
  DealtRows rows;
  for (const PositionRunRow& run : view.position_runs)
    if (run.role == PositionRole::kData && run.where.step == first)
      rows[run.rank].push_back({run.sample, run.token_start, run.count});
  return rows;
}

Axis sequence_axis(const TraceView& view, const DealtRows& rows) {
  std::map<Axis, bool> all;  // do all groups of this label split sequences?
  for (const CommRow& comm : view.comms) {
    if (comm.axis == Axis::kUnknown || comm.ranks.size() < 2) continue;
    bool& so_far = all.try_emplace(comm.axis, true).first->second;
    so_far = so_far && splits(comm, rows);
  }
  const auto labelled = all.find(Axis::kCp);
  if (rows.empty() || labelled == all.end() || labelled->second) return Axis::kCp;
  // A ring of blocks over these groups: the label is right, and the loader dealt wrongly.
  std::set<uint32_t> cp;
  for (const CommRow& comm : view.comms)
    if (comm.axis == Axis::kCp) cp.insert(comm.comm);
  for (const P2pRow& p2p : view.p2ps)
    if (cp.contains(p2p.comm)) return Axis::kCp;
  const auto splitting = [](const auto& axis) { return axis.second; };
  if (std::count_if(all.begin(), all.end(), splitting) != 1) return Axis::kCp;
  return std::find_if(all.begin(), all.end(), splitting)->first;
}

}  // namespace ringscope
