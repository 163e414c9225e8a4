#include "runtime/adversary/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/adversary/call.h"
#include "runtime/adversary/refusal.h"
#include "runtime/adversary/upload.h"

namespace ringscope {
namespace {

using Op = MutationOp;
using Part = Action::Part;

bool same(const char* a, const char* b) { return std::strcmp(a, b) == 0; }

bool is_host_op(Op op) { return op == Op::kExit || op == Op::kKill || op == Op::kHang || op == Op::kPause; }

// Plans one mutation on one rank.
class RankPlanner {
 public:
  RankPlanner(const Mutation& mutation, const std::vector<Site>& sites, const JobFacts& facts, RankPlan& plan)
      : mutation_(mutation), sites_(sites), facts_(facts), plan_(plan) {}

  // How many of them take it. The reason why the last one does not is in `why()`.
  int apply(const std::vector<uint32_t>& found) {
    int applied = 0;
    for (const uint32_t index : found) {
      if (auto ok = apply(sites_[index]); ok) ++applied;
      else why_ = ok.error().message + " at " + describe(sites_[index]);
      if (applied && is_host_op(mutation_.op) && mutation_.op != Op::kPause) break;  // the program ends there
    }
    return applied;
  }
  const std::string& why() const { return why_; }

 private:
  Status apply(const Site& site) {
    switch (mutation_.op) {
      case Op::kSwap: return site.kind == SiteKind::kCreate ? swap_creation(site) : swap_call(site);
      case Op::kSplit: return split(site);
      case Op::kFunc:
      case Op::kCount:
      case Op::kDtype:
      case Op::kRedop:
      case Op::kRoot:
      case Op::kPeer:
      case Op::kComm: return change_call(site);
      case Op::kEarly: return early(site);
      case Op::kStale: return stale(site);
      case Op::kStream:
        if (mutation_.value == site.stream) return usage_error("that stream waits already");
        break;
      case Op::kScale:
      case Op::kShift:
      case Op::kNan: return floating(site);
      case Op::kPrevious: return previous(site);
      case Op::kInput:
        if (std::none_of(site.outputs.begin(), site.outputs.end(), [](const Site::Output& o) { return o.like_input; }))
          return usage_error("the kernel has no input like its output");
        break;
      case Op::kOffset:
      case Op::kNextRank:
      case Op::kRestart:
      case Op::kHalves:
      case Op::kLayout:
      case Op::kDuplicate:
        if (auto ok = check_upload(mutation_, facts_.split); !ok) return ok;
        break;
      default: break;
    }
    add(site.index, Part::kItself, 0);
    return {};
  }

  void add(uint32_t at, Part part, uint32_t other) { plan_.at[at].push_back({&mutation_, part, other, "", ""}); }
  bool has(uint32_t at, Part part) const {
    const auto found = plan_.at.find(at);
    return found != plan_.at.end() && std::any_of(found->second.begin(), found->second.end(), [&](const Action& a) {
             return a.mutation == &mutation_ && a.part == part;
           });
  }

  // The rank's next call on that stream; nothing may order that stream in between.
  Status swap_call(const Site& site) {
    if (has(site.index, Part::kPartner)) return usage_error("the call is the second of a pair already");
    for (size_t i = site.index + 1; i < sites_.size(); ++i) {
      const Site& next = sites_[i];
      if (next.after_host_wait) return usage_error("the host waits before the next call");
      if (!same(next.stream, site.stream)) continue;
      if (next.kind == SiteKind::kRecord || next.kind == SiteKind::kWait)
        return usage_error(fmt::format("{} {} stands between it and the next call", name(next.kind), next.name));
      if (next.kind != SiteKind::kCall) continue;
      add(site.index, Part::kItself, next.index);
      add(next.index, Part::kPartner, site.index);
      return {};
    }
    return usage_error("no call follows on that stream");
  }

  Status swap_creation(const Site& site) {
    const size_t next = site.index + 1;
    if (next >= sites_.size() || sites_[next].kind != SiteKind::kCreate)
      return usage_error("no communicator is created behind it");
    if (has(site.index, Part::kPartner)) return usage_error("the creation is the second of a pair already");
    add(site.index, Part::kItself, uint32_t(next));
    add(uint32_t(next), Part::kPartner, site.index);
    return {};
  }

