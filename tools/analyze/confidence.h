// Confidence as CLI.md defines it: of the verdicts given with c, at least the share c is right. It is computed from
// what a verdict rests on, never chosen; tests/bench/fault_sweep_bench prints how well it holds.
#pragma once

namespace ringscope {

// What a verdict rests on.
struct Support {
  double coverage = 1;      // share of the evidence that the rule looks at which the trace holds, 0 to 1
  double agree = 1;         // witnesses (ranks, groups) that did what the verdict calls right, or show the fault alike
  double against = 0;       // of the same kind, that contradict
  double observations = 1;  // independent observations of the fault or of the rule it breaks (steps, rows, passes)
};

// coverage x agree / (agree + against) x (1 - 1 / ((1 + agree)(1 + observations))), at most kMostConfidence: one
// witness and one observation give 0.75, three witnesses and ten steps 0.98. No witness at all gives 0.
double confidence(const Support& support);

inline constexpr double kMostConfidence = 0.99;

}  // namespace ringscope
