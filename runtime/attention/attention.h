// Attention over a sequence that is split over the CP group: one method a file, one interface.
//
// Every method computes the same thing, forward and backward: each query row attends the keys that layout's
// may_see allows, wherever they live. Shapes: T = batch x shard tokens of this rank (batch outermost);
// q [T,HQ,D], kv [2,T,HK,D] (K, then V; keys already rotated), o and gradients alike.
//
// Methods enqueue and return; nothing here looks at values. They own the communication of their CP group:
// transfers run on the transfer stream (the CP stream; with overlap off, the compute stream itself) and are
// ordered against the compute stream by events only.
// Thread rule: the rank's host task. Lifetime: the environment outlives the method.
#pragma once

#include <memory>
#include <vector>

#include "runtime/attention/softmax_log.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

namespace ringscope {

// The two attention kernels, so that the oracle can stand in for the fast ones.
struct AttentionKernels {
  decltype(&kernels::flash_forward) forward = &kernels::flash_forward;
  decltype(&kernels::flash_backward) backward = &kernels::flash_backward;
};

struct AttentionEnv {
  Device* device = nullptr;
  Stream* compute = nullptr;
  Stream* transfer = nullptr;  // == compute: no overlap
  Communicator* cp = nullptr;  // null when CP = 1
  SoftmaxLog* log = nullptr;
  AttentionKernels kernels;
  double scale = 1;  // of the scores, D^-1/2

  int cp_rank() const { return cp ? cp->rank() : 0; }
  int cp_size() const { return cp ? cp->size() : 1; }
};

// Token facts of one microbatch, for every shard of the CP group.
struct AttentionBatch {
  std::vector<kernels::TokenInfo> shards;        // by CP rank
  std::vector<std::vector<SampledRow>> sampled;  // by CP rank: rows that see two shards or more
  kernels::AttentionDropout dropout;
};

// What the backward pass needs; keyed by (microbatch, layer) by its owner.
struct AttentionSaved {
  Tensor q, kv, o, lse;
};

struct AttentionGrad {
  Tensor dq, dkv;
};

class Attention {
 public:
  virtual ~Attention() = default;
  virtual Tensor forward(const Tensor& q, const Tensor& kv, const AttentionBatch&, AttentionSaved&) = 0;
  virtual AttentionGrad backward(const Tensor& d_o, const AttentionBatch&, const AttentionSaved&) = 0;
};

// Sees the tensors of every call, for dumps. On the rank's host task, after the kernels were enqueued.
class AttentionWatch {
 public:
  virtual ~AttentionWatch() = default;
  virtual void forward(const AttentionSaved&) = 0;
  virtual void backward(const Tensor& d_o, const AttentionGrad&) = 0;
};

// CP = 1: one kernel call.
std::unique_ptr<Attention> make_local_attention(const AttentionEnv&);
// K/V travel a ring, one hop a step, double-buffered (Ring Attention, arXiv 2310.01889; steps count from 0).
std::unique_ptr<Attention> make_ring_attention(const AttentionEnv&);
// Every rank gathers all K/V and keeps its own rows of the output.
std::unique_ptr<Attention> make_allgather_attention(const AttentionEnv&);
// The articles' three-step softmax: all-reduce MAX, exp, all-reduce SUM, normalise. Queries are gathered, keys
// stay where they are.
std::unique_ptr<Attention> make_global_softmax_attention(const AttentionEnv&);

}  // namespace ringscope
