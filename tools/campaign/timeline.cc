#include "tools/campaign/timeline.h"

#include <algorithm>

namespace ringscope::campaign {
namespace {

bool runs_on_a_stream(OpKind kind) {
  return kind == OpKind::kKernel || kind == OpKind::kCollective || kind == OpKind::kP2p;
}

Item item_of(const TraceView& view, const OpRow& op, uint32_t row) {
  return {runs_on_a_stream(op.kind) ? Item::Kind::kOp : Item::Kind::kHostRead,
          row,
          op.stream,
          0,
          op.group,
          view.text(op.name)};
}
Item item_of(const TraceView& view, const SyncRow& sync, uint32_t row) {
  const Item::Kind kind = sync.kind == SyncKind::kRecord ? Item::Kind::kRecord
                          : sync.kind == SyncKind::kWait ? Item::Kind::kWait
                                                         : Item::Kind::kHostSync;
  return {kind, row, sync.stream, sync.key, 0, view.text(sync.name)};
}

bool is_site(const Item& item) {
  if (item.kind == Item::Kind::kOp) return !is_statistic(item.name);
  return item.kind == Item::Kind::kRecord || item.kind == Item::Kind::kWait;
}

bool same_kind(const Item& item, const Site& site) {
  switch (item.kind) {
    case Item::Kind::kRecord: return site.kind == SiteKind::kRecord;
    case Item::Kind::kWait: return site.kind == SiteKind::kWait;
    default: return site.kind == SiteKind::kCall || site.kind == SiteKind::kKernel;
  }
}

}  // namespace

Result<Timeline> timeline_of(const TraceView& view, int rank, const std::vector<Site>& sites) {
  Timeline out;
  std::vector<std::pair<uint64_t, Item>> issued;
  for (uint32_t row = 0; row < view.ops.size(); ++row)
    if (view.ops[row].rank == rank) issued.emplace_back(view.ops[row].issue, item_of(view, view.ops[row], row));
  for (uint32_t row = 0; row < view.syncs.size(); ++row)
    if (view.syncs[row].rank == rank) issued.emplace_back(view.syncs[row].issue, item_of(view, view.syncs[row], row));
  std::stable_sort(issued.begin(), issued.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<uint32_t> item_of_op(view.ops.size(), kNoRow);
  for (const auto& [issue, item] : issued) {
    if (item.kind == Item::Kind::kOp || item.kind == Item::Kind::kHostRead)
      item_of_op[item.row] = uint32_t(out.items.size());
    out.items.push_back(item);
  }
  out.accesses.resize(out.items.size());
  for (const AccessRow& access : view.accesses)
    if (access.op != kNoRow && item_of_op[access.op] != kNoRow && access.mode != AccessMode::kFree)
      out.accesses[item_of_op[access.op]].push_back(access);
  for (const StreamRow& stream : view.streams)
    if (stream.rank == rank) out.streams.emplace_back(stream.stream, stream.name);

  out.item_of_site.assign(sites.size(), kNoRow);
  size_t at = 0;
  for (const Site& site : sites) {
    if (site.kind == SiteKind::kCreate || site.kind == SiteKind::kUpload) continue;
    while (at < out.items.size() && !is_site(out.items[at])) ++at;
    if (at == out.items.size() || !same_kind(out.items[at], site) || out.items[at].name != site.name)
      return tl::unexpected(
          Error{ErrorKind::kInternal, "rank " + std::to_string(rank) + ": site " + std::to_string(site.index) + " " +
                                          site.name + " is not what was recorded there: " +
                                          (at == out.items.size() ? "nothing" : std::string(out.items[at].name))});
    out.item_of_site[site.index] = uint32_t(at++);
  }
  return out;
}

}  // namespace ringscope::campaign
