#include <algorithm>

#include "tools/analyze/hang/calls.h"
#include "tools/analyze/hang/camps.h"
#include "tools/analyze/hang/transfers.h"
#include "tools/analyze/ring/ring.h"

namespace ringscope {
namespace {

bool is_hop(const TraceIndex& index, uint32_t op_row, uint32_t comm) {
  if (op_row == kNoRow) return false;
  const OpRow& op = index.view.ops[op_row];
  return op.p2p != kNoRow && index.view.p2ps[op.p2p].comm == comm;
}

// Is the group a ring? Nearly all of its sends go the same distance, and every send has a receive beside it. Stages
// of a pipeline send one way and receive the other at different times.
bool forms_ring(const TraceIndex& index, const CommRow& comm, const std::vector<std::vector<uint32_t>>& programs) {
  std::map<uint64_t, size_t> distances;
  size_t sends = 0, paired = 0, transfers = 0;
  for (const std::vector<uint32_t>& program : programs) {
    const P2pRow* open = nullptr;  // the transfer before, if it has no partner yet
    for (uint32_t row : program) {
      if (!is_hop(index, row, comm.comm)) continue;
      const OpRow& op = index.view.ops[row];
      const P2pRow& p2p = index.view.p2ps[op.p2p];
      ++transfers;
      if (p2p.direction == Direction::kSend) {
        ++sends;
        ++distances[ring_distance(p2p, index.group_rank(comm.comm, op.rank), comm.ranks.size())];
      }
      if (open && open->direction != p2p.direction && open->bytes == p2p.bytes) {
        paired += 2;
        open = nullptr;
      } else {
        open = &p2p;
      }
    }
  }
  size_t most = 0;
  for (const auto& [distance, count] : distances) most = std::max(most, count);
  return sends > 0 && most * 3 > sends * 2 && paired * 4 > transfers * 3;
}

// One ring, its members' programs, and their strands in one direction: hops of that direction and all collectives.
class Ring {
 public:
  Ring(const TraceIndex& index, const CommRow& comm, uint16_t thread) : index_(&index), comm_(&comm) {
    for (int rank : comm.ranks) {
      if (rank < 0 || !index.seen(rank)) continue;
      ranks_.push_back(rank);
      programs_.push_back(program(index, rank, thread));
    }
    is_ring_ = forms_ring(index, comm, programs_);
  }

  bool recognised() const { return is_ring_ && ranks_.size() > 1; }
  const CommRow& comm() const { return *comm_; }

  bool unfinished() const {  // is a hop of any member still open?
    for (const std::vector<uint32_t>& program : programs_)
      for (uint32_t row : program)
        if (is_hop(*index_, row, comm_->comm) && index_->view.ops[row].state != OpState::kCompleted) return true;
    return false;
  }

  std::vector<Strand> strands(Direction direction) const {
    const uint64_t start = common_start(direction);
    std::vector<Strand> strands;
    for (size_t i = 0; i < programs_.size(); ++i) {
      Strand strand;
      strand.rank = ranks_[i];
      strand.whole = start == 0;
      strand.counted = true;
      bool open = start == 0;
      for (uint32_t row : programs_[i]) {
        const bool hop = is_hop(*index_, row, comm_->comm);
        const OpRow& op = index_->view.ops[row];
        if (op.p2p != kNoRow && (!hop || index_->view.p2ps[op.p2p].direction != direction)) continue;
        open = open || (hop && index_->view.p2ps[op.p2p].seq >= start);
        if (!open) continue;
        strand.calls.push_back(program_digest(*index_, row));
        strand.ops.push_back(row);
      }
      strands.push_back(std::move(strand));
    }
    return strands;
  }

