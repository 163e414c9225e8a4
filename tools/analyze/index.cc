#include "tools/analyze/index.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "tracedb/base/check.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {

TraceIndex::TraceIndex(const TraceView& v) : view(v) {
  const auto outcome = view.meta.find(meta_key::kOutcome);
  stalled = outcome != view.meta.end() && outcome->second == "stalled";

  for (uint32_t row = 0; row < view.ops.size(); ++row) {
    const OpRow& op = view.ops[row];
    auto [it, fresh] = ops_.try_emplace(op.rank, row, row + 1);
    if (!fresh) it->second.second = row + 1;
    if (op.where.step >= 0) step_ns_.try_emplace({op.rank, op.where.step}, op.enqueue_ns);
    if (is_comm(op) && op.state == OpState::kStarted) blocked_.push_back(op.rank);
  }
  for (const RankExitRow& exit : view.rank_exits)
    if (exit.status == -2) {  // written only when a stall is declared; the outcome may not be there yet
      blocked_.push_back(exit.rank);
      stalled = true;
    }
  sort_unique(blocked_);
  for (size_t i = 0; i < view.streams.size(); ++i) stream_[view.streams[i].stream] = i;
  for (size_t i = 0; i < view.buffers.size(); ++i) buffer_[view.buffers[i].buffer] = i;

  std::unordered_map<int, bool> lossless;
  for (const auto& [rank, rows] : ops_) lossless[rank] = view.lossless(rank);
  for (size_t i = 0; i < view.comms.size(); ++i) {
    comm_row_[view.comms[i].comm] = i;
    CommCalls calls;
    calls.comm = &view.comms[i];
    for (int32_t rank : view.comms[i].ranks) {
      MemberCalls member;
      member.rank = rank;
      member.seen = ops_.contains(rank);
      member.lossless = member.seen && lossless[rank];
      calls.members.push_back(std::move(member));
    }
    comms.push_back(std::move(calls));
  }
  for (uint32_t row = 0; row < view.colls.size(); ++row) {
    const CollRow& coll = view.colls[row];
    const auto found = comm_row_.find(coll.comm);
    if (found == comm_row_.end() || coll.op >= view.ops.size()) continue;
    for (MemberCalls& member : comms[found->second].members) {
      if (member.rank != view.ops[coll.op].rank) continue;
      // A sequence number far beyond the number of rows is damage, not a call.
      if (coll.seq > member.coll.size() + (1u << 24)) break;
      if (member.coll.size() <= coll.seq) member.coll.resize(coll.seq + 1, kNoRow);
      member.coll[coll.seq] = row;
      break;
    }
  }
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
  for (const RankRow& row : view.ranks)
    if (row.rank == rank) return &row;
  return nullptr;
}

const RankExitRow* TraceIndex::exit_of(int rank) const {
  for (const RankExitRow& row : view.rank_exits)
    if (row.rank == rank) return &row;
  return nullptr;
}

std::vector<int> TraceIndex::cp_members(int rank) const {
  for (const CommRow& comm : view.comms)
    if (comm.axis == Axis::kCp && std::find(comm.ranks.begin(), comm.ranks.end(), rank) != comm.ranks.end())
      return {comm.ranks.begin(), comm.ranks.end()};
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
  return comm.name.substr(0, comm.name.find('['));
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
