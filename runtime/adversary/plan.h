// Plan: what one rank's adversary does at which of its sites, worked out before the run from the sites of an unchanged one.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "runtime/fault/mutation.h"
#include "runtime/layout/layout.h"

namespace ringscope {

struct Action {
  const Mutation* mutation = nullptr;  // of the plan
  // What it does at this site: the thing itself, or the half of it that belongs at another one.
  enum class Part {
    kItself,
    kPartner,  // swap: the call in front of which the held one should have been; early: the operation that the record
               // comes before; previous: the run whose output is kept
  } part = Part::kItself;
  uint32_t other = 0;      // the site of the other half
  const char* event = "";  // early's partner: the event that the record will be of, and its stream
  const char* stream = "";
};

struct RankPlan {
  std::unordered_map<uint32_t, std::vector<Action>> at;  // by site index
};

struct MutationPlan {
  std::vector<Mutation> mutations;  // what actions point to
  std::vector<RankPlan> ranks;
};

// What the plan must know of the job beside its sites.
struct JobFacts {
  Mesh mesh = *Mesh::make(1, 1, 1, 1);
  SequenceSplit split = *SequenceSplit::make(1, 1, CpLayout::kContiguous);
};

// kUsage: a mutation matches nothing, or cannot be applied to what it matches (with the reason, and sites that it could
// act on). A site that cannot take it is left out as long as another one can.
Result<std::unique_ptr<MutationPlan>> plan_mutations(std::vector<Mutation> mutations, const SiteTable& sites,
                                                     const JobFacts& facts);

}  // namespace ringscope
