// A small job trained in this process, whose spool stays.
#pragma once

#include <string>

#include "runtime/config/job_config.h"

namespace ringscope {

// Next to no arithmetic: thousands of steps in seconds.
JobConfig tiny_job(int tp, int cp, int steps);

// Trains into the folder `spool`, which must not exist. mode: RS_MODE_*.
void record_job(const JobConfig& config, const std::string& spool, int mode, uint64_t ring_bytes);

}  // namespace ringscope
