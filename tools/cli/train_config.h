// The JobConfig of a command line: the base, then the JSON file, then the flags, then what a fault brings along.
#pragma once

#include "runtime/config/job_config.h"
#include "tools/cli/options.h"

namespace ringscope::cli {

// kData: the file cannot be read, is empty or no JSON. kUsage: keys, flags and values.
Result<JobConfig> read_config(JobConfig base, const Arguments& args);

// What --fault NAME brings with it: the flags of its row that nobody wrote. Parallel sizes only when none was named.
Status bring_fault_layout(JobConfig& config);

}  // namespace ringscope::cli
