// Hugging Face style checkpoint directories: config.json and model.safetensors, GPT-2 and Llama.
#pragma once

#include <string>

#include "runtime/config/job_config.h"
#include "runtime/model/host_tensor.h"
#include "tracedb/base/result.h"

namespace ringscope {

struct Checkpoint {
  ModelConfig model;             // from config.json, with the dropouts of its training
  double embedding_dropout = 0;  // as in CheckpointConfig
  HostTensors tensors;           // by checkpoint name
};

// What config.json asks for and this version cannot compute, and an adapter beside it, are refused by name (kUsage). A
// missing, extra, misshapen or truncated tensor, and one that contradicts config.json: kData.
Result<Checkpoint> read_checkpoint(const std::string& directory);

}  // namespace ringscope
