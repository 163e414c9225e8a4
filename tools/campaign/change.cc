// Which ranks a mutation really changes: the runtime's plan says where it is applied; a column of a batch may come out as
// it was (a first shard whose positions are counted from 0).
#include <algorithm>
#include <string_view>

#include "runtime/adversary/plan.h"
#include "runtime/adversary/upload.h"
#include "runtime/config/split.h"
#include "tools/campaign/judge.h"

namespace ringscope::campaign {
namespace {

// What the loader makes of a row, as far as the layout alone says.
int value_of(std::string_view column, const SequenceSplit& split, int32_t row) {
  const bool padding = row >= split.length();
  if (column == "batch.position") return padding ? 0 : row;
  if (column == "batch.document") return padding ? -1 : 0;
  if (column == "batch.sample") return 0;
  return padding && column != "batch.row" ? -1 : row;  // tokens and labels differ from row to row
}

// Columns of one batch that share a name are of the CP ranks in turn; of rows, the own one comes first.
int column_owner(const std::vector<Site>& sites, const Site& site, int own, int cp) {
  int before = 0;
  for (uint32_t i = site.index; i-- > 0;) {
    const Site& other = sites[i];
    if (other.where.step != site.where.step || other.where.microbatch != site.where.microbatch) break;
    before += other.kind == SiteKind::kUpload && std::string_view(other.name) == site.name;
  }
  const std::string_view name = site.name;
  if (name == "batch.document") return before % cp;
  if (name != "batch.row" || before == 0) return own;
  return before - 1 < own ? before - 1 : before;
}

bool column_changes(const Mutation& mutation, const SequenceSplit& split, const std::vector<Site>& sites,
                    const Site& site, int own) {
  Upload upload{site.name, column_owner(sites, site, own, split.cp()), {}, 0};
  upload.rows = split.rows(upload.cp);
  const std::vector<int32_t> before = upload.rows;
  change_upload(upload, mutation, split);
  for (size_t i = 0; i < before.size(); ++i) {
    const int was = value_of(site.name, split, before[i]), is = value_of(site.name, split, upload.rows[i]);
    if (was != (is < 0 ? is : std::max(is + upload.shift, 0))) return true;
  }
  return false;
}

}  // namespace

Result<Change> change_of(const Mutation& mutation, const JobConfig& config, const SiteTable& sites) {
  auto mesh = Mesh::make(config.tp, config.cp, config.dp, config.pp, config.order);
  if (!mesh) return tl::unexpected(mesh.error());
  auto split = sequence_split(config);
  if (!split) return tl::unexpected(split.error());
  auto plan = plan_mutations({mutation}, sites, {*mesh, *split});
  if (!plan) return tl::unexpected(plan.error());
  Change change;
  change.sites.resize(sites.size());
  for (size_t rank = 0; rank < sites.size(); ++rank) {
    std::vector<uint32_t>& changed = change.sites[rank];
    for (const auto& [index, actions] : (*plan)->ranks[rank].at) {
      if (std::none_of(actions.begin(), actions.end(), [](const Action& a) { return a.part == Action::Part::kItself; }))
        continue;
      const Site& site = sites[rank][index];
      if (site.kind == SiteKind::kUpload && mutation.op >= MutationOp::kOffset &&
          mutation.op <= MutationOp::kDuplicate &&
          !column_changes(mutation, *split, sites[rank], site, mesh->coord(int(rank)).cp))
        continue;
      changed.push_back(index);
    }
    std::sort(changed.begin(), changed.end());
    if (!changed.empty()) change.ranks.push_back(int(rank));
  }
  return change;
}

}  // namespace ringscope::campaign
