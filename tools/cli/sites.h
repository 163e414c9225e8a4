// What can be mutated in a job, for people and scripts: sites of one kind and name as one row.
#pragma once

#include "runtime/fault/site.h"

namespace ringscope::cli {

void print_sites(const SiteTable& sites, bool json);

}  // namespace ringscope::cli
