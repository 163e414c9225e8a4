// The named faults as mutations: what each of them changes in this job, and where.
#pragma once

#include <vector>

#include "runtime/config/job_config.h"
#include "runtime/fault/site.h"

namespace ringscope {

// Of config.fault, which check_fault_reach accepted; empty without one. `sites`: of the job.
std::vector<Mutation> fault_mutations(const JobConfig& config, const SiteTable& sites);

}  // namespace ringscope