  Status split(const Site& site) {
    if (site.group == kNoGroup) return usage_error("the call is in no group");
    if (!has(site.group, Part::kItself)) add(site.group, Part::kItself, 0);
    return {};
  }

  Status change_call(const Site& site) {
    CommSizes sizes{};
    for (Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp}) {
      const int size = facts_.mesh.size(axis);
      sizes[size_t(axis)] = size > 1 ? size : 0;
    }
    if (auto call = changed(shape_of(site), mutation_, sizes); !call) return tl::unexpected(call.error());
    add(site.index, Part::kItself, 0);
    return {};
  }

  // The operation of that stream in front of the record; a group counts as one.
  Status early(const Site& site) {
    for (size_t i = site.index; i-- > 0;) {
      const Site& before = sites_[i];
      if (!same(before.stream, site.stream)) continue;
      if (before.kind != SiteKind::kCall && before.kind != SiteKind::kKernel) continue;
      const uint32_t at = before.group == kNoGroup ? before.index : before.group;
      plan_.at[at].push_back({&mutation_, Part::kPartner, site.index, site.name, site.stream});
      add(site.index, Part::kItself, at);
      return {};
    }
    return usage_error("nothing stands on that stream in front of it");
  }

  Status stale(const Site& site) {
    int records = 0;
    for (size_t i = 0; i < site.index; ++i)
      records += sites_[i].kind == SiteKind::kRecord && same(sites_[i].name, site.name);
    // A wait is for the last of them; its name needs one more.
    if (records < (site.kind == SiteKind::kWait ? 2 : 1)) return usage_error("the event was not recorded before");
    add(site.index, Part::kItself, 0);
    return {};
  }

  Status floating(const Site& site) {
    if (std::none_of(site.outputs.begin(), site.outputs.end(), [](const Site::Output& o) {
          return (o.dtype == DType::kF32 || o.dtype == DType::kF64) && o.count > 0;
        }))
      return usage_error("the kernel writes no floating numbers");
    add(site.index, Part::kItself, 0);
    return {};
  }

  Status previous(const Site& site) {
    for (size_t i = site.index; i-- > 0;) {
      const Site& before = sites_[i];
      if (before.kind != SiteKind::kKernel || !same(before.name, site.name)) continue;
      const bool alike = std::equal(
          before.outputs.begin(), before.outputs.end(), site.outputs.begin(), site.outputs.end(),
          [](const Site::Output& a, const Site::Output& b) { return a.dtype == b.dtype && a.count == b.count; });
      if (!alike || !same(before.stream, site.stream)) continue;
      add(before.index, Part::kPartner, site.index);
      add(site.index, Part::kItself, before.index);
      return {};
    }
    return usage_error("the kernel did not run before with outputs of that size");
  }

  const Mutation& mutation_;
  const std::vector<Site>& sites_;
  const JobFacts& facts_;
  RankPlan& plan_;
  std::string why_;
};

}  // namespace

Result<std::unique_ptr<MutationPlan>> plan_mutations(std::vector<Mutation> mutations, const SiteTable& sites,
                                                     const JobFacts& facts) {
  auto plan = std::make_unique<MutationPlan>();
  plan->mutations = std::move(mutations);
  plan->ranks.resize(sites.size());
  for (const Mutation& mutation : plan->mutations) {
    const auto found = sites_of(mutation, sites);
    int matched = 0, applied = 0;
    std::string why;
    for (size_t rank = 0; rank < sites.size(); ++rank) {
      RankPlanner planner(mutation, sites[rank], facts, plan->ranks[rank]);
      matched += int(found[rank].size());
      applied += planner.apply(found[rank]);
      if (why.empty()) why = planner.why();
    }
    if (matched == 0) return tl::unexpected(nothing_matches(mutation, sites));
    if (applied == 0) return usage_error(fmt::format("mutation '{}' cannot be applied: {}", to_text(mutation), why));
  }
  return plan;
}

}  // namespace ringscope
