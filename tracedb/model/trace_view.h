// TraceView: the read-only tables in memory that every analyzer takes. The store's reader fills it from
// SQLite; importers of foreign formats fill the same. Nothing behind this header knows where rows came from.
//
// Tables are contiguous arrays of small rows (an op is about 100 bytes). Unless stated, rows are sorted by
// (rank, issue). Issue is a rank's time order over its host threads; it is program order only between rows of one
// thread: between threads, only events and matched operations order. Times are ns on one time line, 0 = unknown.
// A row is cited in evidence by the id that a person can query in its source: cite(), finding.h.
//
// A struct is what its SQL table holds (tracedb/store/columns.h says under which names and with which NULLs), and links
// to rows of other tables that load_view() and merge_views() set; importers leave those alone.
// Views are built once and then shared read-only between threads.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tracedb/model/enums.h"
#include "tracedb/model/record.h"
#include "tracedb/model/where.h"

namespace ringscope {

inline constexpr uint32_t kNoRow = 0xFFFFFFFF;
inline constexpr uint32_t kAnyStream = 0xFFFFFFFF;  // of all that used the buffer

struct RankRow {
  int32_t rank = 0;
  int32_t tp = 0, cp = 0, dp = 0, pp = 0;  // coordinates
  int64_t pid = 0;
  std::string host;
  int32_t world = 0;
  int32_t tp_size = 0, cp_size = 0, dp_size = 0, pp_size = 0;
};

struct RankExitRow {
  int32_t rank = 0;
  int64_t status = 0;  // RankExitRecord::status
  int64_t time_ns = 0;
  std::string reason;
  Where where;
};

struct StreamRow {
  uint32_t stream = 0;  // id as in ops
  int32_t rank = 0;
  std::string name;
};

struct CommRow {
  uint32_t comm = 0;
  Axis axis = Axis::kUnknown;
  std::string name;
  std::vector<int32_t> ranks;  // global, by group rank
};

struct OpRow {
  uint64_t op = 0;  // unique in the job
  int32_t rank = 0;
  uint32_t stream = 0;
  uint32_t name = 0;  // into TraceView::strings
  OpKind kind = OpKind::kKernel;
  OpState state = OpState::kScheduled;
  uint32_t coll = kNoRow;  // link: row in colls
  uint32_t p2p = kNoRow;   // link: row in p2ps
  uint64_t issue = 0;      // order within the rank, shared with syncs: see TraceView
  uint64_t group = 0;      // op id of the first op of the group call, 0 = none
  Where where;
  int64_t enqueue_ns = 0, start_ns = 0, end_ns = 0;
  uint64_t bytes_sent = 0;
  uint16_t thread = 0;  // host thread of the rank that issued it
};

struct CollRow {
  uint32_t op = kNoRow;  // link: row in ops
  uint32_t comm = 0;
  CollFunc func = CollFunc::kUnknown;
  DType dtype = DType::kNone;
  RedOp redop = RedOp::kNone;
  int32_t root = -1;
  uint64_t seq = 0;
  uint64_t count = 0;
  int32_t rank = 0;
  uint64_t issue = 0, op_id = 0;
};

struct P2pRow {
  uint32_t op = kNoRow;  // link: row in ops
  uint32_t comm = 0;
  int32_t peer = 0;  // group rank
  Direction direction = Direction::kSend;
  DType dtype = DType::kNone;
  uint64_t seq = 0;  // among (comm, src, dst), from 0
  uint64_t bytes = 0;
  uint64_t count = 0;
  int32_t rank = 0;
  uint64_t issue = 0, op_id = 0;
};

struct AccessRow {       // sorted by op row
  uint32_t op = kNoRow;  // link: row in ops
  uint64_t buffer = 0;
  uint64_t begin = 0, end = 0;
  AccessMode mode = AccessMode::kRead;
  int32_t rank = 0;
  uint64_t issue = 0, op_id = 0;
};

struct SyncRow {
  int32_t rank = 0;
  uint32_t stream = 0;
  SyncKind kind = SyncKind::kRecord;
  uint64_t issue = 0;
  uint64_t event = 0;
  uint64_t key = 0;  // the record call; on a wait 0 = never recorded
  Where where;
  uint32_t name = 0;
  uint16_t thread = 0;  // host thread of the rank that made the call
  int64_t time_ns = 0;
};

struct BufferRow {
  uint64_t buffer = 0;
  int32_t rank = 0;
  uint64_t bytes = 0;
  MemCategory category = MemCategory::kActivation;
  uint32_t name = 0;             // into TraceView::strings
  uint64_t issue = 0, base = 0;  // base: address, for people only
  int64_t alloc_ns = 0, free_ns = 0;
  uint32_t free_stream = kAnyStream;  // whose order the free follows
  Where where;
};

struct RingPlanRow {
  int32_t rank = 0;
  uint32_t comm = 0;
  Where where;
  uint32_t expected_steps = 0, run_steps = 0;
  uint64_t issue = 0;
};

struct PositionRunRow {
  int32_t rank = 0;
  Where where;
  PositionRole role = PositionRole::kData;
  uint32_t token_start = 0, count = 0, pos_start = 0;
  int32_t stride = 1;
  uint32_t document = 0;  // 0xFFFFFFFF = padding
  uint32_t sample = 0;
  float rope_base = 0;
  uint64_t issue = 0;
};

struct SoftmaxRow {
  int32_t rank = 0;
  Where where;
  uint32_t position = 0;
  int32_t head = 0;
  int32_t kv_owner = 0;  // group rank in CP; 0xFFFF = result row
  uint32_t sample = 0;
  SoftmaxMethod method = SoftmaxMethod::kLseMerge;
  int32_t parts = 0;
  double m_own = 0, lse_own = 0, m_used = 0, sum_used = 0, lse_result = 0;
  uint64_t issue = 0;
};

struct SoftmaxStatRow {  // all rows and heads of one attention call on this rank
  int32_t rank = 0;
  Where where;
  uint32_t rows = 0;   // query rows x heads
  uint32_t empty = 0;  // of them see no key: LSE = -inf
  uint32_t bad = 0;    // of them have NaN or +inf as LSE
  SoftmaxMethod method = SoftmaxMethod::kLseMerge;
  int32_t parts = 0;
  double lse_min = 0, lse_max = 0, lse_mean = 0;  // over the finite ones; NaN = there are none
  uint64_t issue = 0;
};

struct AttentionRow {  // one query row of one head over one block of keys: AttentionRowRecord
  int32_t rank = 0;
  Where where;
  uint32_t position = 0;
  int32_t head = 0;
  int32_t kv_owner = 0;  // group rank in CP; 0xFFFF = all keys of the call
  uint32_t sample = 0;
  RowMaker maker = RowMaker::kKernel;
  DType dtype = DType::kNone;
  SoftmaxMethod method = SoftmaxMethod::kLseMerge;
  int32_t parts = 0;
  double m = 0, lse = 0, out = 0;
  double out_size = 0, score_noise = 0;  // recomputed rows only
  uint32_t keys = 0;
  int32_t block_owner = 0;  // group rank in CP
  uint64_t checksum = 0;    // 0 = none
  uint64_t issue = 0;
};

struct LabelRunRow {  // tokens and labels of consecutive rows of one document: LabelRunRecord
  int32_t rank = 0;
  Where where;
  LabelRole role = LabelRole::kData;
  uint32_t token_start = 0, count = 0, sample = 0;
  uint32_t document = 0;  // 0xFFFFFFFF = padding
  int32_t first_token = -1, last_token = -1, first_label = -1, last_label = -1;
  uint32_t counted = 0, pairs = 0, next = 0, same = 0, second = 0;
  uint64_t tokens_sum = 0, labels_sum = 0;  // checksums
  uint64_t issue = 0;
};

struct TensorStatRow {  // one parameter or activation of a rank
  int32_t rank = 0;
  Where where;
  uint32_t name = 0;  // into TraceView::strings
  TensorRole role = TensorRole::kGradient;
  int32_t part = -1;      // TP rank of the slice; -1 = every TP rank holds it whole
  uint64_t count = 0;     // elements
  uint64_t checksum = 0;  // ranks with equal step, name, role and part must agree; 0 = role has no replicas
  double norm = 0;        // Euclidean
  uint64_t bad = 0;       // elements that are NaN or infinite
  uint64_t issue = 0;
  double projection = std::numeric_limits<double>::quiet_NaN();  // product with a fixed vector; NaN = not known
};

struct StepValueRow {  // one number of a rank's step: StepValueRecord
  int32_t rank = 0;
  Where where;
  StepQuantity quantity = StepQuantity::kCount;
  Axis axis = Axis::kUnknown;  // unknown = the rank's own, not reduced
  double value = 0;
  uint64_t issue = 0;
};

struct UpdateSampleRow {  // one element of a parameter in one optimizer step: UpdateSampleRecord
  int32_t rank = 0;
  Where where;
  uint32_t name = 0;  // into TraceView::strings
  int32_t part = -1;  // TP rank of the slice; -1 = every TP rank holds it whole
  uint64_t element = 0;
  double gradient = 0;
  double value_before = 0, m_before = 0, v_before = 0;
  double value_after = 0, m_after = 0, v_after = 0;
  uint64_t issue = 0;
};

struct MemorySampleRow {
  int32_t rank = 0;
  Where where;
  MemCategory category = MemCategory::kActivation;
  uint64_t bytes = 0, peak_bytes = 0;
  uint64_t issue = 0;
  int64_t time_ns = 0;
};

struct TrainStepRow {
  int32_t rank = 0;
  Where where;
  double loss_sum = 0;
  uint64_t valid_tokens = 0;
  double divisor = 0, loss = 0;
  uint64_t tokens = 0;
  double seconds = 0, grad_norm = 0, lr = 0;
  uint64_t peak_bytes = 0;
  uint64_t issue = 0;
};

// A loss bars every finding that rests on something being absent on that rank within its time range.
struct LostRow {
  int32_t rank = -1;  // -1 = any
  std::string ring;
  uint64_t records = 0, torn = 0;
  int64_t from_ns = 0, to_ns = 0;  // 0 = open: since the beginning, until the end
  // Does it reach into [from, to]? 0 = open on that side.
  bool touches(int64_t from, int64_t to) const {
    return (!to_ns || !from || to_ns >= from) && (!from_ns || !to || from_ns <= to);
  }
};

struct ImportStat {
  std::string name;
  std::string severity;  // info | data_loss | error
  int64_t count = 0;
  std::string help;
};

struct SourceRow {
  std::string path, format;
  int32_t rank = -1;  // -1 = several
  int64_t rows = 0, lost = 0;
};

// Tables whose rows can be cited.
enum class TableId : uint8_t {
  kRankExit,
  kOp,
  kColl,
  kP2p,
  kAccess,
  kSync,
  kBuffer,
  kRingPlan,
  kPositionRun,
  kSoftmaxRow,
  kSoftmaxStat,
  kTensorStat,
  kAttentionRow,
  kLabelRun,
  kStepValue,
  kUpdateSample,
  kMemorySample,
  kTrainStep,
  kCount
};
const char* name(TableId);  // "op", "coll", ...

// Rows [first, the next run's first) of a table came from one source, where their ids count on from first_id.
struct RowRun {
  uint32_t first = 0;
  int32_t source = 0;  // index into TraceView::sources
  int64_t first_id = 1;
};

// The run that holds row `row`; without one, the rows of source 0 from id 1.
RowRun run_of(const std::vector<RowRun>& runs, size_t row);

struct TraceView {
  std::vector<SourceRow> sources;
  std::vector<RankRow> ranks;  // sorted by rank
  std::vector<RankExitRow> rank_exits;
  std::vector<StreamRow> streams;
  std::vector<CommRow> comms;  // in creation order
  std::vector<OpRow> ops;
  std::vector<CollRow> colls;
  std::vector<P2pRow> p2ps;
  std::vector<AccessRow> accesses;
  std::vector<SyncRow> syncs;
  std::vector<BufferRow> buffers;
  std::vector<RingPlanRow> ring_plans;
  std::vector<PositionRunRow> position_runs;
  std::vector<SoftmaxRow> softmax_rows;
  std::vector<SoftmaxStatRow> softmax_stats;
  std::vector<TensorStatRow> tensor_stats;
  std::vector<AttentionRow> attention_rows;
  std::vector<LabelRunRow> label_runs;
  std::vector<StepValueRow> step_values;
  std::vector<UpdateSampleRow> update_samples;
  std::vector<MemorySampleRow> memory_samples;
  std::vector<TrainStepRow> train_steps;
  std::vector<LostRow> lost;
  std::vector<ImportStat> import_stats;
  std::array<std::vector<RowRun>, size_t(TableId::kCount)> origins;  // empty = source 0, ids from 1
  std::vector<std::string> strings;                                  // [0] = ""
  std::unordered_map<std::string, std::string> meta;                 // "world_size", "cp_layout", "outcome", ...

