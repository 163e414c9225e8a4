#include "tools/analyze/hang/transfers.h"

#include <algorithm>

#include "tools/analyze/hang/calls.h"

namespace ringscope {
namespace {

uint64_t key(uint32_t comm, int source, int destination) {
  return mix(mix(comm, uint64_t(uint32_t(source))), uint64_t(uint32_t(destination)));
}

}  // namespace

Transfers::Transfers(const TraceIndex& index) : index_(index) {
  for (uint32_t row = 0; row < index.view.p2ps.size(); ++row) {
    const P2pRow& p2p = index.view.p2ps[row];
    if (p2p.op >= index.view.ops.size()) continue;
    const int self = index.group_rank(p2p.comm, index.view.ops[p2p.op].rank);
    if (self < 0) continue;
    const bool send = p2p.direction == Direction::kSend;
    const int source = send ? self : p2p.peer, destination = send ? p2p.peer : self;
    Channel* channel = const_cast<Channel*>(this->channel(p2p.comm, source, destination));
    if (!channel) {
      by_key_[key(p2p.comm, source, destination)].push_back(channels_.size());
      channels_.push_back({p2p.comm, source, destination, {}, {}});
      channel = &channels_.back();
    }
    (send ? channel->sends : channel->receives).put(p2p.seq, row);
  }
}

const Channel* Transfers::channel(uint32_t comm, int source, int destination) const {
  const auto found = by_key_.find(key(comm, source, destination));
  if (found == by_key_.end()) return nullptr;
  for (size_t i : found->second) {
    const Channel& channel = channels_[i];
    if (channel.comm == comm && channel.source == source && channel.destination == destination) return &channel;
  }
  return nullptr;
}

uint32_t Transfers::counterpart(uint32_t p2p_row) const {
  const P2pRow& p2p = index_.view.p2ps[p2p_row];
  const int self = index_.group_rank(p2p.comm, index_.view.ops[p2p.op].rank);
  const bool send = p2p.direction == Direction::kSend;
  const Channel* channel = this->channel(p2p.comm, send ? self : p2p.peer, send ? p2p.peer : self);
  return !channel ? kNoRow : (send ? channel->receives : channel->sends).at(p2p.seq);
}

}  // namespace ringscope
