#include "tools/analyze/analyze.h"

#include <algorithm>
#include <numeric>

#include "tools/analyze/completeness.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

using Findings = std::vector<Finding>;

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

// Observations without a cause of their own: they contradict each other, or ranks differ, and that is all.
bool without_cause(const Finding& f) {
  return f.id.ends_with(".unexplained") || f.id.starts_with("numeric.") || f.id == "hang.undecided";
}

// A loss and a norm are of their step as a whole.
bool may_follow(const Finding& f, const Finding& cause) {
  const bool of_step = f.id.starts_with("loss.") || f.id.starts_with("numeric.");
  return of_step ? f.where.step >= cause.where.step : !earlier(f.where, cause.where);
}

// Two uses of a label that are equally frequent, on the same ranks: each is the odd one beside the other.
void tell_apart(Findings& causes) {
  for (size_t i = 1; i < causes.size(); ++i) {
    Finding& first = causes[i - 1];
    if (first.id != causes[i].id || first.ranks != causes[i].ranks || first.where.step != causes[i].where.step)
      continue;
    first.ranks.clear();
    first.sentence += "; the other use is as frequent, so that nothing tells which is meant, and nobody is accused";
    causes.erase(causes.begin() + std::ptrdiff_t(i--));
  }
}

// An odd call, or one in another place, is a cause only where no rule that knows what calls are for has given one. Of
// several that contradict each other, those are meant in whose step the numbers are wrong.
void add_causes(Findings& found, Findings causes) {
  const auto unexplained = [](const Finding& f) { return f.root && without_cause(f); };
  if (std::any_of(found.begin(), found.end(), [&](const Finding& f) { return f.root && !without_cause(f); })) return;
  const auto in_its_step = [&](const Finding& cause) {
    return std::any_of(found.begin(), found.end(),
                       [&](const Finding& f) { return unexplained(f) && f.where.step == cause.where.step; });
  };
  if (std::any_of(causes.begin(), causes.end(), in_its_step))
    std::erase_if(causes, [&](const Finding& cause) { return !in_its_step(cause); });
  tell_apart(causes);
  for (Finding& cause : causes) {
    const int at = int(found.size());
    for (Finding& f : found)
      if (unexplained(f) && may_follow(f, cause)) f.root = false, f.caused_by = at;
    found.push_back(std::move(cause));
  }
}

// Labels alone prove nothing: without numbers that disagree there is nothing to explain.
void add_exchanged_calls(Findings& found, const TraceIndex& index) {
  const bool disagree = std::any_of(found.begin(), found.end(), [](const Finding& f) {
    return f.root && (f.id.starts_with("numeric.") || f.id.starts_with("loss."));
  });
  if (disagree) add_causes(found, exchanged_calls(index));
}

}  // namespace

Report analyze(const TraceView& view) {
  const TraceIndex index(view);
  Report report;
  report.sources = view.sources;
  report.import_stats = view.import_stats;
  report.missing_evidence = missing_evidence(view);

  Findings found = hang_and_ring(index);
  add_races(found, races(index));  // order is observed, whatever the data
  DataFindings data = data_findings(index);
  add_data_findings(found, std::move(data.findings));
  for (ImportStat& stat : data.stats) {
    report.missing_evidence.push_back(stat.help + " (" + std::to_string(stat.count) + " x " + stat.name + ")");
    report.import_stats.push_back(std::move(stat));
  }

  add_exchanged_calls(found, index);
  add_causes(found, odd_calls(index));
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
