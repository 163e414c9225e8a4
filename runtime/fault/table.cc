// The faults, as `ringscope faults` lists them. Each imitates a bug that somebody reported in public.
#include "runtime/fault/fault.h"

namespace ringscope {
namespace {

// `layout` avoids an option where the default of the job does it. `rank` in words: what a right verdict accuses.
constexpr FaultRow kFaults[] = {
    {FaultId::kRingEarlyExit, "ring-early-exit",
     "one rank leaves the K/V ring one step early; its neighbours wait for a block that nobody sends",
     "hang.ring_break", "ring.step_count", "hang", "the rank that left early (rank=)", "rank,layer,step",
     "--context-parallel-size 4", "https://github.com/zhuzilin/ring-flash-attention/issues/39"},
    {FaultId::kCrossGroupOrder, "cross-group-order",
     "two diagonal ranks of TP x CP reduce gradients over CP before TP, the others over TP before CP: the waits form "
     "a cycle",
     "hang.cross_group_cycle", "", "hang",
     "the ranks that depart from TP, CP, DP: those whose tp and cp coordinates are equal", "step",
     "--tensor-model-parallel-size 2 --context-parallel-size 2 --sequence-parallel",
     "https://github.com/NVIDIA/nccl/issues/584"},
    {FaultId::kCrossGroupOrderOne, "cross-group-order-one",
     "the clean twin of cross-group-order: one rank alone exchanges the two reductions, which cannot deadlock", "", "",
     "none", "nobody: nothing may be reported", "rank,step",
     "--tensor-model-parallel-size 2 --context-parallel-size 2 --sequence-parallel",
     "https://github.com/NVIDIA/nccl/issues/584"},
    {FaultId::kOpMismatch, "op-mismatch", "one rank broadcasts where the others all-reduce the gradients of a layer",
     "hang.op_mismatch", "", "hang", "the rank that called the other operation (rank=)", "rank,layer,step",
     "--context-parallel-size 2", "https://github.com/modelscope/ms-swift/issues/10183"},
    {FaultId::kSkipAllReduce, "skip-all-reduce",
     "one rank does not call the gradient all-reduce of a layer; its later calls pair with the wrong ones",
     "hang.missing_rank", "", "hang", "the rank that skipped the call (rank=)", "rank,layer,step",
     "--context-parallel-size 2", "https://github.com/lightseekorg/TorchSpec/pull/126"},
    {FaultId::kRankExit, "rank-exit", "one rank leaves the job in the middle of a forward pass; the others wait for it",
     "hang.dead_rank", "", "hang", "the rank that exited (rank=)", "rank,layer,step", "--context-parallel-size 2",
     "https://github.com/NVIDIA/nccl/issues/582"},
    {FaultId::kRingBufferReuse, "ring-buffer-reuse",
     "the transfer stream does not wait for the attention that still reads the ring buffer before it receives the next "
     "block into it (write after read)",
     "race.overwrite_before_read", "", "corrupt", "the rank without the wait (rank=)", "rank,layer,step,ring_step",
     "--context-parallel-size 4", "https://github.com/deepspeedai/DeepSpeed/pull/7805"},
    {FaultId::kRingUseBeforeArrival, "ring-use-before-arrival",
     "attention does not wait for the event after the receive before it reads the arriving block (read after write)",
     "race.read_before_arrival", "", "corrupt", "the rank without the wait (rank=)", "rank,layer,step,ring_step",
     "--context-parallel-size 4", "https://github.com/NVIDIA/TransformerEngine/pull/2829"},
    {FaultId::kNoGlobalMax, "no-global-max",
     "the three-step softmax skips its all-reduce MAX: every shard is normalised by its own maximum",
     "softmax.no_global_max", "", "corrupt", "every rank of the CP group", "layer,step",
     "--context-parallel-size 2 --cp-comm-type global_softmax", "https://github.com/sgl-project/sglang/issues/33065"},
    {FaultId::kNoGlobalSum, "no-global-sum",
     "the three-step softmax skips its all-reduce SUM: every shard divides by its own denominator",
     "softmax.no_global_sum", "", "corrupt", "every rank of the CP group", "layer,step",
     "--context-parallel-size 2 --cp-comm-type global_softmax",
     "https://github.com/flashinfer-ai/flashinfer/pull/3838"},
    {FaultId::kSumForMax, "sum-for-max", "the three-step softmax all-reduces its maxima with SUM instead of MAX",
     "softmax.sum_for_max", "", "corrupt", "every rank of the CP group", "layer,step",
     "--context-parallel-size 2 --cp-comm-type global_softmax", "https://github.com/PaddlePaddle/Paddle/issues/70351"},
    {FaultId::kLastPartWins, "last-part-wins",
     "the merge of ring parts keeps the last part instead of weighing both by their log-sum-exp", "softmax.lse_merge",
     "", "corrupt", "every rank that merges parts, or rank= alone", "rank,layer,step", "--context-parallel-size 2",
     "https://github.com/flashinfer-ai/flashinfer/pull/58"},
    {FaultId::kPositionRestart, "position-restart",
     "positions count from 0 within every shard instead of following the whole sequence", "position.restart", "",
     "corrupt", "every rank whose rows are not the first of the sequence, or rank= alone", "rank,step",
     "--context-parallel-size 2", "https://github.com/thunlp/Seq1F1B/issues/6"},
    {FaultId::kZigzagOnContiguous, "zigzag-on-contiguous",
     "the data is cut into contiguous shards, the positions are those of zigzag shards", "position.layout", "",
     "corrupt", "every rank of the CP group, or rank= alone", "rank,step",
     "--context-parallel-size 2 --cp-layout contiguous", "https://github.com/THUDM/slime/issues/1871"},
    {FaultId::kPerRankMean, "per-rank-mean",
     "every rank divides its loss by its own token count and the means are averaged; counts differ between ranks",
     "loss.per_rank_mean", "", "corrupt", "every rank that shares the batch (CP x DP)", "step",
     "--context-parallel-size 2 --cp-layout contiguous --seq-length 61",
     "https://github.com/NVIDIA/Megatron-LM/issues/7513"},
};

}  // namespace

std::span<const FaultRow> fault_rows() { return kFaults; }

const FaultRow* find_fault(std::string_view name) {
  for (const FaultRow& row : kFaults)
    if (row.name == name) return &row;
  return nullptr;
}

}  // namespace ringscope
