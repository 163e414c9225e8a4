// What the tests of the data rules share: a small job, a place in it, and the roots of a report in one line.
#pragma once

#include <limits>
#include <string>

#include "tests/support/train_program.h"
#include "tools/analyze/analyze.h"

namespace ringscope::testing {

inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kNone = -std::numeric_limits<double>::infinity();

// "softmax.lse_merge (numeric.nonfinite)": roots, and what follows from them in brackets.
inline std::string ids(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings) text += (text.empty() ? "" : " ") + (f.root ? f.id : "(" + f.id + ")");
  return text;
}

inline TraceBuilder small_job(int cp, int dp = 1, int tp = 1) { return build({tp, cp, dp, 1, 1}); }

inline Where forward_of(int step, int layer = 0) {
  Where where;
  where.step = step;
  where.layer = int16_t(layer);
  where.microbatch = 0;
  where.pass = Pass::kForward;
  return where;
}

// Takes from a trace what a stranger's lacks: axes of communicators and coordinates of ranks.
inline TraceView without_labels(TraceView view) {
  for (CommRow& comm : view.comms) comm.axis = Axis::kUnknown, comm.name = "group";
  for (RankRow& rank : view.ranks) rank.tp = rank.cp = rank.dp = rank.pp = 0;
  view.meta.erase(meta_key::kCpLayout);
  view.meta.erase(meta_key::kCpSize);
  return view;
}

// How many rows the rules left out because they contradict themselves.
inline int64_t contradictions(const Report& report) {
  int64_t count = 0;
  for (const ImportStat& stat : report.import_stats)
    if (stat.name.find(".contradictory_") != std::string::npos) count += stat.count;
  return count;
}

}  // namespace ringscope::testing