 private:
  // The number of the first hop that every member still has.
  uint64_t common_start(Direction direction) const {
    uint64_t start = 0;
    for (const std::vector<uint32_t>& program : programs_)
      for (uint32_t row : program) {
        if (!is_hop(*index_, row, comm_->comm)) continue;
        const P2pRow& p2p = index_->view.p2ps[index_->view.ops[row].p2p];
        if (p2p.direction != direction) continue;
        start = std::max(start, p2p.seq);
        break;
      }
    return start;
  }

  const TraceIndex* index_;
  const CommRow* comm_;
  std::vector<int> ranks_;
  std::vector<std::vector<uint32_t>> programs_;  // of the members the trace has
  bool is_ring_ = false;
};

Where pass_of(Where where) {
  where.ring_step = -1;
  return where;
}

class RingComparison {
 public:
  RingComparison(const TraceIndex& index, const Transfers& transfers, const Ring& ring, Direction direction)
      : index_(index), transfers_(transfers), comm_(ring.comm()), direction_(direction), unfinished_(ring.unfinished()),
        strands_(ring.strands(direction)) {}

  std::optional<RingFault> fault(const Witnesses& witnesses) const {
    std::vector<Strand> left = strands_;
    RingFault fault;
    fault.direction = direction_;
    while (left.size() > 1) {
      const uint64_t n = first_difference(left);
      if (n == UINT64_MAX) break;
      const std::vector<Divergence> found = explain(index_, comm_, comm_.ranks.size(), left, n, witnesses);
      if (found.empty() || found[0].ranks.empty()) break;
      bool more = false;
      for (const Divergence& d : found) more = take(fault, d) || more;
      if (!more) break;
      std::erase_if(left, [&](const Strand& strand) {
        return std::binary_search(fault.ranks.begin(), fault.ranks.end(), strand.rank);
      });
    }
    if (fault.ranks.empty()) return std::nullopt;
    fault.unfinished = unfinished_;
    finish(fault);
    return fault;
  }

 private:
  static uint32_t hop_of(const Divergence& d) { return d.kind == Divergence::Kind::kExtra ? d.actual : d.expected; }

  // Adds a divergence to the fault if it is one of this ring, and of the same pass. False = the search is over.
  bool take(RingFault& fault, const Divergence& d) const {
    if (!is_hop(index_, hop_of(d), comm_.comm)) return false;
    const bool other = d.kind == Divergence::Kind::kOther;
    if (other && !is_hop(index_, d.actual, comm_.comm)) return false;
    const bool size = other && other_size(d);
    if (other && !size && !other_neighbour(d)) return false;
    const auto kind = size ? RingFault::Kind::kSize : other ? RingFault::Kind::kNeighbour : RingFault::Kind::kHops;
    if (!fault.ranks.empty() && (fault.kind != kind || !same_pass(fault.first, d))) return false;
    const bool earlier_hop = fault.ranks.empty() || earlier(index_.view.ops[hop_of(d)].where, fault.where);
    fault.kind = kind;
    fault.comm = &comm_;
    fault.ranks.insert(fault.ranks.end(), d.ranks.begin(), d.ranks.end());
    sort_unique(fault.ranks);
    if (!earlier_hop) return true;
    fault.first = d;
    fault.where = index_.view.ops[hop_of(d)].where;
    fault.more = d.kind == Divergence::Kind::kExtra;
    return true;
  }

  bool other_neighbour(const Divergence& d) const {
    const P2pRow &a = index_.view.p2ps[index_.view.ops[d.expected].p2p],
                 &b = index_.view.p2ps[index_.view.ops[d.actual].p2p];
    return a.bytes == b.bytes && peer_distance(a) != peer_distance(b);
  }
  // The same hop with another number of bytes.
  bool other_size(const Divergence& d) const {
    const P2pRow &a = index_.view.p2ps[index_.view.ops[d.expected].p2p],
                 &b = index_.view.p2ps[index_.view.ops[d.actual].p2p];
    return a.bytes != b.bytes && peer_distance(a) == peer_distance(b);
  }
  uint64_t peer_distance(const P2pRow& p2p) const {
    return ring_distance(p2p, index_.group_rank(comm_.comm, index_.view.ops[p2p.op].rank), comm_.ranks.size());
  }

