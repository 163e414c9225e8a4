// Do gradients add up? A reduction is linear, so the projections of what its members put in must add up to that of what
// each of them got, to the rounding of the sum.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/analyze/numeric/step_numbers.h"

namespace ringscope {

// The reduction over one axis that broke first: all groups and tensors of that step in which it did.
struct SumBreak {
  int step = -1;
  Axis axis = Axis::kUnknown;
  std::vector<int> ranks;                     // whose result is not the sum, sorted
  bool left_out = true;                       // every one of them kept what it had put in
  bool alike = true;                          // all members hold the same bits all the same
  std::vector<size_t> rows;                   // of one rank and tensor: the result, then what members put in
  double value = 0, expected = 0, bound = 0;  // of that one
  double ratio = 0;                           // result / sum where all are off by the same factor, otherwise 0
  size_t tensors = 0;                         // that show it, over all ranks
  size_t steps = 1;                           // in which it happened again, with this one
};
std::optional<SumBreak> first_sum_break(const TraceIndex& index);

// "the gradient of X, which CP should have summed, ..." with numbers and what the calls say; place and evidence set.
Finding sum_finding(const TraceIndex& index, const SumBreak& broken, std::string_view id);

}  // namespace ringscope
