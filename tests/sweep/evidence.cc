#include "tests/sweep/evidence.h"

#include <algorithm>

#include "tests/support/view_filter.h"

namespace ringscope::testing {
namespace {

using Ranks = std::vector<int>;

void plans(TraceView& view, const Ranks&, uint64_t) { view.ring_plans.clear(); }

void places(TraceView& view, const Ranks&, uint64_t) {
  const auto forget = [](auto& rows) {
    for (auto& row : rows) row.where = {};
  };
  forget(view.ops), forget(view.syncs), forget(view.rank_exits), forget(view.ring_plans);
  forget(view.position_runs), forget(view.softmax_rows), forget(view.softmax_stats), forget(view.tensor_stats);
  forget(view.attention_rows), forget(view.label_runs), forget(view.memory_samples), forget(view.train_steps);
  forget(view.step_values), forget(view.update_samples);
}

void axes(TraceView& view, const Ranks&, uint64_t) {
  for (CommRow& comm : view.comms) comm.axis = Axis::kUnknown, comm.name.clear();
  for (RankRow& row : view.ranks) row.tp = row.cp = row.dp = row.pp = 0;
}

void names(TraceView& view, const Ranks&, uint64_t) {
  for (OpRow& op : view.ops) op.name = 0;
  for (SyncRow& sync : view.syncs) sync.name = 0;
  for (BufferRow& buffer : view.buffers) buffer.name = 0;
  for (StreamRow& stream : view.streams) stream.name.clear();
}

void device_records(TraceView& view, const Ranks&, uint64_t) {
  keep_ops(view, [](const OpRow& op) { return op.kind == OpKind::kCollective || op.kind == OpKind::kP2p; });
  view.syncs.clear(), view.accesses.clear(), view.buffers.clear();
}

void exits(TraceView& view, const Ranks&, uint64_t) { view.rank_exits.clear(); }

void outcome(TraceView& view, const Ranks&, uint64_t) {
  view.rank_exits.clear();
  view.meta.erase(meta_key::kOutcome);
}

// The launcher's ring: what it says about the job, and about ranks that did not end by themselves.
void launcher_ring(TraceView& view, const Ranks&, uint64_t) {
  view.meta.clear();
  std::erase_if(view.rank_exits, [](const RankExitRow& row) { return row.status < 0; });
}

// The ring of one stream's worker: what it started and ended.
void worker_ring(TraceView& view, const Ranks&, uint64_t seed) {
  if (view.streams.empty()) return;
  const uint32_t stream = view.streams[seed % view.streams.size()].stream;
  for (OpRow& op : view.ops)
    if (op.stream == stream) op.state = OpState::kScheduled, op.start_ns = op.end_ns = 0, op.bytes_sent = 0;
}

void remove_rank(TraceView& view, int rank) {
  keep_ops(view, [&](const OpRow& op) { return op.rank != rank; });
  const auto of = [&](const auto& row) { return row.rank == rank; };
  std::erase_if(view.ranks, of), std::erase_if(view.rank_exits, of), std::erase_if(view.streams, of);
  std::erase_if(view.syncs, of), std::erase_if(view.buffers, of), std::erase_if(view.ring_plans, of);
  std::erase_if(view.position_runs, of), std::erase_if(view.softmax_rows, of), std::erase_if(view.softmax_stats, of);
  std::erase_if(view.attention_rows, of), std::erase_if(view.label_runs, of);
  std::erase_if(view.tensor_stats, of), std::erase_if(view.memory_samples, of), std::erase_if(view.train_steps, of);
  std::erase_if(view.step_values, of), std::erase_if(view.update_samples, of);
}

void innocent_rank(TraceView& view, const Ranks& accused, uint64_t seed) {
  Ranks innocent;
  for (const RankRow& row : view.ranks)
    if (std::find(accused.begin(), accused.end(), row.rank) == accused.end()) innocent.push_back(row.rank);
  if (!innocent.empty()) remove_rank(view, innocent[seed % innocent.size()]);
}

void accused_rank(TraceView& view, const Ranks& accused, uint64_t seed) {
  const int rank = accused[seed % accused.size()];
  remove_rank(view, rank);
  // Its own record of the groups may be gone as well: a member without a name.
  if (seed / accused.size() % 2)
    for (CommRow& comm : view.comms) std::replace(comm.ranks.begin(), comm.ranks.end(), rank, -1);
}

}  // namespace

const std::vector<Removal>& removals() {
  static const std::vector<Removal> all = {
      {"ring plans", plans},
      {"places", places},
      {"axes, coordinates", axes},
      {"names", names},
      {"device records", device_records},
      {"exits", exits},
      {"outcome and exits", outcome},
      {"the launcher's ring", launcher_ring},
      {"a worker's ring", worker_ring},
      {"an innocent rank", innocent_rank},
      {"the accused rank", accused_rank},
  };
  return all;
}

const char* name(Judgement judgement) {
  return judgement == Judgement::kRight ? "right" : judgement == Judgement::kCareful ? "careful" : "WRONG";
}

Judgement judge_without(const Case& c, const TraceView& view, const Report& report) {
  std::vector<const Finding*> roots;
  for (const Finding& f : report.findings)
    if (f.root) roots.push_back(&f);
  // Of several accused the trace may lack one: then the others are accused.
  Ranks shown;
  std::copy_if(c.ranks.begin(), c.ranks.end(), std::back_inserter(shown), [&](int rank) {
    return std::any_of(view.ops.begin(), view.ops.end(), [&](const OpRow& op) { return op.rank == rank; });
  });
  if (roots.size() == 1 && roots[0]->id == c.finding && !shown.empty() &&
      (roots[0]->ranks == shown || roots[0]->ranks == c.ranks))
    return Judgement::kRight;
  const bool undecided = roots.size() == 1 && roots[0]->id == "hang.undecided" && roots[0]->ranks.empty() &&
                         !roots[0]->would_raise_confidence.empty();
  if (undecided || (roots.empty() && !report.missing_evidence.empty())) return Judgement::kCareful;
  return Judgement::kWrong;
}

std::vector<Case> hang_cases(int variants) {
  std::vector<Case> cases;
  for (Case& c : fault_cases(variants)) {
    if (!c.finding.starts_with("hang.")) continue;
    cases.push_back(std::move(c));
  }
  // With the keys that nobody wrote: as `--fault NAME` plants it.
  for (const FaultRow& row : fault_rows()) {
    if (!row.finding.starts_with("hang.")) continue;
    Case c = *std::find_if(cases.begin(), cases.end(), [&](const Case& known) { return known.finding == row.finding; });
    c.name = std::string(row.name) + " default";
    c.config.tp = c.config.cp = 2, c.config.dp = 1;
    c.config.sequence_parallel = true;
    if (row.id != FaultId::kCrossGroupOrder) c.config.tp = 1, c.config.sequence_parallel = false;
    if (row.id == FaultId::kRingEarlyExit) c.config.cp = 4;
    c.config.global_batch_size = 2;
    c.config.turns = false;
    c.config.fault = *parse_fault(row.name);
    c.ranks = row.id == FaultId::kCrossGroupOrder ? std::vector<int>{0, 3} : std::vector<int>{1};
    cases.push_back(std::move(c));
  }
  return cases;
}

}  // namespace ringscope::testing
