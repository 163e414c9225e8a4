// What a rank computed, to the bit: two runs of one job compare with it without keeping tensors. Taken when the run is
// over and its threads have ended, so that a recording of the run does not differ by it.
#pragma once

#include <cstdint>
#include <vector>

namespace ringscope {

class ParameterStore;

struct RankValues {
  std::vector<double> losses, grad_norms;  // of the steps that this rank finished
  // Hashes of all bits of the parameters: those that TP splits (ranks of one TP coordinate hold copies), and those that
  // every rank holds whole.
  uint64_t split = 0, replicated = 0;

  // Bit by bit: NaN equals the same NaN.
  bool operator==(const RankValues& other) const;
};

// Fills in the two hashes. No task of the run may be alive.
void hash_parameters(ParameterStore& store, RankValues& into);

}  // namespace ringscope
