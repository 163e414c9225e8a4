// The jobs of a campaign: small models under random layouts, and the flags that make each of them again.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/config/job_config.h"
#include "tools/campaign/random.h"
#include "tracedb/base/result.h"

namespace ringscope::campaign {

// What is kept of a run. Flight: the newest records of every thread (`train --flight`).
enum class Keep : uint8_t { kStream, kFlight };
const char* name(Keep);

struct Layout {
  JobConfig config;  // without a mutation
  Keep keep = Keep::kStream;
};

// Flags of the command line (long name without dashes, value) that every job has.
using FixedFlags = std::vector<std::pair<std::string, std::string>>;

// Two layers of width 32, one to four steps; everything else is drawn, then `fixed` is written over it.
// kUsage: `fixed` leaves no valid job; the sentence is validate's.
Result<Layout> draw_layout(Random& random, const FixedFlags& fixed);

// "--tp 2 --cp 1 --dp 2 --seq-length 61 ...": given to `ringscope train`, they make this configuration, whatever its
// defaults are. Mutations and faults are left out.
std::string flags_of(const JobConfig& config);

}  // namespace ringscope::campaign
