#include "runtime/model/tensor_parallel.h"

namespace ringscope::tensor_parallel {
namespace {

Tensor gather(RankContext& ctx, const Tensor& x, const char* name) {
  Tensor all = ctx.allocate({x.dim(0) * ctx.tp->size(), x.dim(1)}, name, MemCategory::kActivation);
  ctx.tp->all_gather(*ctx.compute, x, all, name);
  return all;
}

// Sum over TP of partial results: everything, or this rank's rows.
Tensor reduce(RankContext& ctx, const Tensor& y, const char* name) {
  if (!ctx.tp) return y;
  if (!ctx.sequence_parallel()) {
    ctx.tp->all_reduce(*ctx.compute, y, y, RedOp::kSum, name);
    return y;
  }
  Tensor own = ctx.allocate({y.dim(0) / ctx.tp->size(), y.dim(1)}, name, MemCategory::kActivation);
  ctx.tp->reduce_scatter(*ctx.compute, y, own, RedOp::kSum, name);
  return own;
}

}  // namespace

Tensor enter(RankContext& ctx, const Tensor& x, const char* name) {
  return ctx.sequence_parallel() ? gather(ctx, x, name) : x;
}

Tensor enter_backward(RankContext& ctx, const Tensor& dx, const char* name) { return reduce(ctx, dx, name); }

Tensor leave(RankContext& ctx, const Tensor& y, const char* name) { return reduce(ctx, y, name); }

Tensor leave_backward(RankContext& ctx, const Tensor& dy, const char* name) {
  return ctx.sequence_parallel() ? gather(ctx, dy, name) : dy;
}

int64_t row_count(const RankContext& ctx, int64_t tokens) {
  return ctx.sequence_parallel() ? tokens / ctx.tp->size() : tokens;
}

int64_t first_row(const RankContext& ctx, int64_t tokens) {
  return ctx.sequence_parallel() ? ctx.tp->rank() * row_count(ctx, tokens) : 0;
}

}  // namespace ringscope::tensor_parallel
