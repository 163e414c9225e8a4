#include "tools/cli/sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "runtime/fault/mutation.h"
#include "tools/cli/output.h"
#include "tracedb/base/rank_range.h"

namespace ringscope::cli {
namespace {

using nlohmann::ordered_json;

const char* pass_word(Pass pass) {
  constexpr const char* kWords[] = {"forward", "backward", "optimizer"};
  return pass == Pass::kNone ? "none" : kWords[size_t(pass)];
}

struct Row {
  const Site* first = nullptr;
  std::set<int> ranks, steps, microbatches, layers, ring_steps;
  std::map<int, int> per_rank;
};

// In the order in which a rank comes to them.
std::vector<Row> rows_of(const SiteTable& sites) {
  using Key = std::tuple<SiteKind, std::string, std::string, Axis, CollFunc, Pass>;
  std::map<Key, size_t> row_of;
  std::vector<Row> rows;
  for (const auto& of_rank : sites)
    for (const Site& site : of_rank) {
      const Key key{site.kind, site.name, site.stream, site.axis, site.func, site.where.pass};
      const auto [found, fresh] = row_of.try_emplace(key, rows.size());
      if (fresh) rows.emplace_back().first = &site;
      Row& row = rows[found->second];
      const auto note = [](std::set<int>& seen, int value) {
        if (value >= 0) seen.insert(value);
      };
      row.ranks.insert(site.rank);
      ++row.per_rank[site.rank];
      note(row.steps, site.where.step);
      note(row.microbatches, site.where.microbatch);
      note(row.layers, site.where.layer);
      note(row.ring_steps, site.where.ring_step);
    }
  return rows;
}

std::string range(const std::set<int>& values) {
  return values.empty() ? "-" : format_rank_range({values.begin(), values.end()});
}

std::string operation(const Site& site) {
  if (site.kind != SiteKind::kCall) return site.kind == SiteKind::kCreate ? name(site.axis) : "";
  return fmt::format("{} {} {}{}", name(site.axis), name(site.func), name(site.dtype),
                     site.redop == RedOp::kNone ? "" : fmt::format(" {}", name(site.redop)));
}

std::string operations_on(SiteKind kind) {
  std::string text;
  for (const MutationOpRow& op : mutation_ops())
    if (std::find(op.acts_on.begin(), op.acts_on.end(), kind) != op.acts_on.end())
      text += fmt::format("{}{}{}", text.empty() ? "" : " ", op.name, op.value.empty() ? "" : "=");
  return text;
}

ordered_json as_json(const Row& row) {
  const Site& site = *row.first;
  const auto list = [](const std::set<int>& values) {
    return ordered_json(std::vector<int>(values.begin(), values.end()));
  };
  ordered_json out = {{"kind", name(site.kind)}, {"name", site.name}};
  if (*site.stream) out["stream"] = site.stream;
  if (site.kind == SiteKind::kCall || site.kind == SiteKind::kCreate) out["group"] = name(site.axis);
  if (site.kind == SiteKind::kCall) {
    out["op"] = name(site.func);
    out["dtype"] = name(site.dtype);
    if (site.redop != RedOp::kNone) out["redop"] = name(site.redop);
    out["grouped"] = site.group != kNoGroup;
  }
  out["pass"] = pass_word(site.where.pass);
  out["ranks"] = list(row.ranks);
  out["steps"] = list(row.steps);
  out["microbatches"] = list(row.microbatches);
  out["layers"] = list(row.layers);
  out["ring_steps"] = list(row.ring_steps);
  out["sites_of_first_rank"] = row.per_rank.begin()->second;
  return out;
}

}  // namespace

void print_sites(const SiteTable& sites, bool json) {
  const std::vector<Row> rows = rows_of(sites);
  if (json) {
    ordered_json list = ordered_json::array(), operations = ordered_json::array();
    for (const Row& row : rows) list.push_back(as_json(row));
    for (const MutationOpRow& op : mutation_ops()) {
      ordered_json kinds = ordered_json::array();
      for (SiteKind kind : op.acts_on) kinds.push_back(name(kind));
      operations.push_back({{"op", op.name}, {"value", op.value}, {"kinds", kinds}});
    }
    return print_json({{"schema", "ringscope.sites/1"}, {"sites", list}, {"operations", operations}});
  }
  print(fmt::format("{:<7} {:<26} {:<9} {:<8} {:<26} {:<7} {:<7} {:<7} {:<7} {:<9} {}\n", "kind", "name", "pass",
                    "stream", "operation", "ranks", "steps", "microb", "layers", "ringstep", "a rank"));
  for (const Row& row : rows) {
    const Site& site = *row.first;
    print(fmt::format("{:<7} {:<26} {:<9} {:<8} {:<26} {:<7} {:<7} {:<7} {:<7} {:<9} {}\n", name(site.kind), site.name,
                      pass_word(site.where.pass), site.stream, operation(site), range(row.ranks), range(row.steps),
                      range(row.microbatches), range(row.layers), range(row.ring_steps), row.per_rank.begin()->second));
  }
  print("\n");
  for (SiteKind kind :
       {SiteKind::kCall, SiteKind::kKernel, SiteKind::kRecord, SiteKind::kWait, SiteKind::kUpload, SiteKind::kCreate})
    print(fmt::format("{:<7} {}\n", name(kind), operations_on(kind)));
}

}  // namespace ringscope::cli
