// What training and evaluation share before the ranks start: a validated configuration, mesh, split, sched and
// communication world, and the job facts in the trace.
#pragma once

#include <memory>

#include "runtime/adversary/adversary.h"
#include "runtime/train/checkpoint.h"
#include "runtime/train/nonfinite.h"
#include "runtime/train/rank_job.h"

namespace ringscope {

struct JobSetup {
  JobConfig config;
  Mesh mesh = *Mesh::make(1, 1, 1, 1);
  SequenceSplit split = *SequenceSplit::make(1, 1, CpLayout::kContiguous);
  HostTensors weights;  // of the checkpoint; empty = random start
  std::unique_ptr<Sched> sched;
  std::shared_ptr<CommWorld> world;
  std::vector<std::unique_ptr<RankJob>> ranks;
  std::unique_ptr<MutationPlan> plan;                       // null = nothing is planted
  std::vector<std::unique_ptr<RankAdversary>> adversaries;  // by rank; empty = none stands in between

  const HostTensors* start_weights() const { return weights.empty() ? nullptr : &weights; }
};

// What a checkpoint names that only training uses (dropout) is left out of an evaluation.
enum class Purpose { kTraining, kEvaluation };

// Reads the checkpoint if one is named, validates, builds everything. A key of the model that somebody wrote and that
// says another thing than the checkpoint: kUsage.
Result<std::unique_ptr<JobSetup>> set_up(JobConfig config, Purpose purpose);
// Puts an adversary between every rank's program and what it uses: one that does what job.plan says, or that lists.
void set_adversaries(JobSetup& job);
// Runs the ranks; hooks as in train().
RunEnd run_ranks(JobSetup&, const std::function<RankEnd(RankJob&, int rank)>& body, const TrainHooks& hooks);

}  // namespace ringscope
