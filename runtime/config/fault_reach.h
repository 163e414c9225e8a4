// Can the planted bug show in this job? A fault that changes nothing would teach that nothing happens.
#pragma once

#include "runtime/config/job_config.h"

namespace ringscope {

// kUsage, with what to change: the layout lacks what the bug breaks, the place lies outside the job, or the wrong
// program is the right one there (positions that restart in the first shard, means of equal counts). The rest of the
// configuration is valid.
Status check_fault_reach(const JobConfig& config);

}  // namespace ringscope
