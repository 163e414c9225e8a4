// Mutations of attention, its mask, positions and labels: what a run records tells them, on the changed ranks alone; the
// same job without them is clean.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/sweep/sweep.h"
#include "tools/analyze/analyze.h"

namespace ringscope::testing {
namespace {

JobConfig job(CpComm comm, int tp = 1, int cp = 4) {
  JobConfig c = clean_config(0);
  c.tp = tp, c.cp = cp, c.dp = 1;
  c.sequence_parallel = tp > 1;
  c.cp_comm = comm;
  c.dtype = DType::kF32;
  c.global_batch_size = 2;  // two microbatches
  c.micro_batch_size = 1;
  c.seq_length = 61;  // padded
  c.train_iters = 2;
  c.turns = false;
  c.model.num_layers = 2;
  c.model.attention_dropout = c.model.hidden_dropout = 0;
  return c;
}

struct Mutant {
  JobConfig config;
  const char* mutation;
  std::set<std::string> ids;
  std::vector<int> ranks;
};

const std::vector<int> kAll = {0, 1, 2, 3};

std::vector<Mutant> mutants() {
  const JobConfig ring = job(CpComm::kP2p), gather = job(CpComm::kAllGather), three = job(CpComm::kGlobalSoftmax);
  const JobConfig local = job(CpComm::kP2p, 2, 1);
  return {
      {ring, "scale=1.001@flash_forward:rank=1,step=1,layer=1", {"softmax.unexplained"}, {1}},
      {ring, "zero@flash_forward:rank=2,step=1,layer=0", {"softmax.unexplained"}, {2}},
      {ring, "previous@flash_forward:rank=2,step=1,layer=1", {"softmax.unexplained"}, {2}},
      {ring, "drop@flash_forward:rank=1,step=1,layer=1,ring_step=2", {"softmax.unexplained"}, {1}},
      {ring, "shift=0.001@lse_merge:step=1,layer=1,microbatch=1", {"softmax.lse_merge"}, kAll},
      {ring, "twice@lse_merge:rank=3,step=1", {"softmax.lse_merge"}, {3}},
      {ring, "drop@lse_merge:rank=3,step=1,layer=1,ring_step=3", {"softmax.lse_merge"}, {3}},
      {gather, "scale=1.001@flash_forward:rank=1,step=1", {"softmax.unexplained"}, {1}},
      {local, "shift=0.001@flash_forward:rank=1,step=1", {"softmax.unexplained"}, {1}},
      {three, "scale=1.001@score_max:rank=1,step=1,layer=1", {"softmax.unexplained"}, {1}},
      {three, "scale=1.001@exp_sum:rank=1,step=1,layer=1", {"softmax.unexplained"}, {1}},
      {three, "nan@exp_sum:rank=1,step=1,layer=1", {"softmax.nan_rows"}, {1}},
      {three, "scale=1.001@softmax_normalise:rank=2,step=1", {"softmax.unexplained"}, {2}},
      {three, "redop=sum@softmax.max_ar:step=1", {"softmax.sum_for_max"}, kAll},
      {three, "redop=avg@softmax.max_ar:step=1", {"softmax.wrong_reduction"}, kAll},
      {three, "redop=max@softmax.sum_ar:step=1", {"softmax.wrong_reduction"}, kAll},
      {three, "redop=max@softmax.out_rs:step=1", {"softmax.wrong_reduction"}, kAll},
      {three, "drop@softmax.sum_ar:step=1", {"softmax.no_global_sum"}, kAll},
      {ring, "offset=3@batch.position:rank=1,step=1,microbatch=1", {"position.offset"}, {1}},
      {ring, "next_rank@batch.position:step=1,microbatch=1", {"position.offset"}, kAll},
      {ring, "layout=contiguous@batch.position:step=1,microbatch=1", {"position.layout"}, kAll},
      {ring, "duplicate@batch.position:step=1,microbatch=1", {"position.overlap"}, kAll},
      {ring, "halves@batch.position:rank=2,step=1,microbatch=1", {"position.layout"}, {2}},
      {ring, "offset=2@batch.row:rank=1,step=1", {"position.offset"}, {1}},
      {ring, "next_rank@batch.row:rank=1,step=1,n=2", {"position.offset"}, {1}},
      {ring, "halves@batch.row:rank=1,step=1", {"position.layout"}, {1}},
      {three, "layout=contiguous@batch.row:step=1", {"position.layout"}, kAll},
      {ring, "duplicate@batch.row:rank=3,step=1,n=0", {"position.overlap"}, {3}},
      {ring, "restart@batch.row:rank=0,step=1,n=1", {"position.restart"}, {0}},
      {three, "next_rank@batch.document:rank=1,step=1", {"position.padding_shift"}, {1}},
      {ring, "next_rank@batch.labels:step=1,microbatch=1", {"loss.label_shift"}, kAll},
      {ring, "offset=1@batch.labels:rank=2,step=1", {"loss.label_shift"}, {2}},
      {ring, "halves@batch.labels:rank=2,step=1", {"loss.label_shift"}, {2}},
      {ring, "halves@batch.tokens:rank=2,step=1", {"loss.unexplained"}, {2}},
      {ring, "swap@grad.weight_cp:rank=3,step=1,layer=0", {"hang.order_swap"}, {3}},
      {ring, "count=256@ring.kv_recv:step=1,layer=1,pass=forward,ring_step=0", {"hang.arg_mismatch"}, kAll},
      {gather, "swap@grad.weight_cp:rank=0,step=0,layer=0", {"hang.order_swap"}, {0}},
  };
}

TEST(WrongNumbers, AreToldOnTheChangedRanksAlone) {
  std::map<std::string, std::string> twins;
  for (const Mutant& mutant : mutants()) {
    const std::string key = describe(mutant.config) + std::to_string(int(mutant.config.cp_comm));
    if (!twins.contains(key)) twins[key] = judge_clean(record_and_analyze(mutant.config));
    EXPECT_EQ(twins[key], "") << key;
    JobConfig config = mutant.config;
    config.mutations.push_back(*parse_mutation(mutant.mutation));
    const RecordedRun run = record_and_analyze(config);
    ASSERT_EQ(run.error, "") << mutant.mutation;
    int roots = 0;
    for (const Finding& f : run.report.findings) {
      if (!f.root) continue;
      ++roots;
      EXPECT_TRUE(mutant.ids.contains(f.id)) << mutant.mutation << ": " << f.id << ": " << f.sentence;
      EXPECT_EQ(f.ranks, mutant.ranks) << mutant.mutation << ": " << f.sentence;
      EXPECT_FALSE(f.would_raise_confidence.empty() && f.id != "softmax.nan_rows") << mutant.mutation << ": " << f.id;
    }
    EXPECT_EQ(roots, 1) << mutant.mutation;
  }
}

// What was computed before a run stands still is recorded, and comes before what made it stand still.
TEST(WrongNumbers, AHangHidesNothingBeforeIt) {
  JobConfig config = job(CpComm::kP2p);
  config.mutations = {*parse_mutation("scale=1.001@flash_forward:rank=1,step=1,layer=0"),
                      *parse_mutation("drop@grad.weight_cp:rank=3,step=1,n=0")};
  config.turns = true;
  const RecordedRun run = record_and_analyze(config);
  ASSERT_EQ(run.error, "");
  const auto& found = run.report.findings;
  EXPECT_TRUE(std::any_of(found.begin(), found.end(), [](const Finding& f) {
    return f.id == "softmax.unexplained" && f.root && f.ranks == std::vector<int>{1};
  }));
}

}  // namespace
}  // namespace ringscope::testing
