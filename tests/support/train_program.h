// The host program of a small sequence-parallel training job, written into a TraceBuilder, with the mistakes
// that the rules must find as options. Mirrors the order of calls of the reference runtime.
#pragma once

#include <functional>

#include "tests/support/trace_builder.h"

namespace ringscope::testing {

struct Mistakes {
  // Each is asked at the place where the mistake would be made.
  using At = std::function<bool(int rank, const Where&)>;
  At leave_ring_early, leave_ring_first, turn_ring, skip_weight_cp, other_op_cp, other_name_cp, twice_cp, extra_cp;
  At skip_layer, cp_before_tp, exit, extra_last;
  At no_wait_for_reader, no_wait_for_arrival;
  static bool hit(const At& at, int rank, const Where& where) { return at && at(rank, where); }
};

struct Job {
  int tp = 1, cp = 1, dp = 1, steps = 2, layers = 2;
  bool warm_up = false;  // the first step makes calls of its own
  Mistakes wrong;
};

class TrainProgram {
 public:
  TrainProgram(TraceBuilder& trace, const Job& job, int rank) : trace_(trace), job_(job), rank_(rank) {
    for (int i = 0; i < 2; ++i) ring_[i] = trace.buffer(rank, "ring.kv", 4096);
    own_ = trace.buffer(rank, "attention.kv", 4096);
  }

  void run() {
    for (int step = 0; step < job_.steps; ++step) {
      where_ = {};
      where_.step = step;
      if (job_.warm_up && step == 0)
        trace_.coll(rank_, kCompute, Axis::kCp, CollFunc::kBroadcast, "warm_up", where_, 8);
      trace_.coll(rank_, kCp, Axis::kCp, CollFunc::kAllReduce, "loss.count_cp", where_, 1);
      trace_.coll(rank_, kDp, Axis::kDp, CollFunc::kAllReduce, "loss.count_dp", where_, 1);
      where_.microbatch = 0;
      for (int layer = 0; layer < job_.layers; ++layer)
        if (!pass(layer, Pass::kForward)) return;  // the rank is gone
      for (int layer = job_.layers; layer-- > 0;) pass(layer, Pass::kBackward);
      end_of_step();
    }
    if (Mistakes::hit(job_.wrong.extra_last, rank_, where_))
      trace_.coll(rank_, kCp, Axis::kCp, CollFunc::kAllReduce, "metric.sum", where_, 1);
  }

 private:
  bool pass(int layer, Pass pass) {
    where_.layer = int16_t(layer);
    where_.pass = pass;
    if (Mistakes::hit(job_.wrong.skip_layer, rank_, where_)) return true;
    if (Mistakes::hit(job_.wrong.exit, rank_, where_)) {
      trace_.exit(rank_, 1, where_, "out of memory");
      return false;
    }
    trace_.coll(rank_, kCompute, Axis::kTp, CollFunc::kAllGather, "norm.ag", where_);
    if (job_.cp > 1) ring();
    trace_.coll(rank_, kCompute, Axis::kTp, CollFunc::kReduceScatter, "mlp.down_rs", where_);
    where_.layer = -1;
    where_.pass = Pass::kNone;
    return true;
  }

  void ring() {
    const bool forward = where_.pass == Pass::kForward;
    uint64_t held = own_;
    const uint32_t qkv = trace_.kernel(rank_, kCompute, "attention.qkv", where_);
    trace_.access(qkv, own_, AccessMode::kWrite);
    const uint64_t kv_ready = trace_.record(rank_, kCompute, "ring.kv_ready");
    const int early = forward ? hops_left_out() : 0;
    const int steps = job_.cp - early;
    const int distance = forward && Mistakes::hit(job_.wrong.turn_ring, rank_, where_) ? -1 : 1;
    std::vector<uint64_t> compute_done;
    for (int t = 0; t < steps; ++t) {
      where_.ring_step = int16_t(t);
      uint64_t recv_done = 0;
      if (t + 1 < steps) {
        if (t == 0) trace_.wait(rank_, kCp, kv_ready);
        if (t >= 2 && !Mistakes::hit(job_.wrong.no_wait_for_reader, rank_, where_))
          trace_.wait(rank_, kCp, compute_done[size_t(t) - 1], "ring.compute_done");
        const auto [recv, send] = trace_.hop(rank_, kCp, "ring.kv", where_, distance);
        trace_.access(recv, ring_[t % 2], AccessMode::kWrite);
        trace_.access(send, held, AccessMode::kRead);
        recv_done = trace_.record(rank_, kCp, "ring.recv_done");
      }
      const uint32_t flash = trace_.kernel(rank_, kCompute, forward ? "flash_forward" : "flash_backward", where_);
      trace_.access(flash, held, AccessMode::kRead);
      compute_done.push_back(trace_.record(rank_, kCompute, "ring.compute_done"));
      if (t + 1 < steps) {
        if (!Mistakes::hit(job_.wrong.no_wait_for_arrival, rank_, where_))
          trace_.wait(rank_, kCompute, recv_done, "ring.recv_done");
        held = ring_[t % 2];
      }
    }
    where_.ring_step = -1;
    if (!forward) gradient_home();
  }

