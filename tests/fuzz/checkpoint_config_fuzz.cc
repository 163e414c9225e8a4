// Any config.json is refused with a sentence or gives a model that validate() can judge.
#include "runtime/train/checkpoint_config.h"
#include "tests/fuzz/fuzz.h"
#include "tracedb/base/check.h"

using namespace ringscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto read = parse_checkpoint_config({reinterpret_cast<const char*>(data), size}, "input");
  if (!read) {
    RS_CHECK(!read.error().message.empty(), "a refusal says why");
    return 0;
  }
  JobConfig config;
  config.model = read->model;
  const Status valid = validate(config);
  RS_CHECK(valid || !valid.error().message.empty(), "a refusal says why");
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 48, "n_head": 4, "n_positions": 96, "vocab_size": 257,
          "layer_norm_epsilon": 1e-5, "scale_attn_weights": true, "n_inner": null, "resid_pdrop": 0.1})",
      R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 48, "num_attention_heads": 4,
          "num_key_value_heads": 2, "intermediate_size": 40, "vocab_size": 257, "rms_norm_eps": 1e-5,
          "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}, "architectures": ["LlamaForCausalLM"]})",
      R"({"model_type": "llama", "layer_types": ["full_attention"], "rope_scaling": {"type": "linear", "factor": 2}})"};
}
