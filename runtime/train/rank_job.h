// RankJob: one rank's host program, shared by training and evaluation: streams, communicators in the agreed
// order, the model, and the end-of-step communication. Every method that returns bool or RankEnd says "stopped"
// by false / a non-zero status; nothing here blocks except at named read-back points.
#pragma once

#include <memory>
#include <vector>

#include "runtime/launch/launch.h"
#include "runtime/model/model.h"
#include "runtime/train/loader.h"
#include "runtime/train/tensor_stats.h"
#include "runtime/train/train.h"

namespace ringscope {

class RankJob {
 public:
  RankJob(Sched& sched, std::shared_ptr<CommWorld> world, const JobConfig& config, const Mesh& mesh, int rank,
          SequenceSplit split);

  // What stands between this rank's program and all that it uses; before start().
  void set_seam(Seam* seam);

  // Creates streams and communicators (blocks until the peers have joined), the model and its parameters.
  [[nodiscard]] bool start(const HostTensors* weights);

  RankContext& context() { return ctx_; }
  Model& model() { return *model_; }
  Loader& loader() { return loader_; }

  // The divisor of the loss: the number of counted labels over dp x cp, on the device.
  void set_divisor(int64_t own_count);
  const Tensor& divisor() const { return divisor_; }
  const Tensor& totals() const { return totals_; }  // own {loss sum, counted}, fp64 [2]
  void clear();                                     // gradients and totals, at the start of a step

  // End of the step: norm gradients over TP, weight gradients over CP, then DP; then the squared gradient norm.
  // `stats`, if given, sees gradients that are reduced in part.
  void sync_gradients(TensorStats* stats = nullptr);
  // Loss of the global batch: own sum / divisor, summed over cp and dp.
  void sync_loss();
  void optimizer_step(int64_t step_from_1, double lr);

  struct StepValues {
    double loss_sum = 0, divisor = 0, loss = 0, grad_norm = 0;
    int64_t valid_tokens = 0;
  };
  [[nodiscard]] bool read_step(StepValues& out);

  RankTraffic traffic() const;
  RankEnd stopped() const;  // what to return when a call said "stopped"

 private:
  void reduce_over(Communicator* comm, Stream& stream, const Tensor& tensor, StepQuantity quantity, const char* name);
  void reduce_bucket(Communicator& comm, Stream& stream, const GradBucket& bucket, const char* name);
  void reduce_norms_over_tp();
  void reduce_over_cp(bool replicated);  // the buckets that TP splits, or those that it replicates
  void reduce_over_dp();

  JobConfig config_;
  std::unique_ptr<Device> device_;  // outlives everything that holds tensors
  std::shared_ptr<CommWorld> world_;
  RankContext ctx_;
  std::unique_ptr<Model> model_;
  Loader loader_;
  Tensor divisor_, totals_, loss_, norm_sq_, clip_;
};

}  // namespace ringscope
