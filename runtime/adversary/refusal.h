// Why a mutation changes nothing, and what would match instead.
#pragma once

#include <string>

#include "runtime/fault/mutation.h"

namespace ringscope {

// "call grad.weight_cp (rank 1, step 0, layer 1, pass optimizer, stream compute)".
std::string describe(const Site& site);
// Of a mutation whose site matches nothing.
Error nothing_matches(const Mutation& mutation, const SiteTable& sites);

}  // namespace ringscope
