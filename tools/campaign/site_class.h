// What a site is for the judge: which quantity goes through it, so that what can be seen of a change is known beforehand.
#pragma once

#include <cstdint>

#include "runtime/fault/site.h"

namespace ringscope::campaign {

enum class SiteClass : uint8_t {
  // calls
  kTransfer,     // a hop of a K/V ring
  kMaxReduce,    // maxima of the three-step softmax
  kSumReduce,    // its denominators
  kOutReduce,    // its weighted values
  kCountReduce,  // the loss divisor
  kLossReduce,   // the loss
  kGradReduce,   // gradients
  kNormReduce,   // the squared gradient norm
  kCollective,   // any other
  // kernels
  kPart,          // attention over a block of keys: sampled rows are recorded, one of a call is computed again
  kMerge,         // what makes one result of parts
  kTotal,         // the rank's loss sum and count
  kShare,         // the rank's share of the loss
  kLossGradient,  // of the logits
  kCount,         // the rank's count of labels
  kNorm,          // the squared gradient norm
  kClip,          // the clip factor
  kUpdate,        // the optimizer
  kKernel,        // any other
  // uploads
  kPosition,
  kLabel,
  kMask,
  kTokens,
  kInput,  // any other: sample numbers
  // order
  kRecord,
  kWait,
  kCreate
};
inline constexpr int kSiteClasses = int(SiteClass::kCreate) + 1;
const char* name(SiteClass);  // "ring hop", "reduction of maxima", ...

SiteClass class_of(const Site& site);
inline bool is_call(SiteClass c) { return c <= SiteClass::kCollective; }
inline bool is_kernel(SiteClass c) { return c >= SiteClass::kPart && c <= SiteClass::kKernel; }

}  // namespace ringscope::campaign