  bool same_pass(const Divergence& a, const Divergence& b) const {
    const Where x = pass_of(index_.view.ops[hop_of(a)].where), y = pass_of(index_.view.ops[hop_of(b)].where);
    if (x != Where{} || y != Where{}) return x == y;
    const Strand& strand = strands_[0];
    for (uint64_t n = std::min(a.seq, b.seq); n < std::max(a.seq, b.seq); ++n)
      if (strand.op(n) != kNoRow && !is_hop(index_, strand.op(n), comm_.comm)) return false;
    return true;
  }

  void finish(RingFault& fault) const {
    const uint32_t hop = hop_of(fault.first);
    for (const Strand& strand : strands_) fault.hops.emplace_back(strand.rank, hops_in_pass(strand, fault, hop));
    std::sort(fault.hops.begin(), fault.hops.end());
    fault.waiting = waiting_transfer(fault);
  }

  // By the place where it is known, otherwise between the collectives in front and behind.
  int hops_in_pass(const Strand& strand, const RingFault& fault, uint32_t hop) const {
    const Where pass = pass_of(index_.view.ops[hop].where);
    int count = 0;
    if (pass != Where{}) {
      const uint32_t name = index_.view.ops[hop].name;
      for (uint32_t row : strand.ops)
        count += is_hop(index_, row, comm_.comm) && pass_of(index_.view.ops[row].where) == pass &&
                 index_.view.ops[row].name == name;
      return count;
    }
    const auto hop_at = [&](uint64_t n) { return strand.op(n) != kNoRow && is_hop(index_, strand.op(n), comm_.comm); };
    uint64_t n = std::min(fault.first.seq, strand.end());
    while (n > 0 && hop_at(n - 1)) --n;
    for (; hop_at(n); ++n) ++count;
    return count;
  }

  // Transfers carry no tags: what the neighbour took for the missing hop is the transfer with the number that the
  // hop would have had, and the rank's own next one has that number.
  uint32_t waiting_transfer(const RingFault& fault) const {
    const uint32_t hop = hop_of(fault.first);
    if (fault.kind != RingFault::Kind::kHops || fault.more || fault.first.ranks.empty()) return kNoRow;
    const P2pRow& like = index_.view.p2ps[index_.view.ops[hop].p2p];
    const int self = index_.group_rank(comm_.comm, fault.first.ranks[0]);
    const int peer = int((uint64_t(self) + peer_distance(like)) % comm_.ranks.size());
    const bool send = like.direction == Direction::kSend;
    const Channel* channel = transfers_.channel(comm_.comm, send ? self : peer, send ? peer : self);
    if (!channel) return kNoRow;
    uint64_t number = (send ? channel->sends : channel->receives).end();
    for (const Strand& strand : strands_) {
      if (strand.rank != fault.first.ranks[0]) continue;
      for (uint64_t n = fault.first.seq; n < strand.end(); ++n) {
        if (!is_hop(index_, strand.op(n), comm_.comm)) continue;
        number = index_.view.p2ps[index_.view.ops[strand.op(n)].p2p].seq;
        break;
      }
    }
    const uint32_t row = (send ? channel->receives : channel->sends).at(number);
    return row == kNoRow ? kNoRow : index_.view.p2ps[row].op;
  }

