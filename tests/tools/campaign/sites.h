// Hand-made sites: of a small job, or of the program that a TraceBuilder holds.
#pragma once

#include <string>

#include "runtime/config/job_config.h"
#include "runtime/fault/mutation.h"
#include "runtime/fault/site.h"
#include "runtime/layout/layout.h"

namespace ringscope::testing {

inline JobConfig job(int tp, int cp, int dp, int steps = 3) {
  JobConfig c;
  c.tp = tp, c.cp = cp, c.dp = dp;
  c.train_iters = steps;
  c.seq_length = 64;
  c.global_batch_size = dp;
  return c;
}

// Every rank's program: of each step the same sites.
class SiteMaker {
 public:
  explicit SiteMaker(const JobConfig& config)
      : config_(config), mesh_(*Mesh::make(config.tp, config.cp, config.dp, 1, config.order)),
        sites(size_t(config.world())) {}

  void create(Axis axis) {
    for (int rank = 0; rank < config_.world(); ++rank) {
      Site& site = add(rank, SiteKind::kCreate, "comm_init", "", -1);
      join(site, axis);
    }
  }
  void kernel(const char* name, int step, Pass pass = Pass::kForward, int layer = 0) {
    for (int rank = 0; rank < config_.world(); ++rank) {
      Site& site = add(rank, SiteKind::kKernel, name, "compute", step);
      site.where.pass = pass, site.where.layer = int16_t(layer);
      site.outputs.push_back({DType::kF32, 64, true});
    }
  }
  void call(const char* name, Axis axis, int step, int layer = -1, CollFunc func = CollFunc::kAllReduce,
            RedOp redop = RedOp::kSum) {
    for (int rank = 0; rank < config_.world(); ++rank) {
      if (mesh_.size(axis) < 2) continue;
      Site& site = add(rank, SiteKind::kCall, name,
                       axis == Axis::kCp   ? "cp"
                       : axis == Axis::kDp ? "dp"
                                           : "compute",
                       step);
      site.where.layer = int16_t(layer);
      join(site, axis);
      site.func = func;
      site.redop = func == CollFunc::kSend || func == CollFunc::kRecv ? RedOp::kNone : redop;
      if (func == CollFunc::kSend) site.peer = (site.group_rank + 1) % site.size;
      if (func == CollFunc::kRecv) site.peer = (site.group_rank + site.size - 1) % site.size;
      site.dtype = DType::kF32;
      site.in_count = site.out_count = 64;
    }
  }
  // A receive and a send in one group.
  void hop(int step, int ring_step) {
    call("ring.kv_recv", Axis::kCp, step, 0, CollFunc::kRecv);
    for (auto& of_rank : sites) of_rank.back().group = of_rank.back().index;
    call("ring.kv_send", Axis::kCp, step, 0, CollFunc::kSend);
    for (auto& of_rank : sites) {
      of_rank.back().group = of_rank.back().index - 1;
      of_rank[of_rank.size() - 2].where.ring_step = of_rank.back().where.ring_step = int16_t(ring_step);
    }
  }
  void upload(const char* name, int step) {
    for (int rank = 0; rank < config_.world(); ++rank) {
      add(rank, SiteKind::kUpload, name, "", step).where.microbatch = 0;
      add(rank, SiteKind::kKernel, name, "compute", step).where.microbatch = 0;
    }
  }

 private:
  Site& add(int rank, SiteKind kind, const char* name, const char* stream, int step) {
    Site site;
    site.rank = rank;
    site.index = uint32_t(sites[size_t(rank)].size());
    site.kind = kind, site.name = name, site.stream = stream;
    site.where.step = step;
    sites[size_t(rank)].push_back(std::move(site));
    return sites[size_t(rank)].back();
  }
  void join(Site& site, Axis axis) {
    const std::vector<int> ranks = mesh_.group(axis, site.rank);
    site.axis = axis;
    site.size = int(ranks.size());
    while (ranks[size_t(site.group_rank)] != site.rank) ++site.group_rank;
  }
  JobConfig config_;
  Mesh mesh_;

 public:
  SiteTable sites;
};

}  // namespace ringscope::testing
