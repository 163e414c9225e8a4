// The verdict on a verdict: what a report says beside what was expected of it.
#include <algorithm>

#include "tools/campaign/judge.h"

namespace ringscope::campaign {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}
bool within(const std::vector<int>& ranks, const std::vector<int>& may) {
  return std::all_of(ranks.begin(), ranks.end(),
                     [&](int rank) { return std::find(may.begin(), may.end(), rank) != may.end(); });
}

// Says that something is wrong without saying what: no accusation, no name.
bool is_careful(const Finding& f) { return f.id == "hang.undecided" || f.id.ends_with(".unexplained"); }

std::vector<const Finding*> roots_of(const Report& report) {
  std::vector<const Finding*> roots;
  for (const Finding& f : report.findings)
    if (f.root && f.severity > Severity::kNote) roots.push_back(&f);
  return roots;
}

bool names_it(const Expected& expected, const Finding& f) {
  if (!contains(expected.ids, f.id)) return false;
  std::vector<int> ranks = f.ranks;
  std::sort(ranks.begin(), ranks.end());
  return ranks == expected.ranks || ranks == expected.may || (expected.or_nobody && ranks.empty());
}

VerdictKind of_harmless(const Expected& expected, const Report& report) {
  for (const Finding& f : report.findings)
    if (f.severity > Severity::kNote && !(contains(expected.ids, f.id) && within(f.ranks, expected.may)))
      return VerdictKind::kFalseAlarm;
  return VerdictKind::kRight;
}

}  // namespace

const char* name(VerdictKind kind) {
  constexpr const char* kNames[] = {"right", "partly", "careful", "missed", "wrong", "false_alarm", "silent"};
  return kNames[size_t(kind)];
}

bool is_false_alarm(const Report& report) {
  return std::any_of(report.findings.begin(), report.findings.end(),
                     [](const Finding& f) { return f.severity > Severity::kNote; });
}

VerdictKind verdict(const Expected& expected, const Report& report) {
  if (expected.effect == Effect::kHarmless) return of_harmless(expected, report);
  const std::vector<const Finding*> roots = roots_of(report);
  for (const Finding* f : roots)
    if (!within(f->ranks, expected.may)) return VerdictKind::kWrong;
  if (!expected.visible && expected.effect == Effect::kCorrupt) return VerdictKind::kSilent;
  if (roots.empty()) return report.verdict == Verdict::kClean ? VerdictKind::kMissed : VerdictKind::kCareful;
  if (std::all_of(roots.begin(), roots.end(), [](const Finding* f) { return is_careful(*f); }))
    return VerdictKind::kCareful;
  // One mistake, one root.
  return roots.size() == 1 && names_it(expected, *roots[0]) ? VerdictKind::kRight : VerdictKind::kPartly;
}

}  // namespace ringscope::campaign