  const TraceIndex& index_;
  const Transfers& transfers_;
  const CommRow& comm_;
  Direction direction_;
  bool unfinished_ = false;
  std::vector<Strand> strands_;
};

// Does a send meet a receive of another size?
bool sizes_differ(const TraceIndex& index, const Channel& channel) {
  for (uint64_t n = channel.sends.first; n < channel.sends.end(); ++n) {
    const uint32_t send = channel.sends.at(n), receive = channel.receives.at(n);
    if (send != kNoRow && receive != kNoRow && index.view.p2ps[send].bytes != index.view.p2ps[receive].bytes)
      return true;
  }
  return false;
}

// Has the communicator a transfer whose other side is missing, or of another size, although the trace has that rank?
std::set<uint32_t> suspects(const TraceIndex& index, const Transfers& transfers) {
  std::set<uint32_t> ids;
  for (const Channel& channel : transfers.channels()) {
    const CommRow* comm = index.comm(channel.comm);
    const auto seen = [&](int member) {
      return member >= 0 && size_t(member) < comm->ranks.size() && index.seen(comm->ranks[size_t(member)]);
    };
    if (!comm || !seen(channel.source) || !seen(channel.destination)) continue;
    if (channel.sends.end() != channel.receives.end() || sizes_differ(index, channel)) ids.insert(channel.comm);
  }
  return ids;
}

// The rings that a group forms, one for every host thread that drives one.
std::vector<Ring> rings_of(const TraceIndex& index, const CommRow& comm) {
  std::vector<Ring> rings;
  const auto member = std::find_if(comm.ranks.begin(), comm.ranks.end(), [&](int rank) { return index.seen(rank); });
  if (member == comm.ranks.end()) return rings;
  for (uint16_t thread : host_threads(index, *member)) {
    Ring ring(index, comm, thread);
    if (ring.recognised()) rings.push_back(std::move(ring));
  }
  return rings;
}

std::vector<Ring> all_rings(const TraceIndex& index, const Transfers& transfers) {
  std::set<uint32_t> ids;
  for (const Channel& channel : transfers.channels()) ids.insert(channel.comm);
  std::vector<Ring> rings;
  for (const CommRow& comm : index.view.comms)
    if (ids.contains(comm.comm))
      for (Ring& ring : rings_of(index, comm)) rings.push_back(std::move(ring));
  return rings;
}

void bear_witness(Witnesses& witnesses, const std::vector<Strand>& strands) {
  uint64_t end = first_difference(strands);
  if (end == UINT64_MAX) {
    end = 0;
    for (const Strand& strand : strands) end = std::max(end, strand.end());
  }
  witnesses.add(agreed_before(strands, end));
}

}  // namespace

std::vector<RingFault> find_ring_faults(const TraceIndex& index) {
  std::vector<RingFault> faults;
  if (index.view.p2ps.empty()) return faults;
  const Transfers transfers(index);
  const std::set<uint32_t> suspected = suspects(index, transfers);
  if (suspected.empty()) return faults;
  const std::vector<Ring> rings = all_rings(index, transfers);
  for (Direction direction : {Direction::kSend, Direction::kRecv}) {
    Witnesses witnesses;
    for (const Ring& ring : rings) bear_witness(witnesses, ring.strands(direction));
    for (const Ring& ring : rings) {
      if (!suspected.contains(ring.comm().comm)) continue;
      if (auto fault = RingComparison(index, transfers, ring, direction).fault(witnesses))
        faults.push_back(std::move(*fault));
    }
    if (!faults.empty()) break;
  }
  return faults;
}

bool is_ring(const TraceIndex& index, const CommRow& comm) { return !rings_of(index, comm).empty(); }

Finding ring_finding(std::string_view id, const RingFault& fault) {
  Finding f = make_finding(id);
  f.ranks = fault.ranks;
  f.group = group_ref(*fault.comm);
  f.where = fault.where;
  f.confidence = confidence(fault.first.support);
  return f;
}

std::string hops_text(const RingFault& fault) {
  std::string text;
  for (const auto& [rank, hops] : fault.hops)
    text += (text.empty() ? "" : ", ") + std::string("rank ") + std::to_string(rank) +
            (fault.direction == Direction::kSend ? " sent " : " received ") + std::to_string(hops);
  return text;
}

}  // namespace ringscope
