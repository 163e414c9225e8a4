// RankContext: what every layer of one rank needs. Built by the trainer, shared by reference; plain data.
#pragma once

#include <memory>

#include "runtime/attention/attention.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/seam.h"
#include "runtime/config/job_config.h"
#include "runtime/device/device.h"
#include "runtime/layout/layout.h"

namespace ringscope {

struct RankContext {
  const JobConfig* config = nullptr;
  Mesh mesh = *Mesh::make(1, 1, 1, 1);
  Coord coord;
  Device* device = nullptr;
  Stream* compute = nullptr;  // kernels, TP collectives, end-of-step norm and CP weight gradients
  Stream* cp_stream = nullptr;
  Stream* dp_stream = nullptr;
  std::unique_ptr<Communicator> tp, cp, dp;  // null where the axis has size 1
  std::unique_ptr<SoftmaxLog> softmax_log;
  AttentionWatch* attention_watch = nullptr;  // null = nobody looks
  Seam* seam = nullptr;                       // null = nothing stands between this program and what it uses

  bool sequence_parallel() const { return config->sequence_parallel && tp != nullptr; }
  DType dtype() const { return config->dtype; }

  Tensor allocate(std::initializer_list<int64_t> shape, const char* name,
                  MemCategory category = MemCategory::kActivation) const {
    return device->allocate(config->dtype, shape, category, name);
  }
};

}  // namespace ringscope
