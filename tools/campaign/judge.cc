#include "tools/campaign/judge.h"

#include <algorithm>
#include <string_view>

namespace ringscope::campaign {
namespace {

bool is_host_op(MutationOp op) {
  return op == MutationOp::kExit || op == MutationOp::kKill || op == MutationOp::kHang || op == MutationOp::kPause;
}
// Changes what is asked of the library, or in which order: wrong whether a bit differs or not, so that a verdict which says
// so of a run that came out right is no false alarm. So is a batch that is not the loader's (is_of_the_batch).
bool changes_program(MutationOp op) {
  switch (op) {
    case MutationOp::kDrop:
    case MutationOp::kTwice:
    case MutationOp::kSwap:
    case MutationOp::kSplit:
    case MutationOp::kFunc:
    case MutationOp::kCount:
    case MutationOp::kDtype:
    case MutationOp::kRedop:
    case MutationOp::kRoot:
    case MutationOp::kPeer:
    case MutationOp::kComm: return true;
    default: return false;
  }
}

bool is_of_the_batch(SiteClass c) {
  return c == SiteClass::kPosition || c == SiteClass::kLabel || c == SiteClass::kMask || c == SiteClass::kTokens;
}

template <class List, class Item>
bool contains(const List& list, const Item& item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

void add_once(std::vector<std::string>& to, std::string_view id) {
  if (!contains(to, id)) to.emplace_back(id);
}

Axis axis_of(std::string_view word) { return word == "tp" ? Axis::kTp : word == "cp" ? Axis::kCp : Axis::kDp; }

// Is it the same place of the program, whatever the rank, the step and the microbatch, and maybe the layer?
bool same_place(const Site& a, const Site& b, bool any_layer) {
  return a.kind == b.kind && std::string_view(a.name) == b.name && (any_layer || a.where.layer == b.where.layer) &&
         a.where.ring_step == b.where.ring_step && a.where.pass == b.where.pass;
}

// The rank's next call on that stream: what "swap" exchanges a call with.
const Site* next_call(const std::vector<Site>& sites, const Site& site) {
  for (size_t i = site.index + 1; i < sites.size(); ++i)
    if (sites[i].kind == SiteKind::kCall && std::string_view(sites[i].stream) == site.stream) return &sites[i];
  return nullptr;
}

}  // namespace

Judge::Judge(const Mutation& mutation, const JobConfig& config, const SiteTable& sites, Change change,
             const TraceView& twin)
    : mutation_(mutation), config_(config), sites_(sites), change_(std::move(change)), twin_(twin),
      mesh_(*Mesh::make(config.tp, config.cp, config.dp, config.pp, config.order)) {
  edge_ = !is_host_op(mutation.op) && !change_.ranks.empty();
  each_changed([&](const Site& site) {
    const SiteClass c = class_of(site);
    if (!contains(classes_, c)) classes_.push_back(c);
    edge_ = edge_ && (site.kind == SiteKind::kRecord || site.kind == SiteKind::kWait);
  });
}

template <class Visit>
void Judge::each_changed(Visit visit) const {
  for (size_t rank = 0; rank < change_.sites.size(); ++rank)
    for (const uint32_t index : change_.sites[rank]) visit(site(int(rank), index));
}

Status Judge::read_program() {
  if (std::exchange(program_read_, true)) return {};
  for (const int rank : change_.ranks) {
    const std::vector<Site>& sites = sites_[size_t(rank)];
    const std::vector<uint32_t>& changed = change_.sites[size_t(rank)];
    const auto program = timeline_of(twin_, rank, sites);
    if (!program) return tl::unexpected(program.error());
    if (!edge_) {
      unwritten_ = unwritten_ || reads_unwritten(*program, changed);
      continue;
    }
    if (const Unordered pairs = unordered_pairs(twin_, *program); pairs.pairs)
      return tl::unexpected(Error{ErrorKind::kInternal, "rank " + std::to_string(rank) + ": the job itself leaves " +
                                                            std::to_string(pairs.pairs) + " pairs unordered"});
    const Unordered pairs = unordered_pairs(twin_, with_edges_changed(*program, mutation_, sites, changed));
    order_.pairs += pairs.pairs;
    order_.ids.insert(pairs.ids.begin(), pairs.ids.end());
  }
  return {};
}

int Judge::first_step() const {
  int first = config_.train_iters;
  each_changed([&](const Site& site) { first = std::min(first, std::max(site.where.step, 0)); });
  return first;
}

std::vector<Judge::Group> Judge::affected_groups() const {
  std::vector<Group> groups;
  const auto add = [&](int rank, Axis axis) {
    if (axis > Axis::kDp || mesh_.size(axis) < 2) return;
    Group group{axis, mesh_.group(axis, rank)};
    if (!contains(groups, group)) groups.push_back(std::move(group));
  };
  each_changed([&](const Site& changed) {
    const std::vector<Site>& own = sites_[size_t(changed.rank)];
    if (is_host_op(mutation_.op)) {  // whatever the rank would have called from here on
      for (size_t i = changed.index; i < own.size(); ++i) add(changed.rank, own[i].axis);
      return;
    }
    add(changed.rank, changed.axis);
    if (mutation_.op == MutationOp::kComm) add(changed.rank, axis_of(mutation_.value));
    if (mutation_.op == MutationOp::kSwap && changed.kind == SiteKind::kCreate && changed.index + 1 < own.size())
      add(changed.rank, own[changed.index + 1].axis);
    if (mutation_.op == MutationOp::kSwap && changed.kind == SiteKind::kCall)
      if (const Site* next = next_call(own, changed)) add(changed.rank, next->axis);
  });
  return groups;
}

// In every affected group the changed ranks are fewer than half, or that group made the call in another whole step, or an
// unchanged replica group makes it. An exit is written down: it needs no group to show it.
bool Judge::hang_is_decidable() const {
  if (mutation_.op == MutationOp::kExit) return true;
  const std::vector<Group> groups = affected_groups();
  if (groups.empty()) return false;
  if (first_step() > 0) return true;
  const auto changed_in = [&](const std::vector<int>& ranks) {
    return std::count_if(ranks.begin(), ranks.end(), [&](int rank) { return contains(change_.ranks, rank); });
  };
  return std::all_of(groups.begin(), groups.end(), [&](const Group& group) {
    if (2 * changed_in(group.ranks) < int64_t(group.ranks.size())) return true;
    const auto replicas = mesh_.groups(group.axis);
    return std::any_of(replicas.begin(), replicas.end(),
                       [&](const std::vector<int>& ranks) { return changed_in(ranks) == 0; });
  });
}

bool Judge::swaps_one_group() const {
  bool one = true;
  each_changed([&](const Site& changed) {
    const Site* next = next_call(sites_[size_t(changed.rank)], changed);
    one = one && next && next->axis == changed.axis;
  });
  return one;
}

// Somebody makes the same call unchanged: another rank, or the same one in another step or microbatch.
bool Judge::unlike_elsewhere(bool any_layer) const {
  const Site* first = nullptr;
  each_changed([&](const Site& changed) { first = first ? first : &changed; });
  if (!first) return false;
  for (size_t rank = 0; rank < sites_.size(); ++rank)
    for (const Site& other : sites_[rank])
      if (same_place(other, *first, any_layer) && !contains(change_.sites[rank], other.index)) return true;
  return false;
}

bool Judge::holds(const TableRow& row, const Measured& measured) {
  if (!row.ops.empty() && !contains(row.ops, mutation_.op)) return false;
  if (!row.value.empty() && row.value != mutation_.value) return false;
  if (!row.classes.empty() &&
      std::none_of(classes_.begin(), classes_.end(), [&](SiteClass c) { return contains(row.classes, c); }))
    return false;
  switch (row.when) {
    case When::kAlways: return true;
    case When::kSameGroup: return swaps_one_group();
    case When::kTwoGroups: return !swaps_one_group();
    case When::kUnlike: return unlike_elsewhere(false);
    case When::kUnlikeLayers: return unlike_elsewhere(true);
    case When::kUnwritten: return unwritten_;
    case When::kCopies: return measured.copies_disagree;
    case When::kNonFinite: return measured.nonfinite;
    case When::kTransfers:
      return std::any_of(sites_.begin(), sites_.end(), [](const std::vector<Site>& of_rank) {
        return std::any_of(of_rank.begin(), of_rank.end(), [](const Site& s) {
          return s.kind == SiteKind::kCall && (s.func == CollFunc::kSend || s.func == CollFunc::kRecv);
        });
      });
  }
  return false;
}

// Findings that accuse all who take part (a circle of transfers, two camps of equal size) accuse no innocent there. Nor does
// one that accuses the few: what most members of a group changed in a first step, or all of a group beside it, is, by
// everything that can be known, what the others failed to do.
std::vector<int> Judge::whoever_may(const Expected& expected) const {
  std::vector<int> may = change_.ranks;
  const bool circle = mutation_.op == MutationOp::kSplit || (mutation_.op == MutationOp::kSwap && !expected.visible);
  if (expected.effect != Effect::kHang || (!circle && expected.visible)) return may;
  for (const Group& group : affected_groups()) {
    const auto changed =
        std::count_if(group.ranks.begin(), group.ranks.end(), [&](int rank) { return contains(change_.ranks, rank); });
    if (!circle && 2 * changed <= int64_t(group.ranks.size())) continue;
    for (const int rank : group.ranks)
      if (!contains(may, rank)) may.push_back(rank);
  }
  std::sort(may.begin(), may.end());
  return may;
}

// MAX and MIN take the number where one of two is a NaN: what only they were given is gone before anything records it.
bool Judge::swallowed(const Measured& measured) const {
  bool all = mutation_.op == MutationOp::kNan && !measured.nonfinite && config_.tp > 1;
  each_changed([&](const Site& changed) { all = all && std::string_view(changed.name) == "loss.row_max"; });
  return all;
}

// Sampled are rows that see keys of several shards: a first contiguous shard has none. What a rank of the three-step
// softmax makes of its keys shows in the others' rows.
std::vector<int> Judge::whose_rows_are_sampled() const {
  const bool attention = std::all_of(classes_.begin(), classes_.end(),
                                     [](SiteClass c) { return c == SiteClass::kPart || c == SiteClass::kMerge; });
  const bool keys_stay = config_.cp_comm == CpComm::kGlobalSoftmax && !contains(classes_, SiteClass::kMerge);
  std::vector<int> ranks;
  for (const int rank : change_.ranks)
    if (!attention || config_.cp == 1 || config_.cp_layout == CpLayout::kZigzag || keys_stay ||
        mesh_.coord(rank).cp > 0)
      ranks.push_back(rank);
  return ranks;
}

Result<Expected> Judge::expect(const Measured& measured) {
  const bool completed = measured.effect == Effect::kCorrupt || measured.effect == Effect::kHarmless;
  if (completed && (edge_ || mutation_.op == MutationOp::kDrop))
    if (auto ok = read_program(); !ok) return tl::unexpected(ok.error());
  Expected out;
  out.edge = edge_;
  out.effect = measured.effect;
  out.ranks = out.seen = change_.ranks;
  if (edge_ && completed) {
    out.needed = order_.pairs > 0;
    out.ids.assign(order_.ids.begin(), order_.ids.end());
    if (order_.ids.contains("race.read_before_arrival") || order_.ids.contains("race.send_before_ready"))
      out.ids.push_back("race.uninitialised_read");  // when nothing had written there before
    if (out.needed && out.effect == Effect::kHarmless) out.effect = Effect::kOrder;
    out.visible = out.needed;
    out.may = whoever_may(out);
    return out;
  }
  out.told_anyhow = out.effect == Effect::kHarmless && !edge_ &&
                    (changes_program(mutation_.op) || mutation_.op == MutationOp::kPause ||
                     std::any_of(classes_.begin(), classes_.end(), is_of_the_batch));
  bool counts = false;
  for (const TableRow& row : judge_table()) {
    if ((row.effect != out.effect && !out.told_anyhow) || !holds(row, measured)) continue;
    for (const std::string_view id : row.ids) add_once(out.ids, id);
    counts = counts || row.counts;
    out.or_nobody = out.or_nobody || row.who == Who::kOrNobody;
  }
  // A value that a later reduction takes to another rank makes that one odd too; without a majority nobody is.
  out.odd = measured.odd;
  if (measured.copies_disagree && measured.odd.empty()) out.or_nobody = true;
  switch (out.effect) {
    case Effect::kHang: out.visible = counts && hang_is_decidable(); break;
    case Effect::kHarmless:
      if (mutation_.op == MutationOp::kSwap) add_once(out.ids, "hang.potential_cycle");
      if (mutation_.op == MutationOp::kSplit) add_once(out.ids, "hang.p2p_cycle");
      if (mutation_.op == MutationOp::kPause) add_once(out.ids, "drift.late");
      break;
    case Effect::kCorrupt:
      if (!measured.copies_disagree && !measured.nonfinite) out.seen = whose_rows_are_sampled();
      out.visible = counts && !out.seen.empty() && !swallowed(measured);
      break;
    default: out.visible = counts;
  }
  out.may = whoever_may(out);
  return out;
}

}  // namespace ringscope::campaign
