// The catalogue: every finding this version can give. Ids are stable and never reused; each has one page in
// playbooks/. Sorted by id.
#include <algorithm>
#include <iterator>

#include "tracedb/model/finding.h"

namespace ringscope {
namespace {

constexpr CatalogueRow kRows[] = {
    {"hang.arg_mismatch", Severity::kError,
     "a rank made the call of its group with another count, type, reduction or root",
     "compute the arguments from what all members share; compare shapes and dtypes across ranks before the call",
     false},
    {"hang.comm_init_mismatch", Severity::kError,
     "ranks create communicators in different orders, or not all members of one ask for it",
     "create all groups on every rank in one order, members or not, before the first use of any", false},
    {"hang.cross_group_cycle", Severity::kError,
     "ranks block each other in a circle because they run operations of two groups in different orders",
     "run the operations of different groups in one order on every rank", false},
    {"hang.dead_rank", Severity::kError, "a rank ended by itself while the others wait for it",
     "fix what ended the rank; abort the communicators on errors so that the others stop as well", false},
    {"hang.missing_rank", Severity::kError,
     "a rank never called an operation that the other members of the group called",
     "call the operation on every rank, unconditionally; pad or join where work is uneven", false},
    {"hang.op_mismatch", Severity::kError,
     "a rank called another operation, or one more, where its group agreed on something else",
     "make all members of the group call the same operation; look for a condition that only this rank takes", false},
    {"hang.order_swap", Severity::kError, "a rank made the calls of one group in another order than the others",
     "issue the calls of a group in one order that follows from the model, never from when something became ready",
     false},
    {"hang.p2p_cycle", Severity::kError,
     "ranks send to each other in a circle before any of them receives: nobody can go on without room in between",
     "put the send and the receive of a hop into one group, or let every second rank receive first", false},
    {"hang.ring_break", Severity::kError,
     "a rank left a ring pass early, so its neighbour waits for a block that is never sent",
     "compute the number of ring steps from the group size on every rank, not from the local length; pad "
     "sequences so that all shards are equal",
     false},
    {"hang.undecided", Severity::kWarning, "the run stalled and the evidence does not name a cause",
     "record again with --trace and without losses, and give the traces of all ranks", false},
    {"loss.grad_scale", Severity::kError,
     "gradients or the loss are the right ones times a product of group sizes, or divided by one",
     "reduce once over each axis, by a sum, and divide once by the global number of counted tokens", false},
    {"loss.label_shift", Severity::kError, "labels are not the token after them",
     "shift labels once, over the whole sequence, before it is cut into shards", false},
    {"loss.padding_counted", Severity::kError, "padded positions entered the loss",
     "give padding the label that is not counted, where the sequence is padded", false},
    {"loss.per_rank_mean", Severity::kError, "ranks divided their loss by their own token count and averaged the means",
     "all-reduce the number of counted tokens over CP and DP and divide by that", false},
    {"loss.unexplained", Severity::kError,
     "the reported loss contradicts what the ranks counted, summed and divided by, and no named cause fits",
     "compare divisor, count and sum in the first step that differs; divide the global sum by the global count once",
     false},
    {"numeric.nonfinite", Severity::kError, "a value is NaN or infinite from a place of the run on",
     "look at the operation that made the first one: its inputs, its divisions and exponentials, the learning rate",
     false},
    {"numeric.replica", Severity::kError, "ranks that must hold the same bits of a tensor or a number do not",
     "find the reduction or update that the odd rank left out or did otherwise in that step; broadcast the parameters "
     "from a good replica before going on",
     false},
    {"numeric.unexplained", Severity::kError,
     "gradient norm, clip factor or updated parameters do not follow from the reduced gradients, and no named cause "
     "fits",
     "compute the shown element or norm by hand from its row, in the first step that differs; look at what ran between",
     false},
    {"position.layout", Severity::kError,
     "positions of one context-parallel layout were applied to data laid out in another",
     "take positions from the same table that splits the tokens", false},
    {"position.offset", Severity::kError, "positions are the right ones plus a constant, or those of another rank",
     "compute the shard's offset from the rank's place in the context-parallel group, once, where the tokens are cut",
     false},
    {"position.overlap", Severity::kError,
     "a position of the sequence is applied twice in one shard, and another never",
     "take every token's position from the table that cuts the tokens, by its row", false},
    {"position.padding_shift", Severity::kError,
     "a mask takes padding for tokens, or tokens for padding: shifted by padding, or padding counted",
     "take the mask from the table that cuts and pads the tokens, by the row of each token", false},
    {"position.restart", Severity::kError, "positions applied on a shard restart at 0",
     "add the shard's offset to the positions (or index the position table by global row)", false},
    {"position.rope_base", Severity::kError, "ranks or layers rotate queries and keys with different bases",
     "take the rotation's base from one configuration on every rank and in every layer", false},
    {"position.unexplained", Severity::kError,
     "positions or rows of the sequence contradict each other and no named cause fits",
     "compare what the loader made with what the kernel was given in the first step that differs; take both from one "
     "table",
     false},
    {"race.freed_in_use", Severity::kError, "memory is given back, or was, while an operation may still use it",
     "free the memory in the order of the stream that used it last, or wait on the freeing stream for every stream "
     "that "
     "uses it",
     false},
    {"race.overwrite_before_read", Severity::kError,
     "a transfer, or another stream's kernel, may overwrite a block that compute still reads (WAR)",
     "record an event on the compute stream after the last read and make the transfer's stream wait for it", false},
    {"race.read_before_arrival", Severity::kError,
     "compute or the host reads a block that a transfer, or another stream's kernel, may still be writing (RAW)",
     "record an event on the transfer's stream after the receive and make the compute stream wait for it", false},
    {"race.send_before_ready", Severity::kError, "a transfer sends what a kernel may still be writing (RAW)",
     "record an event on the compute stream after the kernel that writes the block and make the transfer's stream wait "
     "for it",
     false},
    {"race.send_buffer_reused", Severity::kError,
     "the source of a transfer may be overwritten before the transfer is done with it (WAR)",
     "record an event on the transfer's stream after it and wait for it before the source is written again, or use "
     "another buffer",
     false},
    {"race.uninitialised_read", Severity::kError,
     "an operation or the host reads memory that nothing has written since it was allocated",
     "look for the operation that should have filled it: a kernel or call that was left out, a range that is too "
     "short, "
     "a view into the wrong buffer",
     false},
    {"race.write_write", Severity::kError, "two operations write the same bytes and nothing orders them",
     "record an event after the write that should come first and wait for it before the other, or give one of them "
     "another buffer",
     false},
    {"ring.stale_block", Severity::kError,
     "a rank computed attention with the block of another owner, layer or time than the call says",
     "check which buffer each ring step reads and when it is overwritten; a block and the mask of its owner go "
     "together",
     false},
    {"ring.step_count", Severity::kError, "ranks of one ring ran different numbers of attention steps",
     "run group-size steps on every rank of the ring", false},
    {"ring.wrong_neighbour", Severity::kError, "the peers of a group's transfers do not form one ring",
     "take the ring's neighbours from the group rank, (r + 1) mod P and (r - 1) mod P, on every rank and in every "
     "layer",
     false},
    {"softmax.lse_merge", Severity::kError, "a merged log-sum-exp is not the log-sum-exp of its parts",
     "merge with lse = logaddexp(a, b) and weights exp(lse_part - lse), for every part exactly once", false},
    {"softmax.nan_rows", Severity::kError, "attention made NaN or infinity out of finite inputs",
     "guard rows that see no key (output 0, log-sum-exp -inf) and subtract the maximum before exponentiating", false},
    {"softmax.no_global_max", Severity::kError, "shards normalised against their own maximum",
     "all-reduce the row maxima with MAX over the context-parallel group before exponentiating", false},
    {"softmax.no_global_sum", Severity::kError, "denominators were not summed over the shards",
     "all-reduce the row sums with SUM over the context-parallel group before dividing", false},
    {"softmax.sum_for_max", Severity::kError, "row maxima were reduced with SUM where MAX belongs",
     "pass MAX as the reduction of the maxima", false},
    {"softmax.unexplained", Severity::kError,
     "what a softmax over shards used contradicts what its members had, and no named cause fits",
     "compare maximum, denominator and log-sum-exp of the first row that differs; every part enters exactly once",
     false},
    {"softmax.wrong_reduction", Severity::kError,
     "maxima or denominators of shards were combined with another reduction than they need",
     "reduce row maxima with MAX and denominators with SUM over the context-parallel group", false},
};

}  // namespace

std::span<const CatalogueRow> catalogue() { return kRows; }

const CatalogueRow* find_in_catalogue(std::string_view id) {
  const auto row = std::find_if(std::begin(kRows), std::end(kRows), [&](const CatalogueRow& r) { return r.id == id; });
  return row == std::end(kRows) ? nullptr : row;
}

}  // namespace ringscope
