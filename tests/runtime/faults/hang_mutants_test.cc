// Hangs that no table lists, on real recorded runs: one change, one root, the ranks that changed. Each job without its
// mutation is clean.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sweep/recorded_run.h"
#include "tracedb/base/rank_range.h"

namespace ringscope {
namespace {

using testing::record_and_analyze;
using testing::RecordedRun;

struct Layout {
  int tp, cp, dp, slots = 8;
};
constexpr Layout kThree{1, 3, 1}, kNoRoom{1, 3, 2, 0}, kRings{1, 4, 2}, kMesh{2, 2, 1}, kMeshes{2, 2, 2};

JobConfig job(const Layout& layout) {
  JobConfig c;
  c.tp = layout.tp, c.cp = layout.cp, c.dp = layout.dp;
  c.sequence_parallel = layout.tp > 1;
  c.comm.p2p_slots = layout.slots;
  c.model.num_layers = 2;
  c.model.hidden_size = 16;
  c.model.num_attention_heads = 2;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 16;
  c.cp_layout = CpLayout::kContiguous;
  c.seq_length = 24;
  c.global_batch_size = 2 * layout.dp;
  c.train_iters = 4;
  c.turns = true;  // what is seen first is the same on any machine
  return c;
}

// "hang.dead_rank[1,2]"; "" = no root.
std::string roots(const RecordedRun& run) {
  std::string text = run.error;
  for (const Finding& f : run.report.findings)
    if (f.root) text += (text.empty() ? "" : " ") + f.id + "[" + format_rank_range(f.ranks) + "]";
  return text;
}

struct Row {
  Layout layout;
  const char* mutation;
  const char* roots;
};
const Row kRows[] = {
    // ends of programs: alike at one place is one mistake
    {kThree, "exit@swiglu:rank=1+2,step=1,microbatch=0,layer=1", "hang.dead_rank[1-2]"},
    {kThree, "exit@swiglu:step=1,n=0", "hang.dead_rank[0-2]"},
    {kThree, "kill@swiglu:rank=1,step=1,n=0", "hang.dead_rank[1]"},
    {kMesh, "kill@comm_init:rank=1", "hang.dead_rank[1]"},
    {kMesh, "exit@comm_init:rank=1,n=1", "hang.dead_rank[1]"},
    // hosts that stop issuing
    {kNoRoom, "hang@loss.share:step=2", "hang.missing_rank[0-5]"},
    {kNoRoom, "hang@swiglu:rank=0-3,step=1", "hang.ring_break[0-3]"},
    {kRings, "hang@loss.count_dp:rank=0-4+7,step=1,kind=record,n=0", "hang.missing_rank[0-4,7]"},
    {kMesh, "hang@comm_init:rank=1,n=1", "hang.missing_rank[1]"},
    {kMesh, "hang@comm_init:rank=1+2,n=0", "hang.missing_rank[1-2]"},
    {kRings, "pause=0.05@swiglu:rank=1,step=1,n=0", ""},
    // arguments
    {kThree, "count=half@grad.weight_cp:rank=1+2,step=2,n=0", "hang.arg_mismatch[1-2]"},
    {kRings, "count=half@ring.kv_send:rank=1,step=2,microbatch=0,layer=0,ring_step=0,pass=forward",
     "hang.arg_mismatch[1]"},
    {kRings, "redop=max@grad.weight_cp:step=2,n=1", "hang.arg_mismatch[0-7]"},
    // more, fewer, elsewhere
    {kThree, "twice@loss.sum_cp:rank=2,step=3", "hang.op_mismatch[2]"},
    {kRings, "peer=2@ring.kv_recv:rank=0,step=0-,microbatch=1,layer=1,pass=backward,ring_step=1",
     "ring.wrong_neighbour[0]"},
    {kRings, "drop@*:rank=3,step=1,microbatch=0,pass=forward", "hang.ring_break[3]"},
    {kMeshes, "drop@*:rank=3,step=1,microbatch=1", "hang.missing_rank[3]"},
    {kMesh, "drop@loss.sum_cp:rank=0,step=0-,kind=call", "hang.missing_rank[0]"},
    // in every step: a rank's own steps are no witnesses for it, the groups beside it are
    {kMeshes, "comm=cp@grad.norm_sq_tp:rank=2,step=0-,pass=optimizer", "hang.op_mismatch[2]"},
    {kMeshes, "func=all_gather@grad.weight_dp:rank=2,step=0-,pass=optimizer", "hang.op_mismatch[2]"},
    // all members of a group, in another way each or in the same: other steps, or a group beside it, show the mistake
    {kMeshes, "func=broadcast@loss.count_cp:step=3", "hang.op_mismatch[0-7]"},
    {kThree, "func=broadcast@grad.weight_cp:rank=0+2,step=1,n=0", "hang.op_mismatch[0,2]"},
    {kMeshes, "func=reduce_scatter@grad.weight_cp:rank=0+1+2+3+5,step=1,n=0", "hang.op_mismatch[0-3,5]"},
    {kMeshes, "swap@mlp.din_reduce:rank=1+3+4+5+6+7,step=1,microbatch=0,layer=1", "hang.order_swap[1,3-7]"},
    {kRings, "count=half@ring.dkv_send:step=1,microbatch=0,layer=1,ring_step=1", "hang.arg_mismatch[0-7]"},
    // half of every group, in a first step: nobody is accused, unless other steps tell
    {kMesh, "swap@grad.weight_cp:rank=0+1,step=0-,n=1", "hang.order_swap[0-1]"},
    {kRings, "peer=2@ring.kv_recv:rank=0+1+4+5,step=0-,microbatch=1,layer=1,pass=backward,ring_step=1",
     "hang.undecided[]"},
    // transfers in a circle, with room or without
    {kNoRoom, "split@ring.kv_send:step=2,microbatch=0,layer=1,pass=forward,ring_step=0", "hang.p2p_cycle[0-5]"},
    {kNoRoom, "split@ring.kv_send:rank=0-2,step=2,microbatch=0,layer=1,pass=forward,ring_step=0",
     "hang.p2p_cycle[0-2]"},
    {kRings, "split@ring.kv_send:rank=1,step=2,microbatch=0,layer=1,pass=forward,ring_step=0", ""},
    // creations: a circle without a majority shows all of it, one rank alone is no circle
    {kMesh, "swap@comm_init:rank=1+2,n=0", "hang.comm_init_mismatch[0-3]"},
    {kMeshes, "swap@comm_init:rank=1+2,n=0", "hang.comm_init_mismatch[1-2]"},
    {kMesh, "swap@comm_init:rank=1,n=0", ""},
    {kMesh, "swap@comm_init", ""},
};

class HangMutant : public ::testing::TestWithParam<Row> {};

TEST_P(HangMutant, HasOneRootWithTheRanksThatChanged) {
  JobConfig config = job(GetParam().layout);
  config.mutations.push_back(*parse_mutation(GetParam().mutation));
  EXPECT_EQ(roots(record_and_analyze(config)), GetParam().roots) << GetParam().mutation;
}
INSTANTIATE_TEST_SUITE_P(Rows, HangMutant, ::testing::ValuesIn(kRows),
                         [](const auto& info) { return "row" + std::to_string(info.index); });

TEST(HangMutants, TheirJobsAreClean) {
  for (const Layout& layout : {kThree, kNoRoom, kRings, kMesh, kMeshes})
    EXPECT_EQ(roots(record_and_analyze(job(layout))), "");
}

}  // namespace
}  // namespace ringscope
