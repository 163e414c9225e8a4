#include "tools/analyze/analyze.h"

#include <algorithm>
#include <numeric>

#include "tools/analyze/completeness.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

using Findings = std::vector<Finding>;

void append(Findings& to, Findings from) {
  for (Finding& f : from) to.push_back(std::move(f));
}

// Everything that is blocked and not accused waits for the root.
void set_waiting(const TraceIndex& index, Finding& f) {
  if (!index.stalled) return;
  for (int rank : index.blocked())
    if (!std::binary_search(f.ranks.begin(), f.ranks.end(), rank)) f.waiting.push_back(rank);
}

// The hang and ring families: roots, and what follows from them. Every rank blocks once, so a rank that departed
// first explains all that comes later; a cycle needs groups whose calls agree.
Findings hang_and_ring(const TraceIndex& index) {
  Findings found = dead_ranks(index);
  const bool dead = !found.empty();
  for (const Divergence& d : find_divergences(index)) found.push_back(divergence_finding(index, d));
  std::vector<std::pair<size_t, Finding>> counts;  // (index of the ring break, step count)
  for (const ShortRing& ring : find_short_rings(index)) {
    Finding count = step_count_finding(index, ring);
    if (index.stalled) {
      found.push_back(ring_break_finding(index, ring));
      counts.emplace_back(found.size() - 1, std::move(count));
    } else {
      found.push_back(std::move(count));
    }
  }
  if (found.empty() && !dead)
    for (const Divergence& d : find_missing_tails(index)) found.push_back(divergence_finding(index, d));
  if (found.empty()) found = cross_group_cycles(index);
  if (found.empty() && index.stalled) return {undecided(index)};
  for (Finding& f : found) set_waiting(index, f);
  for (auto& [root, count] : counts) {
    count.root = false;
    count.caused_by = int(root);
    found.push_back(std::move(count));
  }
  return found;
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

}  // namespace

Report analyze(const TraceView& view) {
  const TraceIndex index(view);
  Report report;
  report.sources = view.sources;
  report.import_stats = view.import_stats;
  report.missing_evidence = missing_evidence(view);

  Findings found = hang_and_ring(index);
  append(found, races(index));  // order is observed, whatever the data
  DataFindings data = data_findings(index);
  add_data_findings(found, std::move(data.findings));
  for (ImportStat& stat : data.stats) {
    report.missing_evidence.push_back(stat.help + " (" + std::to_string(stat.count) + " x " + stat.name + ")");
    report.import_stats.push_back(std::move(stat));
  }

  sort_findings(found);
  report.findings = std::move(found);
  const auto root = [](const Finding& f) { return f.root; };
  const auto decided = [](const Finding& f) { return f.root && f.id != "hang.undecided"; };
  const auto& all = report.findings;
  if (std::any_of(all.begin(), all.end(), decided)) report.verdict = Verdict::kFindings;
  else if (std::any_of(all.begin(), all.end(), root)) report.verdict = Verdict::kUndecided;
  else if (nothing_read(view)) report.verdict = Verdict::kUnreadable;
  else if (!report.missing_evidence.empty()) report.verdict = Verdict::kIncomplete;
  return report;
}

}  // namespace ringscope
