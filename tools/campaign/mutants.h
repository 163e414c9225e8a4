// Draws single mutations: an operation is given, the site and its narrowing are drawn from the sites of a job.
#pragma once

#include <optional>

#include "runtime/config/job_config.h"
#include "runtime/fault/mutation.h"
#include "runtime/fault/site.h"
#include "tools/campaign/random.h"

namespace ringscope::campaign {

// How far a mutation reaches from the site that was drawn.
enum class Reach : uint8_t {
  kOnce,        // one call on one rank
  kRankOnward,  // that place on one rank, from a step on
  kEveryRank,   // that place on all ranks, at one step
  kEverywhere,  // that place on all ranks, from a step on
  kSomeRanks,   // that place on several ranks, at one step
  kScope        // drop only: everything in a layer, microbatch, pass or ring step of one rank or of some, at one step
};

// Nothing: no site of the job is one that the operation acts on, or it has no value that would change it.
std::optional<Mutation> draw_mutation(Random& random, MutationOp op, const JobConfig& config, const SiteTable& sites);

}  // namespace ringscope::campaign
