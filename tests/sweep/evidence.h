// Evidence taken away: what a stranger's job would not show, removed from the recording of a planted hang, piece by piece
// and together. A verdict may become careful; it may never accuse anybody else, and never say clean.
#pragma once

#include <string>
#include <vector>

#include "tests/sweep/sweep.h"

namespace ringscope::testing {

// One kind of evidence. `take` changes the view in place; `seed` picks among ranks or threads where there is a choice.
struct Removal {
  const char* name;
  void (*take)(TraceView&, const std::vector<int>& accused, uint64_t seed);
};
const std::vector<Removal>& removals();
inline constexpr size_t kStructure = 5;  // the first: plans, places, axes, names, device records

enum class Judgement { kRight, kCareful, kWrong };
const char* name(Judgement);

// The same root with the same ranks is right; no accusation, with something said to be missing, is careful.
Judgement judge_without(const Case& c, const TraceView& view, const Report& report);

// The hang faults with default keys (variant 0), and under other layouts, ranks, layers, steps and seeds.
std::vector<Case> hang_cases(int variants);

}  // namespace ringscope::testing
