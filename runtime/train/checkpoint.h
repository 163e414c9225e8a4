// Hugging Face style checkpoint directories: config.json and model.safetensors, GPT-2 and Llama.
#pragma once

#include <string>

#include "runtime/config/job_config.h"
#include "runtime/model/host_tensor.h"
#include "tracedb/base/result.h"

namespace ringscope {

struct Checkpoint {
  ModelConfig model;    // from config.json; dropouts are 0
  HostTensors tensors;  // by checkpoint name
};

// What this version cannot compute (another model_type, a rope_type, attention biases, a window) is refused by
// name (kUsage). A missing, extra, misshapen or truncated tensor: kData.
Result<Checkpoint> read_checkpoint(const std::string& directory);

}  // namespace ringscope
