#include "runtime/adversary/refusal.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "tracedb/base/nearest.h"

namespace ringscope {
namespace {

bool acts_on(const Mutation& mutation, SiteKind kind) {
  const auto& kinds = mutation_ops()[size_t(mutation.op)].acts_on;
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

template <class F>
void for_each(const SiteTable& sites, F visit) {
  for (const auto& of_rank : sites)
    for (const Site& site : of_rank) visit(site);
}

// With everything but the name left open.
SiteFilter name_of(const SiteFilter& site) {
  SiteFilter name;
  name.name = site.name;
  return name;
}

std::string names_text(const std::set<std::string>& names) {
  constexpr size_t kShown = 12;
  std::string text;
  size_t n = 0;
  for (const std::string& name : names) {
    if (n++ == kShown) return text + fmt::format(" and {} more", names.size() - kShown);
    text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

}  // namespace

std::string describe(const Site& site) {
  std::string text = fmt::format("{} {} (rank {}", name(site.kind), site.name, site.rank);
  const Where& w = site.where;
  const auto add = [&](const char* key, int value) {
    if (value >= 0) text += fmt::format(", {} {}", key, value);
  };
  add("step", w.step);
  add("microbatch", w.microbatch);
  add("layer", w.layer);
  add("ring_step", w.ring_step);
  constexpr const char* kPasses[] = {"forward", "backward", "optimizer"};
  if (w.pass != Pass::kNone) text += fmt::format(", pass {}", kPasses[size_t(w.pass)]);
  if (*site.stream) text += fmt::format(", stream {}", site.stream);
  return text + ")";
}

Error nothing_matches(const Mutation& mutation, const SiteTable& sites) {
  const SiteFilter any_place = name_of(mutation.site);
  std::set<std::string> names, other_kinds;
  const Site* near = nullptr;
  for_each(sites, [&](const Site& site) {
    if (any_place.matches(site)) {
      if (!acts_on(mutation, site.kind)) other_kinds.insert(name(site.kind));
      else if (!near) near = &site;
    }
    if (acts_on(mutation, site.kind)) names.insert(site.name);
  });
  const std::string text = to_text(mutation);
  if (near) {
    int matches = 0;
    for_each(sites, [&](const Site& site) { matches += any_place.matches(site) && acts_on(mutation, site.kind); });
    return {ErrorKind::kUsage, fmt::format("mutation '{}' matches nothing: there are {} sites of that name at other "
                                           "places, the first is {}; train --sites lists them",
                                           text, matches, describe(*near))};
  }
  const std::string_view op = mutation_ops()[size_t(mutation.op)].name;
  if (!other_kinds.empty())
    return {ErrorKind::kUsage, fmt::format("mutation '{}': {} is a {}, and {} does not act on one; it acts on {}", text,
                                           mutation.site.name, *other_kinds.begin(), op, names_text(names))};
  const std::vector<std::string_view> known(names.begin(), names.end());
  return {ErrorKind::kUsage, fmt::format("mutation '{}': no site is called '{}'{}; {} acts on {}", text,
                                         mutation.site.name, did_you_mean(mutation.site.name, known), op,
                                         names.empty() ? "nothing in this job" : names_text(names))};
}

}  // namespace ringscope
