// What a changed upload takes its values from.
#pragma once

#include "runtime/comm/seam.h"
#include "runtime/fault/mutation.h"

namespace ringscope {

// kUsage: a reason why the layout does not have it.
Status check_upload(const Mutation& mutation, const SequenceSplit& split);
void change_upload(Upload& upload, const Mutation& mutation, const SequenceSplit& split);

}  // namespace ringscope
