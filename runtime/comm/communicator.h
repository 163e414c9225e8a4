// Communicator with NCCL's semantics, including the bad ones (NCCL user guide: groups, p2p, streams):
//   - operations match by position in the communicator and by nothing else: a mismatched program hangs or
//     corrupts, it never gets a friendly error;
//   - a call enqueues on a stream and returns; it never blocks the host;
//   - point to point is a FIFO of bytes per (communicator, source, destination), without tags. A slot is
//     512 KiB; a message takes ceil(bytes/slot) of the k slots and streams through them; a send completes when
//     its last byte was copied in; k = 0 is rendezvous. Collectives use FIFOs of their own, apart from p2p;
//   - a rank copies its own count within its own buffers: missing bytes wait, surplus stays for the successor;
//   - operations of one group progress together; several sends (or several receives) with one peer go in call
//     order, one send and one receive with the same peer progress together;
//   - reductions add in ascending group rank (deterministic); all_reduce is literally reduce_scatter followed
//     by all_gather; bytes are counted where they are copied towards a peer;
//   - one communicator used on several streams is serialised in host issue order by the caller's events: using
//     it from two streams without them is the caller's bug, as in NCCL.
// Reductions: fp32 and fp64 (kAvg = sum / size). Counts are elements.
// Every call is recorded: enqueue, coll or p2p row, accesses (send: read, receive: write), start, end, bytes.
// Thread rule: calls belong to the rank's host task.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/device/device.h"
#include "tracedb/base/result.h"

namespace ringscope {

// Emulated link: a segment of n bytes that is posted at t arrives at max(t, link free) + n/bandwidth + latency
// (+ uniform jitter below jitter_us from the seed). Zero bandwidth = no emulation. The waiter sleeps.
struct LinkModel {
  double latency_us = 0;
  double gbytes_per_s = 0;
  double jitter_us = 0;
  uint64_t seed = 0;
};

struct CommOptions {
  int p2p_slots = 8;  // k; 0 = rendezvous
  LinkModel link;
};

// Process-wide meeting place of the thread backend: what a unique id and a bootstrap network are to NCCL.
class CommWorld;
std::shared_ptr<CommWorld> make_comm_world(Sched& sched, CommOptions options);

struct TrafficCounter {
  uint64_t bytes_sent = 0;  // copied towards peers
  uint64_t operations = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;  // group rank
  virtual int size() const = 0;
  virtual const std::vector<int>& ranks() const = 0;  // global, by group rank
  virtual uint32_t id() const = 0;                    // unique in the job
  virtual Axis axis() const = 0;

  // in and out may be the same tensor. `name` is a literal for the trace ("mlp.down_rs").
  virtual void all_reduce(Stream&, const Tensor& in, const Tensor& out, RedOp, const char* name) = 0;
  // out holds size() times in.count(): rank i's part at i * in.count().
  virtual void all_gather(Stream&, const Tensor& in, const Tensor& out, const char* name) = 0;
  // in holds size() times out.count().
  virtual void reduce_scatter(Stream&, const Tensor& in, const Tensor& out, RedOp, const char* name) = 0;
  virtual void broadcast(Stream&, const Tensor& buffer, int root, const char* name) = 0;
  // in and out hold size() equal parts; part j of in goes to rank j.
  virtual void all_to_all(Stream&, const Tensor& in, const Tensor& out, const char* name) = 0;
  virtual void send(Stream&, const Tensor&, int peer, const char* name) = 0;
  virtual void recv(Stream&, const Tensor&, int peer, const char* name) = 0;

  // Calls between the two are enqueued as one operation at group_end, on the stream of the first call. Nests.
  virtual void group_start() = 0;
  virtual void group_end() = 0;

  // Collective over the communicator, blocks the host: members with equal color form a new communicator,
  // ordered by (key, rank). Null for color < 0. Empty result = stopped.
  virtual std::unique_ptr<Communicator> split(int color, int key, Axis axis, const char* name) = 0;

  // Wakes whatever waits here, on all members; later operations do nothing.
  virtual void abort() = 0;
  virtual std::optional<Error> async_error() const = 0;

  virtual TrafficCounter traffic() const = 0;  // of this rank; readable after a synchronize
};

// Group bracket as a scope.
class CommGroup {
 public:
  explicit CommGroup(Communicator& comm) : comm_(comm) { comm_.group_start(); }
  ~CommGroup() { comm_.group_end(); }
  CommGroup(const CommGroup&) = delete;

 private:
  Communicator& comm_;
};

// Blocks the host until all `ranks` (global) called with the same list, in the same order of creation: as in
// NCCL, calls match by position, so ranks that create groups in different orders hang. Null = stopped.
std::unique_ptr<Communicator> comm_init(const std::shared_ptr<CommWorld>&, Device&, const std::vector<int>& ranks,
                                        Axis axis, const char* name);

}  // namespace ringscope
