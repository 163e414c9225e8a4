#include "tools/analyze/index.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "tracedb/base/check.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {

// Two host threads may use one sequence: rows come in time order, numbers do not.
void Numbered::put(uint64_t n, uint32_t row) {
  constexpr uint64_t kLongestHole = 1u << 20;  // lost records leave holes; a longer one is a damaged number
  if (rows.empty()) first = n;
  if (n < first) {
    if (first - n > kLongestHole) return;
    rows.insert(rows.begin(), size_t(first - n), kNoRow);
    first = n;
  }
  if (n >= end()) {
    if (n - end() > kLongestHole) return;
    rows.resize(size_t(n - first + 1), kNoRow);
  }
  rows[size_t(n - first)] = row;
}

TraceIndex::TraceIndex(const TraceView& v) : view(v), dealt(dealt_rows(v)) {
  const auto outcome = view.meta.find(meta_key::kOutcome);
  ended = outcome != view.meta.end();
  stalled = ended && outcome->second == "stalled";
  for (size_t i = 0; i < view.lost.size(); ++i)
    if (view.lost[i].records || view.lost[i].torn) losses_[view.lost[i].rank].push_back(i);
  index_ops();
  for (size_t i = 0; i < view.rank_exits.size(); ++i) {
    const RankExitRow& exit = view.rank_exits[i];
    exit_row_.try_emplace(exit.rank, i);
    if (exit.status != -2) continue;
    blocked_.push_back(exit.rank);  // written only when a stall is declared; the outcome may not be there yet
    stalled = true;
  }
  sort_unique(blocked_);
  for (size_t i = 0; i < view.syncs.size(); ++i)
    syncs_.try_emplace(view.syncs[i].rank, i, i).first->second.second = i + 1;
  for (size_t i = 0; i < view.ranks.size(); ++i) rank_row_.try_emplace(view.ranks[i].rank, i);
  for (size_t i = 0; i < view.streams.size(); ++i) stream_[view.streams[i].stream] = i;
  for (size_t i = 0; i < view.buffers.size(); ++i) buffer_[view.buffers[i].buffer] = i;
  index_comms();
  index_calls();
}

void TraceIndex::index_ops() {
  int rank = -1, step = -1;
  std::pair<uint32_t, uint32_t>* rows = nullptr;
  for (uint32_t row = 0; row < view.ops.size(); ++row) {
    const OpRow& op = view.ops[row];
    if (!rows || op.rank != rank) {
      rank = op.rank, step = -1;
      rows = &ops_.try_emplace(rank, row, row).first->second;
    }
    rows->second = row + 1;
    if (op.where.step >= 0 && op.where.step != step) {
      step = op.where.step;
      step_ns_.try_emplace({rank, step}, op.enqueue_ns);
    }
    if (is_comm(op) && op.state == OpState::kStarted && (blocked_.empty() || blocked_.back() != rank))
      blocked_.push_back(rank);
    if (is_comm(op) && !is_call(op)) half_lost_[rank].push_back(op.enqueue_ns);
  }
  for (auto& [whose, times] : half_lost_) std::sort(times.begin(), times.end());
  for (const auto& [known, range] : ops_) ranks_.push_back(known);
  std::sort(ranks_.begin(), ranks_.end());
}

void TraceIndex::index_comms() {
  const Axis sequence = sequence_axis(view, dealt);
  for (size_t i = 0; i < view.comms.size(); ++i) {
    const CommRow& comm = view.comms[i];
    comm_row_[comm.comm] = i;
    CommCalls calls;
    calls.comm = &comm;
    for (int32_t rank : comm.ranks) {
      if (rank >= 0) {
        group_rank_.try_emplace(uint64_t(i) << 32 | uint32_t(rank), int(calls.members.size()));
        if (comm.axis == sequence) cp_comm_.try_emplace(rank, i);
      }
      MemberCalls member;
      member.rank = rank;
      member.seen = ops_.contains(rank);
      calls.members.push_back(std::move(member));
    }
    comms.push_back(std::move(calls));
  }
}

void TraceIndex::index_calls() {
  uint32_t comm = 0;
  int rank = -1;
  MemberCalls* member = nullptr;  // of the last row: neighbours usually share it
  for (uint32_t row = 0; row < view.colls.size(); ++row) {
    const CollRow& coll = view.colls[row];
    if (coll.op >= view.ops.size()) continue;
    if (!member || coll.comm != comm || view.ops[coll.op].rank != rank) {
      comm = coll.comm, rank = view.ops[coll.op].rank;
      const auto found = comm_row_.find(comm);
      const int at = group_rank(comm, rank);
      member = found == comm_row_.end() || at < 0 ? nullptr : &comms[found->second].members[size_t(at)];
    }
    if (member) member->calls.put(coll.seq, row);
  }
}

int TraceIndex::group_rank(uint32_t comm, int rank) const {
  const auto row = comm_row_.find(comm);
  if (row == comm_row_.end()) return -1;
  const auto found = group_rank_.find(uint64_t(row->second) << 32 | uint32_t(rank));
  return found == group_rank_.end() ? -1 : found->second;
}

bool TraceIndex::lossless(int rank, int64_t from_ns, int64_t to_ns) const {
  for (int whose : {rank, -1}) {
    const auto found = losses_.find(whose);
    if (found == losses_.end()) continue;
    for (size_t i : found->second) {
      const LostRow& row = view.lost[i];
      if (row.touches(from_ns, to_ns)) return false;
    }
    if (rank < 0) break;
  }
  const auto half = half_lost_.find(rank);
  if (half == half_lost_.end()) return true;
  const std::vector<int64_t>& times = half->second;
  if (times.front() == 0) return false;  // when is not known
  const auto at = std::lower_bound(times.begin(), times.end(), from_ns);
  return at == times.end() || (to_ns != 0 && *at > to_ns);
}

