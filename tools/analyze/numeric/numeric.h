// The rules over values that a run recorded (softmax, position, loss, numeric), and what follows from what among them.
// A row that contradicts itself proves nothing: it is left out and counted.
#pragma once

#include <string>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

struct DataFindings {
  std::vector<Finding> findings;
  std::vector<ImportStat> stats;  // what was left out
};

DataFindings three_step_softmax(const TraceIndex&);  // softmax/three_step.cc
DataFindings lse_merge(const TraceIndex&);           // softmax/lse_merge.cc
// softmax/recomputed.cc; what is in `known`, findings of the rules above, is not told again.
DataFindings recomputed_attention(const TraceIndex&, const std::vector<Finding>& known);
std::vector<Finding> travelling_blocks(const TraceIndex&);  // softmax/blocks.cc
DataFindings positions(const TraceIndex&);                  // position/position.cc
std::vector<Finding> mask_rows(const TraceIndex&);          // position/mask.cc; op = "mask"
DataFindings labels(const TraceIndex&);                     // position/labels.cc
DataFindings losses(const TraceIndex&);                     // loss/loss.cc
std::vector<Finding> nonfinite_values(const TraceIndex&);   // numeric/nonfinite.cc
std::vector<Finding> step_consistency(const TraceIndex&);   // numeric/consistency.cc

// All of them, by place.
DataFindings data_findings(const TraceIndex&);  // numeric/data.cc
// Appends `data` to `found`. What begins at or behind an earlier root, or behind an earlier finding of the same data,
// follows from it.
void add_data_findings(std::vector<Finding>& found, std::vector<Finding> data);

// Adds a line about `count` left-out rows, which makes a verdict without findings incomplete; nothing for 0.
// what: "sampled softmax rows with ...", a plural.
void count_contradictions(DataFindings& out, const std::string& name, int64_t count, const std::string& what);

}  // namespace ringscope
