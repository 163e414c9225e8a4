// The verdict on a verdict: what a report says beside what was expected of it.
#include <algorithm>

#include "tools/campaign/judge.h"

namespace ringscope::campaign {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}
std::vector<int> sorted(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return ranks;
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

// Does it accuse somebody who has nothing to do with it? That a rank holds other bits than its copies is said of those
// that do, wherever the bits come from.
bool accuses_others(const Expected& expected, const Finding& f) {
  return !within(f.ranks, expected.may) && !(f.id == "numeric.replica" && within(f.ranks, expected.odd));
}

bool names_it(const Expected& expected, const Finding& f) {
  if (!contains(expected.ids, f.id)) return false;
  const std::vector<int> ranks = sorted(f.ranks);
  return ranks == expected.ranks || ranks == expected.seen || ranks == expected.may ||
         (expected.or_nobody && ranks.empty()) ||
         (f.id == "numeric.replica" && !ranks.empty() && ranks == expected.odd);
}

// A program that is not what it was may be told so, though no bit differs, by its own ranks; another name is not right.
VerdictKind of_harmless(const Expected& expected, const Report& report) {
  VerdictKind kind = VerdictKind::kRight;
  for (const Finding& f : report.findings) {
    if (f.severity == Severity::kNote) continue;
    if (!expected.told_anyhow || accuses_others(expected, f)) return VerdictKind::kFalseAlarm;
    if (!contains(expected.ids, f.id) && !is_careful(f)) kind = VerdictKind::kPartly;
  }
  return kind;
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
    if (accuses_others(expected, *f)) return VerdictKind::kWrong;
  if (!expected.visible && expected.effect == Effect::kCorrupt) return VerdictKind::kSilent;
  if (roots.empty()) return report.verdict == Verdict::kClean ? VerdictKind::kMissed : VerdictKind::kCareful;
  if (std::all_of(roots.begin(), roots.end(), [](const Finding* f) { return is_careful(*f); }))
    return VerdictKind::kCareful;
  // One mistake, one root; several edges that are gone are several mistakes.
  const bool named = std::all_of(roots.begin(), roots.end(), [&](const Finding* f) { return names_it(expected, *f); });
  return named && (roots.size() == 1 || expected.edge) ? VerdictKind::kRight : VerdictKind::kPartly;
}

}  // namespace ringscope::campaign