std::pair<size_t, size_t> TraceIndex::syncs_of(int rank) const {
  const auto found = syncs_.find(rank);
  return found == syncs_.end() ? std::pair<size_t, size_t>{0, 0} : found->second;
}

const CommRow* TraceIndex::comm(uint32_t id) const {
  const auto found = comm_row_.find(id);
  return found == comm_row_.end() ? nullptr : &view.comms[found->second];
}

const CommCalls* TraceIndex::calls(uint32_t id) const {
  const auto found = comm_row_.find(id);
  return found == comm_row_.end() ? nullptr : &comms[found->second];
}

std::pair<uint32_t, uint32_t> TraceIndex::ops_of(int rank) const {
  const auto found = ops_.find(rank);
  return found == ops_.end() ? std::pair<uint32_t, uint32_t>{0, 0} : found->second;
}

std::string TraceIndex::stream_name(uint32_t stream) const {
  const auto found = stream_.find(stream);
  if (found == stream_.end() || view.streams[found->second].name.empty()) return "stream " + std::to_string(stream);
  return view.streams[found->second].name;
}

const BufferRow* TraceIndex::buffer(uint64_t id) const {
  const auto found = buffer_.find(id);
  return found == buffer_.end() ? nullptr : &view.buffers[found->second];
}

const RankRow* TraceIndex::rank(int rank) const {
  const auto found = rank_row_.find(rank);
  return found == rank_row_.end() ? nullptr : &view.ranks[found->second];
}

const RankExitRow* TraceIndex::exit_of(int rank) const {
  const auto found = exit_row_.find(rank);
  return found == exit_row_.end() ? nullptr : &view.rank_exits[found->second];
}

std::vector<int> TraceIndex::cp_members(int rank) const {
  if (const auto found = cp_comm_.find(rank); found != cp_comm_.end()) {
    const CommRow& comm = view.comms[found->second];
    return {comm.ranks.begin(), comm.ranks.end()};
  }
  const RankRow* self = this->rank(rank);
  std::vector<std::pair<int, int>> members;  // (cp coordinate, rank)
  for (const RankRow& other : view.ranks)
    if (self && other.tp == self->tp && other.dp == self->dp && other.pp == self->pp)
      members.emplace_back(other.cp, other.rank);
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& [cp, member] : members) ranks.push_back(member);
  // One place twice: coordinates were not recorded.
  for (size_t i = 1; i < members.size(); ++i)
    if (members[i].first == members[i - 1].first) return {};
  return ranks;
}

std::optional<GroupRef> TraceIndex::cp_group(int rank) const {
  std::vector<int> members = cp_members(rank);
  if (members.size() < 2) return std::nullopt;
  return GroupRef{"cp", std::move(members)};
}

int64_t TraceIndex::step_ns(int rank, int step) const {
  const auto found = step_ns_.find({rank, step});
  return found == step_ns_.end() ? 0 : found->second;
}

Finding make_finding(std::string_view id) {
  const CatalogueRow* row = find_in_catalogue(id);
  RS_CHECK(row != nullptr, "a rule may only give findings of the catalogue");
  Finding finding;
  finding.id = id;
  finding.severity = row->severity;
  finding.fix = row->fix;
  finding.root = !row->follows_only;
  return finding;
}

std::string group_name(const CommRow& comm) {
  if (comm.axis != Axis::kUnknown) return name(comm.axis);
  const std::string given = comm.name.substr(0, comm.name.find('['));
  return given.empty() ? "group" : given;
}

GroupRef group_ref(const CommRow& comm) { return {group_name(comm), {comm.ranks.begin(), comm.ranks.end()}}; }

std::string group_text(const GroupRef& group) {
  std::string text = group.name + "[";
  for (size_t i = 0; i < group.ranks.size(); ++i) text += (i ? "," : "") + std::to_string(group.ranks[i]);
  return text + "]";
}

std::string place_text(const Where& where) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (where.step >= 0) add("step " + std::to_string(where.step));
  if (where.microbatch >= 0) add("microbatch " + std::to_string(where.microbatch));
  if (where.layer >= 0) add("layer " + std::to_string(where.layer));
  if (where.pass == Pass::kForward) add("forward");
  if (where.pass == Pass::kBackward) add("backward");
  if (where.pass == Pass::kOptimizer) add("end of step");
  if (where.ring_step >= 0) add("ring step " + std::to_string(where.ring_step));
  return text;
}

std::string ranks_text(const std::vector<int>& ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + format_rank_range(ranks);
}

std::string op_name(const TraceIndex& index, uint32_t op_row) {
  const OpRow& op = index.view.ops[op_row];
  if (op.coll != kNoRow && op.coll < index.view.colls.size()) return name(index.view.colls[op.coll].func);
  if (op.p2p != kNoRow && op.p2p < index.view.p2ps.size())
    return index.view.p2ps[op.p2p].direction == Direction::kSend ? "send" : "recv";
  return std::string(index.view.text(op.name));
}

std::string number_text(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

void sort_unique(std::vector<int>& ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
}

bool earlier(const Where& a, const Where& b) {
  const auto key = [](const Where& w) {
    // kNone (before or between passes) counts as the start of its step.
    const int pass = w.pass == Pass::kNone ? -1 : int(w.pass);
    const int layer = w.pass == Pass::kBackward ? -w.layer : w.layer;
    return std::tuple<int, int, int, int, int>(
        w.step, w.microbatch < 0 && w.pass == Pass::kOptimizer ? 1 << 20 : w.microbatch, pass, layer, w.ring_step);
  };
  return key(a) < key(b);
}

}  // namespace ringscope
