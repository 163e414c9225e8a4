// config.json of a Hugging Face GPT-2 or Llama: every key is read, known to leave the numbers alone, or refused.
#pragma once

#include <string>
#include <string_view>

#include "runtime/config/job_config.h"
#include "tracedb/base/result.h"

namespace ringscope {

struct CheckpointConfig {
  ModelConfig model;             // with the dropouts that the file names for training
  double embedding_dropout = 0;  // GPT-2 names it apart from the residual's
};

// `source` names the text in sentences. kUsage, with the key and its value: what this version cannot compute, a key that neither family has (null, false and
// empty ask for nothing and pass), two keys that contradict each other, a key written twice. kData: no JSON object, a missing size, a wrong type.
Result<CheckpointConfig> parse_checkpoint_config(std::string_view text, const std::string& source);

}  // namespace ringscope
