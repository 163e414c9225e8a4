#include "tools/campaign/site_class.h"

#include <string_view>
#include <utility>

namespace ringscope::campaign {
namespace {

constexpr const char* kNames[] = {"ring hop",
                                  "reduction of the softmax maxima",
                                  "reduction of the softmax denominators",
                                  "reduction of the softmax output",
                                  "reduction of the loss divisor",
                                  "reduction of the loss",
                                  "reduction of gradients",
                                  "reduction of the gradient norm",
                                  "other collective",
                                  "attention part",
                                  "merge of attention parts",
                                  "loss sum and count",
                                  "share of the loss",
                                  "gradient of the loss",
                                  "count of labels",
                                  "gradient norm",
                                  "clip factor",
                                  "optimizer update",
                                  "other kernel",
                                  "positions",
                                  "labels",
                                  "mask rows and documents",
                                  "tokens",
                                  "other input",
                                  "event record",
                                  "event wait",
                                  "creation of a communicator"};
static_assert(std::size(kNames) == size_t(kSiteClasses));

using Entry = std::pair<std::string_view, SiteClass>;
constexpr Entry kCalls[] = {{"softmax.max_ar", SiteClass::kMaxReduce},  {"softmax.sum_ar", SiteClass::kSumReduce},
                            {"softmax.out_rs", SiteClass::kOutReduce},  {"loss.count_cp", SiteClass::kCountReduce},
                            {"loss.count_dp", SiteClass::kCountReduce}, {"loss.sum_cp", SiteClass::kLossReduce},
                            {"loss.sum_dp", SiteClass::kLossReduce},    {"grad.weight_cp", SiteClass::kGradReduce},
                            {"grad.weight_dp", SiteClass::kGradReduce}, {"grad.norm_tp", SiteClass::kGradReduce},
                            {"grad.norm_sq_tp", SiteClass::kNormReduce}};
constexpr Entry kKernels[] = {{"flash_forward", SiteClass::kPart},
                              {"score_max", SiteClass::kPart},
                              {"exp_sum", SiteClass::kPart},
                              {"lse_merge", SiteClass::kMerge},
                              {"softmax_normalise", SiteClass::kMerge},
                              {"loss.total", SiteClass::kTotal},
                              {"loss.zero", SiteClass::kTotal},
                              {"loss.share", SiteClass::kShare},
                              {"loss.backward", SiteClass::kLossGradient},
                              {"loss.count", SiteClass::kCount},
                              {"grad.sum_of_squares", SiteClass::kNorm},
                              {"grad.norm_zero", SiteClass::kNorm},
                              {"grad.clip_factor", SiteClass::kClip},
                              {"adamw", SiteClass::kUpdate}};
constexpr Entry kUploads[] = {{"batch.position", SiteClass::kPosition}, {"batch.labels", SiteClass::kLabel},
                              {"batch.row", SiteClass::kMask},          {"batch.document", SiteClass::kMask},
                              {"batch.tokens", SiteClass::kTokens},     {"batch.sample", SiteClass::kInput},
                              {"batch.sample_ids", SiteClass::kInput}};

template <size_t N>
SiteClass find(const Entry (&table)[N], std::string_view name, SiteClass otherwise) {
  for (const auto& [known, site_class] : table)
    if (known == name) return site_class;
  return otherwise;
}

}  // namespace

const char* name(SiteClass c) { return kNames[size_t(c)]; }

SiteClass class_of(const Site& site) {
  switch (site.kind) {
    case SiteKind::kCall:
      if (site.func == CollFunc::kSend || site.func == CollFunc::kRecv) return SiteClass::kTransfer;
      return find(kCalls, site.name, SiteClass::kCollective);
    case SiteKind::kKernel: return find(kKernels, site.name, find(kUploads, site.name, SiteClass::kKernel));
    case SiteKind::kUpload: return find(kUploads, site.name, SiteClass::kInput);
    case SiteKind::kRecord: return SiteClass::kRecord;
    case SiteKind::kWait: return SiteClass::kWait;
    case SiteKind::kCreate: return SiteClass::kCreate;
  }
  return SiteClass::kKernel;
}

}  // namespace ringscope::campaign