  int hops_left_out() const {
    if (Mistakes::hit(job_.wrong.leave_ring_first, rank_, where_)) return 2;
    return Mistakes::hit(job_.wrong.leave_ring_early, rank_, where_) ? 1 : 0;
  }

  // The accumulated dK/dV comes home on the cp stream and compute waits for it.
  void gradient_home() {
    for (int t = 0; t < job_.cp; ++t) {
      where_.ring_step = int16_t(t);
      trace_.hop(rank_, kCp, "ring.dkv", where_);
    }
    where_.ring_step = -1;
    trace_.wait(rank_, kCompute, trace_.record(rank_, kCp, "ring.dkv_arrived"));
  }

  void end_of_step() {
    where_.microbatch = -1;
    where_.pass = Pass::kOptimizer;
    const bool swapped = Mistakes::hit(job_.wrong.cp_before_tp, rank_, where_);
    if (swapped) weights_over_cp();
    norms_over_tp();
    if (!swapped) weights_over_cp();
    const uint64_t ready = trace_.record(rank_, kCompute);
    trace_.wait(rank_, kDp, ready);
    for (int layer = 0; layer < job_.layers; ++layer) {
      where_.layer = int16_t(layer);
      trace_.coll(rank_, kDp, Axis::kDp, CollFunc::kAllReduce, "grad.weight_dp", where_, 1024);
    }
    where_.layer = -1;
    trace_.wait(rank_, kCompute, trace_.record(rank_, kDp));
    trace_.coll(rank_, kCompute, Axis::kTp, CollFunc::kAllReduce, "grad.norm_sq_tp", where_, 1);
    trace_.kernel(rank_, kCompute, "adamw", where_);
    trace_.host_sync(rank_, kCompute);
  }
  void norms_over_tp() {
    for (int layer = 0; layer < job_.layers; ++layer) {
      where_.layer = int16_t(layer);
      trace_.coll(rank_, kCompute, Axis::kTp, CollFunc::kAllReduce, "grad.norm_tp", where_, 32);
    }
    where_.layer = -1;
  }
  void weights_over_cp() {
    for (int layer = 0; layer < job_.layers; ++layer) {
      where_.layer = int16_t(layer);
      if (Mistakes::hit(job_.wrong.skip_weight_cp, rank_, where_)) continue;
      if (Mistakes::hit(job_.wrong.extra_cp, rank_, where_))
        trace_.coll(rank_, kCompute, Axis::kCp, CollFunc::kAllGather, "debug.gather", where_, 7);
      const bool other = Mistakes::hit(job_.wrong.other_op_cp, rank_, where_);
      const char* name = Mistakes::hit(job_.wrong.other_name_cp, rank_, where_) ? "grad.alias" : "grad.weight_cp";
      for (int times = Mistakes::hit(job_.wrong.twice_cp, rank_, where_) ? 2 : 1; times-- > 0;)
        trace_.coll(rank_, kCompute, Axis::kCp, other ? CollFunc::kBroadcast : CollFunc::kAllReduce, name, where_,
                    1024);
    }
    where_.layer = -1;
  }

  TraceBuilder& trace_;
  const Job& job_;
  int rank_;
  Where where_;
  uint64_t ring_[2] = {}, own_ = 0;
};

inline TraceBuilder build(const Job& job) {
  TraceBuilder trace(job.tp, job.cp, job.dp);
  for (int rank = 0; rank < trace.world(); ++rank) TrainProgram(trace, job, rank).run();
  return trace;
}

}  // namespace ringscope::testing
