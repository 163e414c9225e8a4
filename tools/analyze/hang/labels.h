// What labels (names, places) add to a difference that the calls themselves show: where in a run of equal calls it
// lies, and whether a call belongs there. They break ties and explain; no difference follows from them.
#pragma once

#include <optional>

#include "tools/analyze/hang/strand.h"

namespace ringscope {

// `with` holds, at n, calls that `without` lacks. Moves back from n while the label of `without` is not the one that
// `with` shows at the same number, but one that it shows a little later.
uint64_t place_by_label(const TraceIndex&, const Strand& with, const Strand& without, uint64_t n);

// May the past speak? A prediction stands on a whole step only if the place that it comes from lies in an earlier one: the
// layers and microbatches of a first step repeat themselves until its end does not. Without labels nothing tells them apart.
struct Continuation;
bool from_earlier_step(const TraceIndex&, uint32_t then, uint32_t now, const Continuation&);  // op rows

// The first number at which the calls could be missing as well, if labels do not tell.
uint64_t earliest_place(const Strand& with, uint64_t n, uint64_t length);

// Does the label of a call that only some made show that it belongs there? One of a family (the same call of other
// layers, of other steps) does; a repetition of the call before it does not. Empty = the label does not tell.
std::optional<bool> belongs_by_label(const TraceIndex&, const Strand& with, uint64_t at);

}  // namespace ringscope
