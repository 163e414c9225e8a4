#include "tests/tools/spool/recorded_job.h"

#include <gtest/gtest.h>

#include "probes/recorder/recorder.h"
#include "runtime/train/train.h"

namespace ringscope {

JobConfig tiny_job(int tp, int cp, int steps) {
  JobConfig c;
  c.model.num_layers = 1;
  c.model.hidden_size = 16;
  c.model.num_attention_heads = 2;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 16;
  c.tp = tp;
  c.sequence_parallel = tp > 1;
  c.cp = cp;
  c.seq_length = 16;
  c.micro_batch_size = 1;
  c.global_batch_size = 1;
  c.train_iters = steps;
  return c;
}

void record_job(const JobConfig& config, const std::string& spool, int mode, uint64_t ring_bytes) {
  rs_options options{};
  options.spool_dir = spool.c_str();
  options.mode = mode;
  options.ring_bytes = ring_bytes;
  ASSERT_EQ(rs_open(&options), 0) << rs_last_error();
  auto result = train(config, {});
  rs_close();
  ASSERT_TRUE(result) << result.error().message;
}

}  // namespace ringscope
