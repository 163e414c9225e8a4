// The closed vocabularies of the trace. Values are stored on disk: append, never renumber.
#pragma once

#include <cstdint>

namespace ringscope {

// A host read stands on the stream that the host had waited for; it is the host that reads. The creation of a communicator
// blocks the host as well: its name is the communicator's, it has started when the rank asked for it and ends when all are there.
enum class OpKind : uint8_t {
  kKernel = 0,
  kCollective = 1,
  kP2p = 2,
  kEventRecord = 3,
  kEventWait = 4,
  kHostRead = 5,
  kCommInit = 6
};

// Operation names in reports: all_reduce, all_gather, reduce_scatter, broadcast, reduce, gather, scatter,
// all_to_all, barrier, send, recv.
enum class CollFunc : uint8_t {
  kAllReduce = 0,
  kAllGather = 1,
  kReduceScatter = 2,
  kBroadcast = 3,
  kReduce = 4,
  kGather = 5,
  kScatter = 6,
  kAllToAll = 7,
  kBarrier = 8,
  kSend = 9,
  kRecv = 10,
  kUnknown = 255
};
enum class RedOp : uint8_t { kSum = 0, kMax = 1, kMin = 2, kAvg = 3, kNone = 255 };
enum class DType : uint8_t { kF32 = 0, kF64 = 1, kBF16 = 2, kI32 = 3, kI64 = 4, kU8 = 5, kNone = 255 };
enum class Direction : uint8_t { kSend = 0, kRecv = 1 };
enum class AccessMode : uint8_t { kRead = 1, kWrite = 2, kReadWrite = 3, kFree = 4 };

// scheduled = enqueued by the host; started = reached the head of its stream (blocked for peers counts as
// started); completed.
enum class OpState : uint8_t { kScheduled = 0, kStarted = 1, kCompleted = 2 };

enum class SyncKind : uint8_t { kRecord = 0, kWait = 1, kHostSync = 2 };

// What memory is for; the byte accounting is kept per category.
enum class MemCategory : uint8_t {
  kParameter = 0,
  kGradient = 1,
  kOptimizer = 2,
  kActivation = 3,
  kKvRing = 4,
  kKvGathered = 5,
  kCommBuffer = 6,
  kWorkspace = 7,
  kInput = 8,
  kStatistics = 9,
  kCount = 10
};

// Where positions were seen: made by the loader, or applied by a kernel.
enum class PositionRole : uint8_t { kData = 0, kRope = 1, kEmbedding = 2, kMask = 3 };

// Which values a tensor statistic is of: a parameter's reduced gradient, its updated value, its gradient before any
// rank added its own, an activation that entered or left an attention call, a gradient that was reduced over TP only or
// over CP but not over DP yet, or both moments of the optimizer.
enum class TensorRole : uint8_t {
  kGradient = 0,
  kParameter = 1,
  kLocalGradient = 2,
  kAttentionInput = 3,
  kAttentionOutput = 4,
  kGradientOverTp = 5,
  kGradientOverCp = 6,
  kMoments = 7,
  kCount = 8
};

// Numbers of a rank's step. What is reduced is recorded before the first reduction and after each.
enum class StepQuantity : uint8_t {
  kLossSum = 0,     // of the step's counted tokens up to this microbatch
  kCounted = 1,     // their number, as the kernel counted
  kDivisor = 2,     // before reductions: the rank's number of labels, as the host counted
  kLoss = 3,        // before reductions: the rank's share, sum / divisor
  kGradNormSq = 4,  // squared Euclidean norm; before reductions: of what this rank counts
  kClip = 5,        // what gradients were multiplied with
  // Of one microbatch, computed again in fp64 from what the kernels read:
  kRowsLoss = 6,     // what it adds to the loss sum
  kRowsCounted = 7,  // what it adds to the count
  kRowsMiss = 8,  // sum over counted tokens of 1 - p of the label, or p of another token where the label lies elsewhere
  kRowsLabels = 9,     // counted tokens whose label lies in this part of the vocabulary
  kLossGradient = 10,  // what the loss's backward kernel made of the same: kRowsMiss / divisor
  kCount = 11
};

enum class Axis : uint8_t { kTp = 0, kCp = 1, kDp = 2, kPp = 3, kWorld = 4, kTpCp = 5, kDpCp = 6, kUnknown = 255 };

const char* name(OpKind);
const char* name(CollFunc);      // "all_reduce", ...
const char* name(RedOp);         // "sum", ...
const char* name(DType);         // "fp32", ...
const char* name(TensorRole);    // "gradient", "parameter", ...
const char* name(StepQuantity);  // "loss_sum", ...
const char* name(MemCategory);   // "parameter", ...
const char* name(Axis);          // "tp", ...
const char* name(OpState);       // "scheduled", ...
const char* name(AccessMode);    // "read", ...
const char* name(PositionRole);  // "data", "rope", ...

constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::kF64:
    case DType::kI64: return 8;
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16: return 2;
    default: return 1;
  }
}

}  // namespace ringscope
