#include "tools/analyze/hang/steps.h"

#include <algorithm>
#include <set>

namespace ringscope {

Steps::Steps(const TraceIndex& index, const std::vector<Strand>& strands) : index_(index), strands_(strands) {
  for (const Strand& strand : strands) segments_.push_back(segments_of(strand));
}

int Steps::step_at(const Strand& strand, uint64_t n) const {
  const uint32_t row = strand.op(n);
  return row == kNoRow ? -1 : index_.view.ops[row].where.step;
}

Steps::Segments Steps::segments_of(const Strand& strand) const {
  Segments segments;
  Segment* open = nullptr;
  int step = -1;
  for (uint64_t n = strand.first; n < strand.end(); ++n) {
    const int here = step_at(strand, n);
    if (here < 0 || here != step) open = nullptr;
    step = here;
    if (here < 0) continue;
    if (!open) {
      const auto [at, fresh] = segments.try_emplace(here);
      open = &at->second;
      open->torn = !fresh;
      if (fresh) open->first = n, open->whole = n > strand.first || strand.whole;
    }
    ++open->count;
  }
  const RankExitRow* exit = index_.exit_of(strand.rank);
  for (auto& [known, segment] : segments)
    segment.closed = known < segments.rbegin()->first || (exit && exit->status == 0);
  return segments;
}

// Adds what the strands did in a step behind `prefix`; nothing if they did different things, or if all who show it are on
// one side at the place in question.
void Steps::ask(int step, int place, const std::vector<uint64_t>& prefix, const std::vector<uint64_t>& sides,
                std::map<uint64_t, Precedent>& answers) const {
  constexpr uint64_t kNone = UINT64_MAX;
  uint64_t next = kNone;
  Precedent found;
  std::set<uint64_t> shown_by;
  for (size_t i = 0; i < strands_.size(); ++i) {
    const Segments& segments = segments_[i];
    const auto at = segments.find(step);
    if (at == segments.end()) {
      const bool behind = !segments.empty() && segments.rbegin()->first > step && segments.begin()->first < step;
      if (behind) return;  // it left the whole step out
      continue;
    }
    const Segment& segment = at->second;
    if (segment.torn) return;
    if (!segment.whole) continue;
    for (uint64_t k = 0; k < std::min<uint64_t>(segment.count, uint64_t(place)); ++k)
      if (strands_[i].at(segment.first + k) != prefix[size_t(k)]) return;
    uint64_t here = kNone;
    if (segment.count > uint64_t(place)) here = strands_[i].at(segment.first + uint64_t(place));
    else if (segment.closed && segment.count == uint64_t(place)) here = 0;
    else if (segment.closed) return;
    if (here == kNone) continue;
    if (segment.count > uint64_t(place) && here == 0) return;  // it was not recorded
    if (next != kNone && next != here) return;
    if (next == kNone) found.strand = &strands_[i], found.at = segment.first + uint64_t(place);
    next = here;
    shown_by.insert(sides[i]);
  }
  if (next == kNone || shown_by.size() < 2) return;
  Precedent& answer = answers[next];
  const int seen = answer.seen + 1;
  answer = found;  // later steps are nearer to what the job does now
  answer.call = next;
  answer.seen = seen;
}

uint64_t Steps::first_difference(uint64_t n) const {
  for (size_t i = 1; i < strands_.size(); ++i) {
    const Strand &a = strands_[0], &b = strands_[i];
    for (uint64_t k = std::max(a.first, b.first); k < std::min({n, a.end(), b.end()}); ++k) {
      const int mine = step_at(a, k), theirs = step_at(b, k);
      if (mine >= 0 && theirs >= 0 && mine != theirs) n = k;
    }
  }
  return n;
}

Precedent Steps::precedent(uint64_t n) const {
  int step = INT32_MAX;
  for (const Strand& strand : strands_)
    if (const int here = step_at(strand, n); here >= 0) step = std::min(step, here);
  if (step == INT32_MAX) return {};
  // The place: as many calls of this step lie in front of n.
  uint64_t first = UINT64_MAX;
  const Strand* like = nullptr;
  for (size_t i = 0; i < strands_.size(); ++i) {
    const auto at = segments_[i].find(step);
    if (at == segments_[i].end() || at->second.first > n) continue;
    if (!at->second.whole || at->second.torn || (first != UINT64_MAX && first != at->second.first)) return {};
    first = at->second.first;
    if (at->second.first + at->second.count >= n) like = &strands_[i];
  }
  if (!like) return {};
  std::vector<uint64_t> prefix;
  for (uint64_t k = first; k < n; ++k) prefix.push_back(like->at(k));
  if (std::find(prefix.begin(), prefix.end(), 0u) != prefix.end()) return {};
  std::set<int> others;
  for (const Segments& segments : segments_)
    for (const auto& [known, segment] : segments)
      if (known != step) others.insert(known);
  std::vector<uint64_t> sides;  // what each strand does at n: a call, another step, nothing
  for (const Strand& strand : strands_)
    sides.push_back(strand.at(n) != 0 && step_at(strand, n) != step ? UINT64_MAX : strand.at(n));
  std::map<uint64_t, Precedent> answers;
  for (int other : others) ask(other, int(prefix.size()), prefix, sides, answers);
  Precedent best;
  int all = 0;
  for (const auto& [call, answer] : answers) {
    all += answer.seen;
    if (answer.seen > best.seen) best = answer;
  }
  best.step = step;
  best.against = all - best.seen;
  return best;
}

bool Steps::conforms(const Precedent& precedent, const Strand& strand, uint64_t n) const {
  const bool in_step = step_at(strand, n) == precedent.step;
  return precedent.call == 0 ? !in_step && strand.at(n) != 0 : in_step && strand.at(n) == precedent.call;
}

}  // namespace ringscope
