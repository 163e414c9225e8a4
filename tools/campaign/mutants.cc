#include "tools/campaign/mutants.h"

#include <algorithm>
#include <array>
#include <set>
#include <string>

#include "runtime/layout/layout.h"

namespace ringscope::campaign {
namespace {

const MutationOpRow& row_of(MutationOp op) {
  const auto rows = mutation_ops();
  return *std::find_if(rows.begin(), rows.end(), [&](const MutationOpRow& row) { return row.op == op; });
}

bool is_transfer(const Site& site) { return site.func == CollFunc::kSend || site.func == CollFunc::kRecv; }

// Beyond its kind: can the operation do anything at this site?
bool fits(MutationOp op, const Site& site) {
  const bool call = site.kind == SiteKind::kCall;
  switch (op) {
    case MutationOp::kSplit: return call && site.group != kNoGroup;
    case MutationOp::kRedop: return call && site.redop != RedOp::kNone;
    case MutationOp::kRoot: return call && site.root >= 0 && site.size > 1;
    case MutationOp::kPeer: return call && is_transfer(site) && site.size > 1;
    case MutationOp::kInput:
      return std::any_of(site.outputs.begin(), site.outputs.end(), [](const auto& out) { return out.like_input; });
    default: return true;
  }
}

// Sites by name first, so that a name that a job has in every layer is no likelier than one of a step's end.
const Site* draw_site(Random& random, MutationOp op, const SiteTable& sites) {
  const std::vector<SiteKind>& kinds = row_of(op).acts_on;
  const auto wanted = [&](const Site& site) {
    return std::find(kinds.begin(), kinds.end(), site.kind) != kinds.end() && fits(op, site);
  };
  std::set<std::string> names;
  for (const auto& of_rank : sites)
    for (const Site& site : of_rank)
      if (wanted(site)) names.insert(site.name);
  if (names.empty()) return nullptr;
  const std::string name = *std::next(names.begin(), std::ptrdiff_t(random.below(names.size())));
  std::vector<const Site*> found;
  for (const auto& of_rank : sites)
    for (const Site& site : of_rank)
      if (name == site.name && wanted(site)) found.push_back(&site);
  return random.pick(found);
}

// Parameters of the values.

std::string draw_scale(Random& random, const JobConfig& c) {
  std::vector<std::string> values{"0.5", "2", "1.01", "0.99", "10", "-1"};
  if (c.cp > 1) values.push_back(std::to_string(1.0 / c.cp));
  if (c.dp > 1) values.push_back(std::to_string(1.0 / c.dp));
  if (c.cp * c.dp > 2) values.push_back(std::to_string(1.0 / (c.cp * c.dp)));
  return random.pick(values);
}

template <class T, size_t N>
std::string draw_other(Random& random, const std::array<T, N>& all, T own) {
  std::vector<T> others;
  for (const T& value : all)
    if (value != own) others.push_back(value);
  return name(random.pick(others));
}

std::string draw_func(Random& random, const Site& site) {
  constexpr std::array collective{CollFunc::kAllReduce, CollFunc::kAllGather, CollFunc::kReduceScatter,
                                  CollFunc::kBroadcast, CollFunc::kAllToAll};
  constexpr std::array transfer{CollFunc::kSend, CollFunc::kRecv};
  return is_transfer(site) ? draw_other(random, transfer, site.func) : draw_other(random, collective, site.func);
}

std::string draw_count(Random& random, const Site& site) {
  const int64_t count = std::max(site.in_count, site.out_count);
  if (count < 2 || random.one_in(2)) return "half";
  return std::to_string(random.one_in(2) ? count - 1 : std::max<int64_t>(1, count / 4));
}

std::string draw_dtype(Random& random, const Site& site) {
  constexpr std::array types{DType::kF32, DType::kF64, DType::kI32, DType::kI64};
  return draw_other(random, types, site.dtype);
}

std::string draw_member(Random& random, const Site& site, int own) {
  std::vector<int> others;
  for (int r = 0; r < site.size; ++r)
    if (r != own && !(is_transfer(site) && r == site.group_rank)) others.push_back(r);
  return others.empty() ? "" : std::to_string(random.pick(others));
}

std::string draw_axis(Random& random, const JobConfig& c, const Site& site) {
  std::vector<std::string> others;
  for (const auto& [axis, size] : {std::pair{Axis::kTp, c.tp}, {Axis::kCp, c.cp}, {Axis::kDp, c.dp}})
    if (axis != site.axis && size > 1) others.push_back(name(axis));
  return others.empty() ? "" : random.pick(others);
}

std::string draw_stream(Random& random, const Site& site) {
  std::vector<std::string> others;
  for (const char* stream : {"compute", "cp", "dp"})
    if (std::string_view(stream) != site.stream) others.push_back(stream);
  return random.pick(others);
}

std::string draw_offset(Random& random, const JobConfig& c) {
  const std::vector<std::string> values{"1", "-1", "7", std::to_string(c.seq_length / c.cp)};
  return random.pick(values);
}

// "" where the operation takes none; nothing where no value would change anything.
std::optional<std::string> draw_value(Random& random, MutationOp op, const JobConfig& c, const Site& site) {
  constexpr std::array redops{RedOp::kSum, RedOp::kMax, RedOp::kMin, RedOp::kAvg};
  constexpr std::array shifts{"1", "0.01", "-1", "100"};
  constexpr std::array pauses{"0.05", "0.1", "0.3"};
  std::string value;
  switch (op) {
    case MutationOp::kFunc: value = draw_func(random, site); break;
    case MutationOp::kCount: value = draw_count(random, site); break;
    case MutationOp::kDtype: value = draw_dtype(random, site); break;
    case MutationOp::kRedop: value = draw_other(random, redops, site.redop); break;
    case MutationOp::kRoot: value = draw_member(random, site, site.root); break;
    case MutationOp::kPeer: value = draw_member(random, site, site.peer); break;
    case MutationOp::kComm: value = draw_axis(random, c, site); break;
    case MutationOp::kStream: value = draw_stream(random, site); break;
    case MutationOp::kScale: value = draw_scale(random, c); break;
    case MutationOp::kShift: value = random.pick(shifts); break;
    case MutationOp::kOffset: value = draw_offset(random, c); break;
    case MutationOp::kLayout: value = c.cp_layout == CpLayout::kZigzag ? "contiguous" : "zigzag"; break;
    case MutationOp::kPause: value = random.pick(pauses); break;
    default: return "";
  }
  return value.empty() ? std::nullopt : std::optional(value);
}

// The narrowing.

void at_place(SiteFilter& filter, const Where& where) {
  filter.layer = where.layer;
  filter.microbatch = where.microbatch;
  filter.ring_step = where.ring_step;
  if (where.pass != Pass::kNone) filter.pass = where.pass;
}

// Several ranks, the drawn one among them, but not all.
std::vector<std::pair<int, int>> some_ranks(Random& random, int world, int rank) {
  std::vector<std::pair<int, int>> ranks;
  const int wanted = world > 3 ? random.between(2, world - 2) : std::min(2, world - 1);
  std::vector<int> chosen{rank};
  while (int(chosen.size()) < wanted) {
    const int other = int(random.below(size_t(world)));
    if (std::find(chosen.begin(), chosen.end(), other) == chosen.end()) chosen.push_back(other);
  }
  std::sort(chosen.begin(), chosen.end());
  for (const int r : chosen) ranks.push_back({r, r});
  return ranks;
}

// A layer, a microbatch, a pass or a ring step: what a wrong branch in a program leaves out.
void widen_to_scope(Random& random, SiteFilter& filter, const Where& where) {
  filter.name = "*";
  filter.kind.reset();
  std::vector<int> scopes;
  if (where.layer >= 0) scopes.push_back(0);
  if (where.microbatch >= 0) scopes.push_back(1);
  if (where.pass != Pass::kNone) scopes.push_back(2);
  if (where.ring_step >= 0) scopes.push_back(3);
  if (scopes.empty()) return;
  switch (random.pick(scopes)) {
    case 0:
      filter.layer = where.layer;
      if (where.pass != Pass::kNone) filter.pass = where.pass;
      break;
    case 1: filter.microbatch = where.microbatch; break;
    case 2: filter.pass = where.pass; break;
    default: at_place(filter, where);
  }
}

// A name may be a call's and an event's: then the kind is written too.
void name_kind(SiteFilter& filter, MutationOp op, const Site& site, const SiteTable& sites) {
  const std::vector<SiteKind>& kinds = row_of(op).acts_on;
  for (const auto& of_rank : sites)
    for (const Site& other : of_rank)
      if (other.kind != site.kind && std::string_view(other.name) == site.name &&
          std::find(kinds.begin(), kinds.end(), other.kind) != kinds.end()) {
        filter.kind = site.kind;
        return;
      }
}

// Which of the rank's matches the site is, when there are several.
void count_off(SiteFilter& filter, MutationOp op, const Site& site, const SiteTable& sites) {
  const std::vector<SiteKind>& kinds = row_of(op).acts_on;
  int matches = 0, own = 0;
  for (const Site& other : sites[size_t(site.rank)]) {
    if (std::find(kinds.begin(), kinds.end(), other.kind) == kinds.end() || !filter.matches(other)) continue;
    if (other.index == site.index) own = matches;
    ++matches;
  }
  if (matches > 1) filter.n = own;
}

SiteFilter narrow(Random& random, MutationOp op, Reach reach, const Site& site, const SiteTable& sites) {
  const int world = int(sites.size());
  SiteFilter filter;
  filter.name = site.name;
  if (reach != Reach::kScope) {
    at_place(filter, site.where);
    name_kind(filter, op, site, sites);
  }
  filter.step_from = site.where.step;
  const bool onward = reach == Reach::kRankOnward || reach == Reach::kEverywhere;
  filter.step_to = onward ? -1 : site.where.step;
  if (reach == Reach::kOnce || reach == Reach::kRankOnward) filter.ranks = {{site.rank, site.rank}};
  if (reach == Reach::kSomeRanks) filter.ranks = some_ranks(random, world, site.rank);
  if (reach == Reach::kScope) {
    filter.ranks = random.one_in(3) ? some_ranks(random, world, site.rank)
                                    : std::vector<std::pair<int, int>>{{site.rank, site.rank}};
    widen_to_scope(random, filter, site.where);
  } else if (!onward) {
    count_off(filter, op, site, sites);
  }
  return filter;
}

Reach draw_reach(Random& random, MutationOp op, const Site& site) {
  const bool scoped = op == MutationOp::kDrop && site.kind != SiteKind::kCreate && site.where.step >= 0;
  return Reach(random.below(scoped ? 6 : 5));
}

}  // namespace

std::optional<Mutation> draw_mutation(Random& random, MutationOp op, const JobConfig& config, const SiteTable& sites) {
  const Site* site = draw_site(random, op, sites);
  if (!site) return std::nullopt;
  const std::optional<std::string> value = draw_value(random, op, config, *site);
  if (!value) return std::nullopt;
  Mutation mutation;
  mutation.op = op;
  mutation.value = *value;
  mutation.site = narrow(random, op, draw_reach(random, op, *site), *site, sites);
  return mutation;
}

}  // namespace ringscope::campaign
