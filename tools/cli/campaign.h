// ringscope faults campaign: plants thousands of single mutations that nobody chose, and scores the verdicts.
#pragma once

#include <vector>

#include "tools/cli/options.h"

namespace ringscope::cli {

std::vector<Option> campaign_options();
Result<int> run_campaign_verb(const Arguments& args);

}  // namespace ringscope::cli
