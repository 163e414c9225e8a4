// What a call is. NCCL matches a call by its place in the communicator's order and by function, count, type, reduction
// and root; everything else that a trace tells about it (name, step, layer, pass) is a label: it explains and breaks
// ties, and accuses nobody.
#pragma once

#include <cstdint>
#include <span>

#include "tools/analyze/index.h"

namespace ringscope {

inline uint64_t mix(uint64_t h, uint64_t value) {
  h ^= value + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  h *= 0xBF58476D1CE4E5B9ull;
  return h ^ (h >> 29);
}

// What NCCL matches; never 0. The counts of an all-to-all may differ between its members by design.
uint64_t call_digest(const CollRow& coll);
// Size and distances of its members: equal for the copies of a group.
uint64_t group_shape(const CommRow& comm);
// How far around its group a transfer goes, 0 <= distance < size.
uint64_t ring_distance(const P2pRow& p2p, int group_rank, size_t group_size);
// A transfer of a ring as every member makes it: direction, distance to the peer, size; never 0.
uint64_t transfer_digest(const P2pRow& p2p, int group_rank, size_t group_size);
// The call of an operation in its rank's program, comparable between ranks: the above, and the shape of the group
// (size and distances of its members), which tells the groups of one rank apart where no label does. 0 = no call.
uint64_t program_digest(const TraceIndex&, uint32_t op_row);

// What a label says. Two calls whose labels are unknown are not known to differ.
bool has_label(const OpRow& op);
bool same_label(const OpRow& a, const OpRow& b);

// The peer of a transfer, global; -1 = unknown.
int peer_rank(const TraceIndex&, const OpRow& op);
// The communicator of a call or transfer; null = unknown.
const CommRow* comm_of(const TraceIndex&, const OpRow& op);
int64_t seq_of(const TraceIndex&, const OpRow& op);  // -1 = none

// The communication of one host thread of a rank, in issue order: what program order is.
std::vector<uint32_t> program(const TraceIndex&, int rank, uint16_t thread);
std::vector<uint16_t> host_threads(const TraceIndex&, int rank);

// "all_reduce(1024 fp32 sum) 'grad.weight_cp' at step 1, layer 0, end of step"
std::string call_text(const TraceIndex&, uint32_t op_row);
// "call #9 of group cp[0,1]"
std::string group_call_text(const TraceIndex&, const OpRow& op);

}  // namespace ringscope
