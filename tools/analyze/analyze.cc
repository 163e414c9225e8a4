#include "tools/analyze/analyze.h"

#include <algorithm>
#include <numeric>

#include "tools/analyze/rules.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {
namespace {

using Findings = std::vector<Finding>;

void append(Findings& to, Findings from) {
  for (Finding& f : from) to.push_back(std::move(f));
}

// Findings in data that a hang or ring root had already corrupted follow from it.
void demote(Findings& found, size_t roots, Findings data) {
  int cause = -1;
  for (size_t i = 0; i < roots; ++i) {
    if (!found[i].root || found[i].id == "hang.undecided" || found[i].where.step < 0) continue;
    if (cause < 0 || earlier(found[i].where, found[size_t(cause)].where)) cause = int(i);
  }
  for (Finding& f : data) {
    if (cause >= 0 && !earlier(f.where, found[size_t(cause)].where)) {
      f.root = false;
      f.caused_by = cause;
    }
    found.push_back(std::move(f));
  }
}

void sort_findings(Findings& found) {
  std::vector<int> order(found.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int x, int y) {
    const Finding &a = found[size_t(x)], &b = found[size_t(y)];
    if (a.root != b.root) return a.root;
    if (a.severity != b.severity) return a.severity > b.severity;
    if (a.first_ns != b.first_ns) return a.first_ns < b.first_ns;
    return a.confidence > b.confidence;
  });
  std::vector<int> place(found.size());
  Findings sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    place[size_t(order[i])] = int(i);
    sorted.push_back(std::move(found[size_t(order[i])]));
  }
  for (Finding& f : sorted)
    if (f.caused_by) f.caused_by = place[size_t(*f.caused_by)];
  found = std::move(sorted);
}

// A run of ours that did not come to its end by itself: what is behind that is not recorded.
std::string missing_end(const TraceView& view) {
  if (!view.meta.contains(meta_key::kToolVersion)) return "";
  const auto outcome = view.meta.find(meta_key::kOutcome);
  if (outcome != view.meta.end() && outcome->second != "interrupted") return "";
  int last = -1;
  for (const TrainStepRow& row : view.train_steps) last = std::max(last, int(row.where.step));
  return std::string("the end of the run: it was ") +
         (outcome == view.meta.end() ? "killed or still runs" : "interrupted") +
         (last >= 0 ? " after step " + std::to_string(last) : " before its first step ended");
}

std::vector<std::string> missing_evidence(const TraceIndex& index) {
  std::vector<std::string> missing;
  const TraceView& view = index.view;
  std::set<int> seen;
  for (const RankRow& row : view.ranks) seen.insert(row.rank);
  for (const OpRow& op : view.ops) seen.insert(op.rank);
  std::vector<int> absent;
  const auto world = view.meta.find(meta_key::kWorldSize);
  const int size = world == view.meta.end() ? 0 : std::atoi(world->second.c_str());
  for (int rank = 0; rank < size; ++rank)
    if (!seen.contains(rank)) absent.push_back(rank);
  if (!absent.empty()) missing.push_back("trace of " + ranks_text(absent));
  if (const std::string end = missing_end(view); !end.empty()) missing.push_back(end);
  for (const LostRow& row : view.lost) {
    if (row.records == 0 && row.torn == 0) continue;
    const bool whole_file = row.ring.find('/') != std::string::npos;  // a file that could not be read
    missing.push_back(whole_file
                          ? "everything in " + row.ring + ": it cannot be read"
                          : std::to_string(row.records) + " records lost and " + std::to_string(row.torn) +
                                " torn in " + row.ring + (row.rank >= 0 ? " of rank " + std::to_string(row.rank) : ""));
  }
  return missing;
}

}  // namespace

Report analyze(const TraceView& view) {
  const TraceIndex index(view);
  Report report;
  report.sources = view.sources;
  report.import_stats = view.import_stats;
  report.missing_evidence = missing_evidence(index);

  Findings found = hang_and_ring(index);
  const size_t roots = found.size();
  Findings data = three_step_softmax(index);
  append(data, lse_merge(index));
  append(data, positions(index));
  append(data, per_rank_mean(index));
  demote(found, roots, std::move(data));
  append(found, races(index));  // order is observed, whatever the data

  sort_findings(found);
  report.findings = std::move(found);
  const auto root = [](const Finding& f) { return f.root; };
  const auto decided = [](const Finding& f) { return f.root && f.id != "hang.undecided"; };
  const auto& all = report.findings;
  if (std::any_of(all.begin(), all.end(), decided)) report.verdict = Verdict::kFindings;
  else if (std::any_of(all.begin(), all.end(), root)) report.verdict = Verdict::kUndecided;
  return report;
}

}  // namespace ringscope
