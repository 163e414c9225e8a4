// Transfers as NCCL matches them: per communicator, source and destination the k-th send meets the k-th receive.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

// Of one pair in one direction: rows in p2ps by seq.
struct Channel {
  uint32_t comm = 0;
  int source = 0, destination = 0;  // group ranks
  Numbered sends, receives;
};

class Transfers {
 public:
  explicit Transfers(const TraceIndex& index);
  const std::vector<Channel>& channels() const { return channels_; }
  const Channel* channel(uint32_t comm, int source, int destination) const;
  // The other side of a transfer; kNoRow = the trace has none. Rows in p2ps.
  uint32_t counterpart(uint32_t p2p_row) const;

 private:
  const TraceIndex& index_;
  std::vector<Channel> channels_;
  std::unordered_map<uint64_t, std::vector<size_t>> by_key_;
};

}  // namespace ringscope
