// The 64-byte trace record: eight 64-bit words. This file is the one table that fixes every field of every
// kind; the producer (probes/recorder) packs with it, the importer (tracedb/import/spool) unpacks with it.
//
//   word 0  the seal: the low half of the sequence number within the ring (from 1) and a check over the rest
//           (tracedb/spool/seal.h); written last, with release order; 0 = being written
//   word 1  time stamp in ticks of the ring's clock (TSC or CLOCK_MONOTONIC ns; the ring header says which)
//   word 2  kind (16 bits) | flags (16) | lane (16) | count of continuation records that follow (16)
//   word 3..7  payload by kind, below
//
// A record is valid only with its seal, and one whose continuation count is n only when the n records behind it are:
// a torn group counts as one loss. In a continuation record word 2 has kind kContinuation and words 3..7 are payload words 5..9.
// Layout changes bump kSpoolVersion (tracedb/spool/spool.h). Plain data only: it is shared between processes through a mapped file.
#pragma once

#include <cstdint>

#include "tracedb/model/enums.h"
#include "tracedb/model/where.h"

namespace ringscope {

inline constexpr int kRecordWords = 8;
inline constexpr int kRecordBytes = 64;
inline constexpr int kPayloadWords = 5;  // per record

enum class RecordKind : uint16_t {
  kNone = 0,
  kContinuation = 1,
  kOpEnqueue = 2,
  kOpStart = 3,
  kOpEnd = 4,
  kColl = 5,
  kP2p = 6,
  kAccess = 7,
  kSync = 8,
  kBufferAlloc = 9,
  kBufferFree = 10,
  kStream = 11,
  kComm = 12,
  kCommRank = 13,
  kPositionRun = 14,
  kSoftmaxRow = 15,
  kMemorySample = 16,
  kTrainStep = 17,
  kRankExit = 18,
  kRank = 19,
  kRingPlan = 20,
  kMeta = 21,
  kSoftmaxStat = 22,
  kTensorStat = 23,
  kAttentionRow = 24,
  kLabelRun = 25,
  kStepValue = 26,
  kUpdateSample = 27,
};
inline constexpr uint16_t kRecordKinds = 28;

// What other records name, and how a rank ended: few, and worth the most when a ring has wrapped many times. They are
// kept outside of the rings too (tracedb/spool/spool.h).
constexpr bool is_definition(uint16_t kind) {
  switch (RecordKind(kind)) {
    case RecordKind::kStream:
    case RecordKind::kComm:
    case RecordKind::kCommRank:
    case RecordKind::kRankExit:
    case RecordKind::kRank:
    case RecordKind::kMeta: return true;
    default: return false;
  }
}

// Payload structs, in words. Every struct is a multiple of 8 bytes, without padding holes.
// "name" fields are ids of interned strings (0 = none).

struct OpEnqueueRecord {  // by the host thread that issued the operation; lane = stream id
  uint64_t op;            // ring id << 40 | sequence; unique in the job
  uint64_t where;         // Where::pack
  uint32_t name;
  uint16_t kind;  // OpKind
  uint16_t reserved;
  uint64_t group;  // op id of the first operation of the group call, 0 = not in a group
};
struct OpStartRecord {  // by the worker, when the operation reached the head of its stream
  uint64_t op;
};
struct OpEndRecord {
  uint64_t op;
  uint64_t bytes_sent;  // bytes copied towards peers by this operation, counted where they were copied
};
struct CollRecord {  // follows the enqueue record of the same op on the host's ring
  uint64_t op;
  uint32_t comm;                         // comm id: unique in the job
  uint8_t func, dtype, redop, reserved;  // CollFunc, DType, RedOp
  uint64_t seq;                          // position among the collectives of this communicator on this rank, from 0
  uint64_t count;                        // elements as the call states them
  int32_t root;                          // group rank; -1 = none
  uint32_t reserved2;
};
struct P2pRecord {
  uint64_t op;
  uint32_t comm;
  uint16_t peer;  // group rank
  uint8_t direction, dtype;
  uint64_t seq;  // position among the transfers of (comm, src, dst) in this direction, from 0
  uint64_t bytes;
  uint64_t count;  // elements
};
struct AccessRecord {  // byte range of one buffer that an operation reads or writes
  uint64_t op;
  uint64_t buffer;      // buffer id, unique in the job
  uint64_t begin, end;  // bytes from the start of the buffer, half open
  uint64_t mode;        // AccessMode
};
struct SyncRecord {  // host order counts. lane = the stream recorded on / waiting
  uint64_t event;    // event handle, unique in the job; 0 for kHostSync
  uint64_t key;      // names one record call; a wait carries the key it bound, 0 = never recorded (no-op)
  uint32_t kind;     // SyncKind. kHostSync: the host waited until stream `lane` had drained
  uint32_t reserved;
  uint64_t where;
  uint64_t name;  // what the event protects ("ring.recv_done")
};
struct BufferAllocRecord {
  uint64_t buffer;
  uint64_t base;  // address, for people only
  uint64_t bytes;
  uint32_t category;  // MemCategory
  uint32_t name;
  uint64_t where;
};
inline constexpr uint16_t kEveryStream = 0xFFFF;
struct BufferFreeRecord {  // lane = stream whose order the free follows; kEveryStream = of all that used the buffer
  uint64_t buffer;
};
struct StreamRecord {  // lane = the stream id (unique in the job)
  uint64_t name;       // "compute", "cp", "dp"
};
struct CommRecord {  // one per member, when it asks for the communicator; order on a rank = creation order
  uint32_t comm;
  uint32_t size;
  uint32_t name;        // "tp", "cp", ... plus the members for people: "cp[0,2]"
  uint16_t axis;        // Axis
  uint16_t group_rank;  // of the recording rank
  uint64_t creation;    // n-th communicator this rank created, from 0
};
struct CommRankRecord {
  uint32_t comm;
  uint32_t group_rank;
  uint64_t rank;  // global
};
struct PositionRunRecord {
  uint64_t where;
  uint32_t token_start;  // row in the global (padded) sequence
  uint32_t count;
  uint32_t pos_start;  // the value made (role data) or applied, read where the kernel reads it
  int32_t stride;      // pos(i) = pos_start + i * stride
  uint32_t role;       // PositionRole
  uint32_t document;   // id, 0xFFFFFFFF = padding
  uint32_t sample;     // global sample index in the step
  float rope_base;     // 0 = not RoPE
};
struct SoftmaxRowRecord {  // 10 words: one continuation record
  uint64_t where;          // ring_step = part index
  uint32_t position;       // global row of the query
  uint16_t head;           // global query head
  uint16_t kv_owner;       // group rank in CP whose keys this part covers; 0xFFFF = the merged result
  uint32_t sample;         // global sample index in the step
  uint16_t method;         // SoftmaxMethod
  uint16_t parts;          // parts that this row has in all
  double m_own;            // maximum over the part's own keys (-inf = sees none)
  double lse_own;          // natural log-sum-exp over the part's own keys
  double m_used;           // the maximum the normalisation really used (NaN = the method uses none)
  double sum_used;         // the denominator really used, relative to exp(m_used) (NaN = none)
  double lse_result;       // kv_owner 0xFFFF: LSE of the merged row; NaN elsewhere
  uint64_t reserved;
};
struct SoftmaxStatRecord {  // 6 words: one continuation record. All rows and heads of one attention call on this rank
  uint64_t where;
  uint32_t rows;    // query rows x heads
  uint32_t empty;   // of them see no key: LSE = -inf
  uint32_t bad;     // of them have NaN or +inf as LSE
  uint16_t method;  // SoftmaxMethod
  uint16_t parts;
  double lse_min, lse_max, lse_mean;  // natural, over the finite ones; NaN = there are none
};
inline constexpr uint16_t kHasProjection = 1;  // flag of the record: without it the last word was not written
struct TensorStatRecord {  // 7 words: one continuation record. One parameter of this rank, or an activation: TensorRole
  uint64_t where;
  uint32_t name;      // interned, a parameter as the checkpoint spells it; a fused weight has its names joined with +
  uint16_t role;      // TensorRole
  uint16_t part;      // TP rank of the slice; 0xFFFF = every TP rank holds it whole
  uint64_t count;     // elements
  uint64_t checksum;  // of the bytes: ranks with equal name, role and part must agree. 0 = role has no replicas
  double norm;        // Euclidean
  uint64_t bad;       // elements that are NaN or infinite
  double projection;  // product with a fixed vector of factors in [-1, 1]: linear, so it adds up as the tensors do
};
struct StepValueRecord {  // one number of a rank's step, where it was computed
  uint64_t where;
  uint16_t quantity;  // StepQuantity
  uint16_t axis;      // Axis of the communicator whose reduction it comes from; 0xFFFF = the rank's own
  uint32_t reserved;
  double value;
};
struct UpdateSampleRecord {  // 10 words: one continuation record. One element of a parameter in one optimizer step
  uint64_t where;
  uint32_t name;     // as in TensorStatRecord
  uint32_t part;     // TP rank of the slice; 0xFFFF = every TP rank holds it whole
  uint64_t element;  // in the rank's own part
  double gradient;   // reduced, not clipped
  double value_before, m_before, v_before;
  double value_after, m_after, v_after;
};
struct AttentionRowRecord {  // 10 words: one continuation record. One query row of one head over one block of keys
  uint64_t where;            // ring_step = part index, as in SoftmaxRowRecord
  uint32_t position;         // global row of the query
  uint16_t head;             // global query head
  uint16_t kv_owner;         // group rank in CP whose keys these are; 0xFFFF = all keys of the call
  uint32_t sample;           // global sample index in the step
  uint16_t parts;            // blocks of keys that the whole row is made of
  uint8_t maker;             // RowMaker
  uint8_t dtype;             // DType of q, K and V
  double m;                  // maximum of the scaled scores (-inf = sees none; NaN = not known)
  double lse;                // natural log-sum-exp of them
  double out;                // the output row of this block alone, as its product with a fixed vector; NaN = not known
  double out_size;           // the same with absolute values of all factors; recomputed rows only, like what follows
  double score_noise;        // largest sum of |q_x k_x| of a visible key, scaled, times sqrt(D)
  uint32_t keys;             // visible ones
  uint16_t block_owner;      // group rank in CP whose bytes the checksum is of: K and V, of three steps q
  uint16_t method;           // SoftmaxMethod
  uint64_t checksum;         // of the block that came from another rank, or stayed; 0 = none
};
struct LabelRunRecord {  // 10 words: one continuation record. Tokens and labels of consecutive rows of one document
  uint64_t where;
  uint32_t token_start;  // row in the global (padded) sequence
  uint32_t count;
  uint32_t sample;                  // global sample index in the step
  uint16_t role, reserved;          // LabelRole
  int32_t first_token, last_token;  // -1 = behind the end
  int32_t first_label, last_label;  // -1 = not counted
  uint32_t document;                // id, 0xFFFFFFFF = padding
  uint32_t counted;                 // labels that are counted
  uint32_t pairs, next;             // counted labels with a row behind them in the run; those that are its token
  uint32_t same, second;            // counted labels that are their own row's token; of pairs, the one after the next
  uint64_t tokens_sum, labels_sum;  // checksums
};
struct MemorySampleRecord {
  uint64_t where;
  uint32_t category;
  uint32_t reserved;
  uint64_t bytes;       // live now
  uint64_t peak_bytes;  // since the start
};
struct TrainStepRecord {  // 10 words: one continuation record
  uint64_t where;
  double loss_sum;        // of this rank's counted tokens (replicated over TP)
  uint64_t valid_tokens;  // counted by this rank
  double divisor;         // what this rank divided by
  double loss;            // what this rank reported
  uint64_t tokens;        // global tokens of the step
  double seconds;
  double grad_norm;
  double lr;
  uint64_t peak_bytes;
};
struct RankExitRecord {  // written by runtime/launch, not by the rank
  uint64_t rank;
  int64_t status;   // 0 = ran to its end; > 0 exit code, 128 + n = killed by signal n; -1 = stopped with the run;
                    // -2 = still blocked
  uint64_t reason;  // interned text
  uint64_t where;   // the last place the rank named
};
struct RankRecord {  // identity and coordinates of the recording rank
  uint32_t rank, world;
  uint16_t tp, cp, dp, pp;                      // coordinates
  uint16_t tp_size, cp_size, dp_size, pp_size;  // sizes
  uint64_t pid;
  uint64_t host;  // interned
};
struct RingPlanRecord {  // how many attention steps a rank intended for one ring pass, counted as it ran
  uint64_t where;
  uint32_t comm;
  uint32_t expected_steps;  // CP size
  uint32_t run_steps;       // steps the loop really ran
  uint32_t reserved;
};
struct MetaRecord {
  uint64_t key, value;  // interned
};

// Whose values an AttentionRowRecord holds: what a kernel put out, or what fp64 arithmetic makes of the q, K and V that
// it was given and of the mask that the layout says.
enum class RowMaker : uint8_t { kKernel = 0, kRecomputed = 1 };
// Tokens and labels as the loader made them, or as the device's kernels read them.
enum class LabelRole : uint16_t { kData = 0, kApplied = 1 };

enum class SoftmaxMethod : uint16_t { kLseMerge = 0, kGlobalThreeStep = 1 };

// Words a payload takes; kinds over kPayloadWords are written with one continuation record.
template <class T>
inline constexpr int words_of = int(sizeof(T) / 8);

static_assert(sizeof(OpEnqueueRecord) == 32 && sizeof(CollRecord) == 40 && sizeof(P2pRecord) == 40);
static_assert(sizeof(SyncRecord) == 40 && sizeof(AccessRecord) == 40 && sizeof(BufferAllocRecord) == 40);
static_assert(sizeof(PositionRunRecord) == 40 && sizeof(RankRecord) == 40);
static_assert(sizeof(SoftmaxStatRecord) == 48 && sizeof(TensorStatRecord) == 56);
static_assert(sizeof(AttentionRowRecord) == 80 && sizeof(LabelRunRecord) == 80);
static_assert(sizeof(StepValueRecord) == 24 && sizeof(UpdateSampleRecord) == 80);
static_assert(sizeof(SoftmaxRowRecord) == 72 && sizeof(TrainStepRecord) == 80);

}  // namespace ringscope
