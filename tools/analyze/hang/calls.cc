#include "tools/analyze/hang/calls.h"

#include <algorithm>

namespace ringscope {

uint64_t group_shape(const CommRow& comm) {
  uint64_t h = mix(1, comm.ranks.size());
  for (size_t i = 1; i < comm.ranks.size(); ++i) h = mix(h, uint64_t(int64_t(comm.ranks[i]) - comm.ranks[0]));
  return h;
}

uint64_t call_digest(const CollRow& coll) {
  uint64_t h =
      mix(uint64_t(coll.func) << 8 | 1, uint64_t(coll.dtype) << 40 | uint64_t(coll.redop) << 32 | uint32_t(coll.root));
  if (coll.func != CollFunc::kAllToAll) h = mix(h, coll.count);
  return h | 1;
}

uint64_t ring_distance(const P2pRow& p2p, int group_rank, size_t group_size) {
  const int64_t size = int64_t(group_size);
  return size == 0 ? 0 : uint64_t(((int64_t(p2p.peer) - group_rank) % size + size) % size);
}

uint64_t transfer_digest(const P2pRow& p2p, int group_rank, size_t group_size) {
  return mix(mix(uint64_t(p2p.direction) << 8 | 2, ring_distance(p2p, group_rank, group_size)), p2p.bytes) | 1;
}

uint64_t program_digest(const TraceIndex& index, uint32_t op_row) {
  const OpRow& op = index.view.ops[op_row];
  const CommRow* comm = comm_of(index, op);
  const uint64_t group = comm ? group_shape(*comm) : 0;
  if (op.coll != kNoRow) return mix(call_digest(index.view.colls[op.coll]), group) | 1;
  if (op.p2p == kNoRow) return 0;
  const P2pRow& p2p = index.view.p2ps[op.p2p];
  return mix(transfer_digest(p2p, index.group_rank(p2p.comm, op.rank), comm ? comm->ranks.size() : 0), group) | 1;
}

bool has_label(const OpRow& op) { return op.name != 0 || op.where != Where{}; }
bool same_label(const OpRow& a, const OpRow& b) { return a.name == b.name && a.where == b.where; }

const CommRow* comm_of(const TraceIndex& index, const OpRow& op) {
  if (op.coll != kNoRow) return index.comm(index.view.colls[op.coll].comm);
  return op.p2p == kNoRow ? nullptr : index.comm(index.view.p2ps[op.p2p].comm);
}

int64_t seq_of(const TraceIndex& index, const OpRow& op) {
  if (op.coll != kNoRow) return int64_t(index.view.colls[op.coll].seq);
  return op.p2p == kNoRow ? -1 : int64_t(index.view.p2ps[op.p2p].seq);
}

int peer_rank(const TraceIndex& index, const OpRow& op) {
  if (op.p2p == kNoRow) return -1;
  const P2pRow& p2p = index.view.p2ps[op.p2p];
  const CommRow* comm = index.comm(p2p.comm);
  return !comm || p2p.peer < 0 || size_t(p2p.peer) >= comm->ranks.size() ? -1 : comm->ranks[size_t(p2p.peer)];
}

std::vector<uint32_t> program(const TraceIndex& index, int rank, uint16_t thread) {
  std::vector<uint32_t> calls;
  const auto [begin, end] = index.ops_of(rank);
  for (uint32_t row = begin; row < end; ++row) {
    const OpRow& op = index.view.ops[row];
    if (op.thread == thread && (op.coll != kNoRow || op.p2p != kNoRow)) calls.push_back(row);
  }
  return calls;
}

std::vector<uint16_t> host_threads(const TraceIndex& index, int rank) {
  std::vector<uint16_t> threads;
  const auto [begin, end] = index.ops_of(rank);
  for (uint32_t row = begin; row < end; ++row) {
    const uint16_t thread = index.view.ops[row].thread;
    if (threads.empty() ||
        (thread != threads.back() && std::find(threads.begin(), threads.end(), thread) == threads.end()))
      threads.push_back(thread);
  }
  return threads;
}

std::string call_text(const TraceIndex& index, uint32_t op_row) {
  const OpRow& op = index.view.ops[op_row];
  std::string text = op_name(index, op_row);
  if (op.coll != kNoRow) {
    const CollRow& coll = index.view.colls[op.coll];
    text += "(" + std::to_string(coll.count) + " " + name(coll.dtype);
    if (coll.redop != RedOp::kNone) text += std::string(" ") + name(coll.redop);
    text += ")";
  }
  if (op.name) text += " '" + std::string(index.view.text(op.name)) + "'";
  const std::string place = place_text(op.where);
  return place.empty() ? text : text + " at " + place;
}

std::string group_call_text(const TraceIndex& index, const OpRow& op) {
  std::string text = "#" + std::to_string(seq_of(index, op));
  if (const CommRow* comm = comm_of(index, op)) text += " of group " + group_text(group_ref(*comm));
  return text;
}

}  // namespace ringscope
