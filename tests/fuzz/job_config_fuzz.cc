// Any JSON text is refused with a sentence or gives a configuration that validate() can judge.
#include "runtime/config/job_config.h"
#include "tests/fuzz/fuzz.h"
#include "tracedb/base/check.h"

using namespace ringscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  JobConfig config = default_job();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Status applied = apply_json(config, text, "input");
  if (!applied) {
    RS_CHECK(!applied.error().message.empty(), "a refusal says why");
    return 0;
  }
  const Status valid = validate(config);
  RS_CHECK(valid || !valid.error().message.empty(), "a refusal says why");
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {"{}",
          R"({"sequence_parallel": true, "context_parallel_size": 2, "tensor_model_parallel_size": 2})",
          R"({"seq_length": 256, "micro_batch_size": 1, "global_batch_size": 8, "attention_backend": "flash"})",
          R"({"use_ring_attention": true, "ring_attention_comm_overlap": false, "data_parallel_size": 2})",
          R"({"seq_length": 256e99999})",
          to_json(default_job())};
}
