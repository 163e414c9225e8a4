// How a configuration cuts a sequence: over CP, padded to TP's multiple where sequence parallelism splits rows again.
#pragma once

#include "runtime/config/job_config.h"
#include "runtime/layout/layout.h"

namespace ringscope {

// Errors as SequenceSplit::make.
Result<SequenceSplit> sequence_split(const JobConfig& config);

}  // namespace ringscope