  std::string_view text(uint32_t id) const {
    return id < strings.size() ? std::string_view(strings[id]) : std::string_view();
  }
  bool lossless(int32_t rank) const { return lossless(rank, 0, 0); }  // nothing of this rank is missing
  // Nothing of this rank is missing between two times; 0 = open on that side.
  bool lossless(int32_t rank, int64_t from_ns, int64_t to_ns) const {
    for (const LostRow& row : lost)
      if ((row.rank == rank || row.rank < 0) && (row.records || row.torn) && row.touches(from_ns, to_ns)) return false;
    return true;
  }
};

// Meta keys that a run of ours writes. "outcome": completed | stalled | interrupted; absent = the program
// was killed. "stall_ns": when the stall was declared.
namespace meta_key {
inline constexpr const char* kOutcome = "outcome";
inline constexpr const char* kWorldSize = "world_size";
inline constexpr const char* kAxisOrder = "axis_order";  // "tp-cp-dp-pp"
inline constexpr const char* kCpLayout = "cp_layout";    // contiguous | zigzag
inline constexpr const char* kCpSize = "cp_size";
inline constexpr const char* kSeqLength = "seq_length";  // true tokens of a sequence
inline constexpr const char* kPaddedLength = "padded_length";
inline constexpr const char* kToolVersion = "tool_version";
inline constexpr const char* kConfig = "config";  // the whole JobConfig as JSON
// Set by importers of pictures of a running job: every rank whose rows are here was alive when they were taken.
inline constexpr const char* kSnapshot = "snapshot";
}  // namespace meta_key

}  // namespace ringscope
