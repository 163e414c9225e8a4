// Two passes over the rings. The first collects the start and end marks of operations (the workers' rings), the frees of
// buffers and the communicators of each process; the second turns everything else into rows and joins them. Transactions
// of about 64k rows; each carries the drain_state of the rings it covers, so a second import continues behind it.
// Ids that processes count for themselves become the job's (job_ids.h).
#include "tracedb/import/spool/spool_import.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "tracedb/import/spool/job_ids.h"
#include "tracedb/import/spool/spool_tables.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

constexpr int64_t kRowsPerTransaction = 64 * 1024;
constexpr uint64_t kMarksInBlock = 1024;  // rings that wrapped for days name operations of any number, and few of them
// A larger sequence number is a damaged record: every operation of a ring wrote a record, or lost one.
constexpr uint64_t kMostOpsWithoutRing = uint64_t(1) << 20;  // of threads that got no ring

struct Mark {
  int64_t start_ns = 0, end_ns = 0;
  uint64_t bytes_sent = 0;
  bool joined = false;
};

struct Free {
  int64_t ns = 0;
  uint32_t stream = kAnyStream;
  bool joined = false;
};

using spool::JobIds;
using spool::token_text;

class SpoolImport {
 public:
  SpoolImport(const std::string& dir, Store& store, SpoolContents contents)
      : dir_(dir), store_(store), contents_(std::move(contents)), ids_(store) {
    for (const ProcessNames& p : contents_.processes) names_[p.token] = &p.names;
  }

  Result<SourceRow> run() {
    Status ok = read_drain_state();
    if (ok) ok = store_.begin();
    if (ok) ok = ids_.begin(contents_.rings);
    if (ok) collect_marks();
    if (ok) ok = ids_.identify();
    for (const RingReader& ring : contents_.rings) {
      if (!ok) break;
      ok = read_ring(ring);
    }
    if (ok) ok = write_rest();
    if (ok) ok = store_.commit();
    if (!ok) {
      store_.rollback();
      return tl::unexpected(ok.error());
    }
    return source_;
  }

 private:
  using Key = std::pair<uint64_t, uint32_t>;  // process token, ring id
  static Key key_of(const RingReader& r) { return {r.process_token(), r.ring_id()}; }

  Status read_drain_state() {
    auto rows = store_.query("SELECT process, ring, next_seq FROM drain_state");
    if (!rows) return tl::unexpected(rows.error());
    for (const auto& row : rows->rows) {
      const Key key{spool::token_of(row[0]), uint32_t(std::get<int64_t>(row[1]))};
      next_seq_[key] = uint64_t(std::get<int64_t>(row[2]));
    }
    for (const RingReader& ring : contents_.rings) {
      const auto it = next_seq_.find(key_of(ring));
      if (it == next_seq_.end() || it->second < ring.end_seq()) anything_new_ = true;
    }
    return {};
  }

  struct Place {  // of a row: what nearly every table starts with
    int32_t rank;
    uint64_t issue;
    uint16_t thread;
    const JobIds::Process& ids;
  };
  Mark* mark_of(uint64_t op, bool create) {
    const uint64_t at = op & ((uint64_t(1) << 40) - 1);
    const auto most = most_ops_.find(uint32_t(op >> 40));
    if (at > (most == most_ops_.end() ? kMostOpsWithoutRing : most->second)) return nullptr;
    const uint64_t block = op / kMarksInBlock;
    const auto found = create ? marks_.try_emplace(block, kMarksInBlock).first : marks_.find(block);
    return found == marks_.end() ? nullptr : &found->second[op % kMarksInBlock];
  }

  void collect_marks() {
    if (!anything_new_) return;
    for (const RingReader& ring : contents_.rings) {
      const RingLoss loss = ring.loss();
      most_ops_[ring.ring_id()] = loss.recovered + loss.lost + loss.torn + 1;
    }
    for (const RingReader& ring : contents_.rings) {
      const JobIds::Process& ids = ids_.of(ring);
      ring.for_each(1, [&](const Group& g) {
        if (g.kind == RecordKind::kBufferFree)
          frees_[ids.id(g.as<BufferFreeRecord>().buffer)] = {ring.to_ns(g.ticks),
                                                             g.lane == kEveryStream ? kAnyStream : ids.stream(g.lane)};
        if (g.kind == RecordKind::kCommRank) ids_.collect(ring, g.as<CommRankRecord>());
        if (g.kind == RecordKind::kComm) {
          const auto r = g.as<CommRecord>();
          ids_.collect(ring, r, text(ring, r.name));
        }
        if (g.kind != RecordKind::kOpStart && g.kind != RecordKind::kOpEnd) return;
        Mark* mark = mark_of(g.payload[0], true);
        if (!mark) return;
        if (g.kind == RecordKind::kOpStart) {
          mark->start_ns = ring.to_ns(g.ticks);
        } else {
          mark->end_ns = ring.to_ns(g.ticks);
          mark->bytes_sent = g.as<OpEndRecord>().bytes_sent;
        }
      });
    }
  }

  // Text of a name id as the recording process meant it.
  std::string text(const RingReader& ring, uint64_t id) {
    if (id == 0) return "";
    const auto process = names_.find(ring.process_token());
    if (process != names_.end()) {
      const auto it = process->second->find(uint32_t(id));
      if (it != process->second->end()) return it->second;
    }
    ++names_missing_;
    return "?" + std::to_string(id);
  }
  uint32_t name(const RingReader& ring, uint64_t id) {
    if (id == 0) return 0;
    const auto [it, fresh] = name_ids_.try_emplace({ring.process_token(), id}, 0);
    if (!fresh) return it->second;
    auto stored = store_.string_id(text(ring, id));
    if (!stored) {
      status_ = tl::unexpected(stored.error());
      return 0;
    }
    return it->second = uint32_t(*stored);
  }
  void write_now(const std::string& sql, std::initializer_list<Cell> values) {
    if (status_) status_ = store_.run(sql, std::span<const Cell>(values.begin(), values.size()));
  }

  Status read_ring(const RingReader& ring) {
    const uint16_t thread = ids_.thread_of(ring);
    const JobIds::Process& ids = ids_.of(ring);
    uint64_t issue = 0;
    const auto drained = next_seq_.find(key_of(ring));
    const uint64_t from = drained == next_seq_.end() ? 1 : drained->second;
    ring.for_each(from, [&](const Group& g) {
      if (!status_) return;
      issue = std::max(issue + 1, g.ticks);
      read_group(ring, g, {ring.rank(), issue, thread, ids});
      if (++pending_ >= kRowsPerTransaction) {
        status_ = write_tables(ring, g.seq + (g.n_words > kPayloadWords ? 2 : 1));
        if (status_) status_ = store_.commit();
        if (status_) status_ = store_.begin();
      }
    });
    if (status_) status_ = write_drain_state(ring, ring.end_seq());
    return status_;
  }

  Status write_drain_state(const RingReader& ring, uint64_t next) {
    const Cell values[] = {token_text(ring.process_token()), int64_t(ring.ring_id()), int64_t(next)};
    return store_.run("INSERT OR REPLACE INTO drain_state VALUES(?, ?, ?)", values);
  }
  Status write_tables(const RingReader& ring, uint64_t next) {
    pending_ = 0;
    Status ok = tables_.write(store_);
    tables_.clear();
    return ok ? write_drain_state(ring, next) : ok;
  }

  template <class Row>
  static Row& add(std::vector<Row>& rows, const Place& at) {
    Row& row = rows.emplace_back();
    row.rank = at.rank;
    row.issue = at.issue;
    return row;
  }
  template <class Row>
  static Row& add(std::vector<Row>& rows, const Place& at, uint64_t where) {
    Row& row = add(rows, at);
    row.where = Where::unpack(where);
    return row;
  }

  void read_group(const RingReader& ring, const Group& g, const Place& at) {
    switch (g.kind) {
      case RecordKind::kOpStart:
      case RecordKind::kOpEnd:
      case RecordKind::kBufferFree: break;  // joined through the marks
      case RecordKind::kOpEnqueue: read_enqueue(ring, g, at); break;
      case RecordKind::kColl: read_coll(g.as<CollRecord>(), at); break;
      case RecordKind::kP2p: read_p2p(g.as<P2pRecord>(), at); break;
      case RecordKind::kAccess: read_access(g.as<AccessRecord>(), at); break;
      case RecordKind::kSync: read_sync(ring, g, at); break;
      case RecordKind::kBufferAlloc: read_alloc(ring, g, at); break;
      case RecordKind::kRingPlan: read_plan(g.as<RingPlanRecord>(), at); break;
      case RecordKind::kSoftmaxRow: read_softmax(g.as<SoftmaxRowRecord>(), at); break;
      case RecordKind::kSoftmaxStat: read_softmax_stat(g.as<SoftmaxStatRecord>(), at); break;
      case RecordKind::kTensorStat: read_tensor_stat(ring, g, at); break;
      case RecordKind::kStepValue: read_step_value(g.as<StepValueRecord>(), at); break;
      case RecordKind::kUpdateSample: read_update(ring, g.as<UpdateSampleRecord>(), at); break;
      case RecordKind::kPositionRun: read_positions(g.as<PositionRunRecord>(), at); break;
      case RecordKind::kAttentionRow: read_attention(g.as<AttentionRowRecord>(), at); break;
      case RecordKind::kLabelRun: read_labels(g.as<LabelRunRecord>(), at); break;
      case RecordKind::kMemorySample: read_memory(ring, g, at); break;
      case RecordKind::kTrainStep: read_train_step(g.as<TrainStepRecord>(), at); break;
      default: read_fact(ring, g, at); break;
    }
  }

  void read_enqueue(const RingReader& ring, const Group& g, const Place& at) {
    const auto r = g.as<OpEnqueueRecord>();
    OpRow& row = add(tables_.ops, at, r.where);
    row.op = r.op;
    row.kind = OpKind(r.kind);
    row.group = r.group;
    row.thread = at.thread;
    row.stream = at.ids.stream(g.lane);
    row.name = name(ring, r.name);
    row.enqueue_ns = ring.to_ns(g.ticks);
    if (Mark* mark = mark_of(r.op, false)) {
      row.start_ns = mark->start_ns;
      row.end_ns = mark->end_ns;
      row.bytes_sent = mark->bytes_sent;
      row.state = row.end_ns ? OpState::kCompleted : row.start_ns ? OpState::kStarted : OpState::kScheduled;
      mark->joined = true;
    }
  }

  void read_coll(const CollRecord& r, const Place& at) {
    CollRow& row = add(tables_.colls, at);
    row.op_id = r.op;
    row.comm = at.ids.comm(r.comm);
    row.func = CollFunc(r.func);
    row.dtype = DType(r.dtype);
    row.redop = RedOp(r.redop);
    row.root = r.root;
    row.seq = r.seq;
    row.count = r.count;
  }

  void read_p2p(const P2pRecord& r, const Place& at) {
    P2pRow& row = add(tables_.p2ps, at);
    row.op_id = r.op;
    row.comm = at.ids.comm(r.comm);
    row.peer = r.peer;
    row.direction = Direction(r.direction);
    row.dtype = DType(r.dtype);
    row.seq = r.seq;
    row.bytes = r.bytes;
    row.count = r.count;
  }

  void read_access(const AccessRecord& r, const Place& at) {
    AccessRow& row = add(tables_.accesses, at);
    row.op_id = r.op;
    row.buffer = at.ids.id(r.buffer);
    row.begin = r.begin;
    row.end = r.end;
    row.mode = AccessMode(r.mode);
  }

  void read_sync(const RingReader& ring, const Group& g, const Place& at) {
    const auto r = g.as<SyncRecord>();
    SyncRow& row = add(tables_.syncs, at, r.where);
    row.thread = at.thread;
    row.stream = at.ids.stream(g.lane);
    row.kind = SyncKind(r.kind);
    row.event = at.ids.id(r.event);
    row.key = at.ids.id(r.key);
    row.name = name(ring, r.name);
    row.time_ns = ring.to_ns(g.ticks);
  }

  void read_alloc(const RingReader& ring, const Group& g, const Place& at) {
    const auto r = g.as<BufferAllocRecord>();
    BufferRow& row = add(tables_.buffers, at, r.where);
    row.buffer = at.ids.id(r.buffer);
    row.base = r.base;
    row.bytes = r.bytes;
    row.category = MemCategory(r.category);
    row.name = name(ring, r.name);
    row.alloc_ns = ring.to_ns(g.ticks);
    const auto free = frees_.find(row.buffer);
    if (free == frees_.end()) return;
    row.free_ns = free->second.ns;
    row.free_stream = free->second.stream;
    free->second.joined = true;
  }

  void read_plan(const RingPlanRecord& r, const Place& at) {
    RingPlanRow& row = add(tables_.ring_plans, at, r.where);
    row.comm = at.ids.comm(r.comm);
    row.expected_steps = r.expected_steps;
    row.run_steps = r.run_steps;
  }

  void read_softmax(const SoftmaxRowRecord& r, const Place& at) {
    SoftmaxRow& row = add(tables_.softmax_rows, at, r.where);
    row.position = r.position;
    row.head = r.head;
    row.kv_owner = r.kv_owner;
    row.sample = r.sample;
    row.method = SoftmaxMethod(r.method);
    row.parts = r.parts;
    row.m_own = r.m_own;
    row.lse_own = r.lse_own;
    row.m_used = r.m_used;
    row.sum_used = r.sum_used;
    row.lse_result = r.lse_result;
  }

  void read_softmax_stat(const SoftmaxStatRecord& r, const Place& at) {
    SoftmaxStatRow& row = add(tables_.softmax_stats, at, r.where);
    row.rows = r.rows;
    row.empty = r.empty;
    row.bad = r.bad;
    row.method = SoftmaxMethod(r.method);
    row.parts = r.parts;
    row.lse_min = r.lse_min;
    row.lse_max = r.lse_max;
    row.lse_mean = r.lse_mean;
  }

  void read_tensor_stat(const RingReader& ring, const Group& g, const Place& at) {
    const auto r = g.as<TensorStatRecord>();
    TensorStatRow& row = add(tables_.tensor_stats, at, r.where);
    row.name = name(ring, r.name);
    row.role = TensorRole(r.role);
    row.part = r.part == 0xFFFF ? -1 : r.part;
    row.count = r.count;
    row.checksum = r.checksum;
    row.norm = r.norm;
    row.bad = r.bad;
    if (g.flags & kHasProjection) row.projection = r.projection;
  }

  void read_step_value(const StepValueRecord& r, const Place& at) {
    StepValueRow& row = add(tables_.step_values, at, r.where);
    row.quantity = StepQuantity(r.quantity);
    row.axis = r.axis == 0xFFFF ? Axis::kUnknown : Axis(r.axis);
    row.value = r.value;
  }

  void read_update(const RingReader& ring, const UpdateSampleRecord& r, const Place& at) {
    UpdateSampleRow& row = add(tables_.update_samples, at, r.where);
    row.name = name(ring, r.name);
    row.part = r.part == 0xFFFF ? -1 : int32_t(r.part);
    row.element = r.element;
    row.gradient = r.gradient;
    row.value_before = r.value_before, row.m_before = r.m_before, row.v_before = r.v_before;
    row.value_after = r.value_after, row.m_after = r.m_after, row.v_after = r.v_after;
  }

  void read_positions(const PositionRunRecord& r, const Place& at) {
    PositionRunRow& row = add(tables_.positions, at, r.where);
    row.role = PositionRole(r.role);
    row.token_start = r.token_start;
    row.count = r.count;
    row.pos_start = r.pos_start;
    row.stride = r.stride;
    row.document = r.document;
    row.sample = r.sample;
    row.rope_base = r.rope_base;
  }

  void read_attention(const AttentionRowRecord& r, const Place& at) {
    AttentionRow& row = add(tables_.attention_rows, at, r.where);
    row.position = r.position;
    row.head = r.head;
    row.kv_owner = r.kv_owner;
    row.sample = r.sample;
    row.maker = RowMaker(r.maker);
    row.dtype = DType(r.dtype);
    row.method = SoftmaxMethod(r.method);
    row.parts = r.parts;
    row.m = r.m;
    row.lse = r.lse;
    row.out = r.out;
    row.out_size = r.out_size;
    row.score_noise = r.score_noise;
    row.keys = r.keys;
    row.block_owner = r.block_owner;
    row.checksum = r.checksum;
  }

  void read_labels(const LabelRunRecord& r, const Place& at) {
    LabelRunRow& row = add(tables_.label_runs, at, r.where);
    row.role = LabelRole(r.role);
    row.token_start = r.token_start;
    row.count = r.count;
    row.sample = r.sample;
    row.document = r.document;
    row.first_token = r.first_token;
    row.last_token = r.last_token;
    row.first_label = r.first_label;
    row.last_label = r.last_label;
    row.counted = r.counted;
    row.pairs = r.pairs;
    row.next = r.next;
    row.same = r.same;
    row.second = r.second;
    row.tokens_sum = r.tokens_sum;
    row.labels_sum = r.labels_sum;
  }

  void read_memory(const RingReader& ring, const Group& g, const Place& at) {
    const auto r = g.as<MemorySampleRecord>();
    MemorySampleRow& row = add(tables_.memory, at, r.where);
    row.category = MemCategory(r.category);
    row.bytes = r.bytes;
    row.peak_bytes = r.peak_bytes;
    row.time_ns = ring.to_ns(g.ticks);
  }

  void read_train_step(const TrainStepRecord& r, const Place& at) {
    TrainStepRow& row = add(tables_.train_steps, at, r.where);
    row.loss_sum = r.loss_sum;
    row.valid_tokens = r.valid_tokens;
    row.divisor = r.divisor;
    row.loss = r.loss;
    row.tokens = r.tokens;
    row.seconds = r.seconds;
    row.grad_norm = r.grad_norm;
    row.lr = r.lr;
    row.peak_bytes = r.peak_bytes;
  }

  // Records of which there are few: straight into the store.
  void read_fact(const RingReader& ring, const Group& g, const Place& at) {
    switch (g.kind) {
      case RecordKind::kStream:
        tables_.streams.push_back({at.ids.stream(g.lane), int32_t(ring.rank()), text(ring, g.as<StreamRecord>().name)});
        break;
      case RecordKind::kComm:
      case RecordKind::kCommRank: break;  // collected in the first pass
      case RecordKind::kRankExit: {
        const auto r = g.as<RankExitRecord>();
        tables_.rank_exits.push_back(
            {int32_t(r.rank), r.status, ring.to_ns(g.ticks), text(ring, r.reason), Where::unpack(r.where)});
        break;
      }
      case RecordKind::kRank: {
        const auto r = g.as<RankRecord>();
        write_now("DELETE FROM rank WHERE rank = ?", {int64_t(r.rank)});
        std::erase_if(tables_.ranks, [&](const RankRow& row) { return row.rank == int32_t(r.rank); });
        tables_.ranks.push_back({int32_t(r.rank), r.tp, r.cp, r.dp, r.pp, int64_t(r.pid), text(ring, r.host),
                                 int32_t(r.world), r.tp_size, r.cp_size, r.dp_size, r.pp_size});
        break;
      }
      case RecordKind::kMeta: {
        const auto r = g.as<MetaRecord>();
        write_now("INSERT OR REPLACE INTO meta VALUES(?, ?)", {text(ring, r.key), text(ring, r.value)});
        break;
      }
      default: ++unknown_kinds_; break;
    }
  }

  Status write_rest() {
    if (!status_) return status_;
    if (Status ok = tables_.write(store_); !ok) return ok;
    tables_.clear();
    if (anything_new_) {
      write_late_marks();
      write_late_frees();
    }
    for (const RingReader& ring : contents_.rings) write_ring_facts(ring);
    write_process_facts();
    write_stats();
    return status_;
  }

  // Marks whose operation an earlier import brought in, or whose enqueue record was lost.
  void write_late_marks() {
    const bool resumed = !next_seq_.empty();
    if (resumed && status_) status_ = store_.exec("CREATE INDEX IF NOT EXISTS op_by_id ON op (op_id)");
    for (const auto& [block, marks] : marks_) {
      for (size_t at = 0; at < marks.size(); ++at) {
        const Mark& m = marks[at];
        if (m.joined || (!m.start_ns && !m.end_ns)) continue;
        if (!resumed) {
          ++marks_without_op_;
          continue;
        }
        auto time = [](int64_t ns) { return ns ? Cell(ns) : Cell(); };
        write_now(
            "UPDATE op SET start_ns = coalesce(?1, start_ns), end_ns = coalesce(?2, end_ns), bytes_sent = ?3, "
            "state = max(state, ?4) WHERE op_id = ?5",
            {time(m.start_ns), time(m.end_ns), int64_t(m.bytes_sent), int64_t(m.end_ns ? 2 : 1),
             int64_t(block * kMarksInBlock + at)});
      }
    }
  }

  // Frees of buffers that an earlier import brought in. Without the index every one would scan the table.
  void write_late_frees() {
    if (next_seq_.empty()) return;
    if (status_) status_ = store_.exec("CREATE INDEX IF NOT EXISTS buffer_by_id ON buffer (buffer)");
    for (const auto& [buffer, free] : frees_)
      if (!free.joined)
        write_now("UPDATE buffer SET free_ns = ?, free_stream = ? WHERE buffer = ?",
                  {free.ns, free.stream == kAnyStream ? Cell() : Cell(int64_t(free.stream)), int64_t(buffer)});
  }

  void write_ring_facts(const RingReader& ring) {
    const std::string token = token_text(ring.process_token());
    const int64_t id = ring.ring_id();
    write_now("INSERT OR REPLACE INTO thread VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
              {id, token, int64_t(ring.rank()), int64_t(ring.pid()), int64_t(ring.tid()), ring.host(),
               ring.thread_name(), std::string(ring.mode() == SpoolMode::kStream ? "stream" : "flight"),
               std::string(ring.tick_kind() == TickKind::kTsc ? "tsc" : "monotonic"), int64_t(ring.clean()),
               ring.start_ns()});
    write_now("DELETE FROM clock_sync WHERE process = ? AND ring = ?", {token, id});
    for (const ClockLine::Sample& c : ring.clock())
      write_now("INSERT INTO clock_sync VALUES(?, ?, ?, ?, ?)",
                {token, id, int64_t(c.ticks), c.monotonic_ns, c.realtime_ns});
    const RingLoss loss = ring.loss();
    source_.rows += int64_t(loss.recovered);
    source_.lost += int64_t(loss.lost + loss.torn);
    Probe& probe = probes_[ring.process_token()];
    probe.events += int64_t(loss.recovered);
    probe.dropped += int64_t(loss.lost + loss.torn);
    lost_ += int64_t(loss.lost);
    torn_ += int64_t(loss.torn);
    if (ring.tick_kind() == TickKind::kMonotonic) ++monotonic_rings_;
    if (!ring.clean()) ++unclean_rings_;
    unsaved_ += int64_t(ring.unsaved());
    if (loss.lost + loss.torn > 0) write_lost(token, ring, loss.hull());
  }

  void write_lost(const std::string& token, const RingReader& ring, const LossSpan& loss) {
    auto time = [&](uint64_t ticks) { return ticks ? Cell(ring.to_ns(ticks)) : Cell(); };
    write_now("INSERT OR REPLACE INTO lost VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
              {token, ring.thread_name().empty() ? "ring " + std::to_string(ring.ring_id()) : ring.thread_name(),
               int64_t(ring.ring_id()), int64_t(ring.rank()), int64_t(loss.lost), int64_t(loss.torn),
               time(loss.from_ticks), time(loss.to_ticks)});
  }

  void write_process_facts() {
    for (const ProcessNames& p : contents_.processes) {
      Probe& probe = probes_[p.token];
      probe.dropped += int64_t(p.unringed);
      probe.ns_per_event = p.ns_per_record;
      names_lost_ += int64_t(p.names_lost + p.names_damaged);
      if (p.torn_tail) ++torn_names_;
      if (p.unringed == 0) continue;
      source_.lost += int64_t(p.unringed);
      unringed_ += int64_t(p.unringed);
      write_now("INSERT OR REPLACE INTO lost VALUES(?, ?, 0, -1, ?, 0, NULL, NULL)",
                {token_text(p.token), std::string("threads without a ring"), int64_t(p.unringed)});
    }
    for (const auto& [token, probe] : probes_)
      write_now(
          "INSERT OR REPLACE INTO probe VALUES(?, 'recorder', 1, NULL, ?, ?, ?)",
          {token_text(token), probe.events, probe.dropped, probe.ns_per_event > 0 ? Cell(probe.ns_per_event) : Cell()});
    // A file that cannot be read may have held anything: it bars as a loss of any rank does.
    for (size_t i = 0; i < contents_.unreadable.size(); ++i)
      write_now("INSERT OR REPLACE INTO lost VALUES('unreadable', ?, ?, -1, 0, 1, NULL, NULL)",
                {contents_.unreadable[i].path, int64_t(i) + 1});
    const std::string absent = "absent from " + dir_;
    write_now("DELETE FROM lost WHERE process = ?", {absent});
    for (size_t i = 0; i < contents_.absent.size(); ++i)
      write_now("INSERT INTO lost VALUES(?, ?, ?, -1, 0, 1, NULL, NULL)",
                {absent, contents_.absent[i], int64_t(i) + 1});
  }

  void stat(const char* stat_name, const char* severity, int64_t count, const std::string& help) {
    write_now("DELETE FROM import_stats WHERE source = ? AND name = ?", {dir_, std::string(stat_name)});
    if (count == 0) return;
    write_now("INSERT INTO import_stats VALUES(?, ?, ?, ?, ?)",
              {dir_, std::string(stat_name), std::string(severity), count, help});
  }

  void write_stats() {
    stat("spool.records", "info", source_.rows, "records read back from the rings");
    stat("spool.records_lost", "data_loss", lost_,
         "records overwritten or dropped; record with --trace, or larger rings");
    stat("spool.records_torn", "data_loss", torn_,
         "records that were being written when the program was killed, or damaged since");
    stat("spool.records_without_ring", "data_loss", unringed_, "threads could not create a ring file; see disk space");
    stat("spool.rings_open", "info", unclean_rings_,
         "rings that were not closed in order: the program was killed or runs");
    stat("spool.clock_monotonic", "info", monotonic_rings_, "no invariant TSC: times come from clock_gettime");
    stat("spool.definitions_unsaved", "info", unsaved_,
         "definitions that lie in their ring alone, where later records overwrite them; see disk space");
    stat("spool.names_lost", "data_loss", names_lost_,
         "names that could not be written, or were damaged since; see disk space");
    stat("spool.names_torn", "info", torn_names_, "a names file ends in a half-written entry");
    stat("spool.files_unfinished", "info", contents_.unfinished,
         "the kill came while they were created; they never held a record");
    stat("spool.absent_files", "error", int64_t(contents_.absent.size()),
         "ring files that threads wrote are not in the folder any more");
    stat("spool.unreadable_files", "error", int64_t(contents_.unreadable.size()),
         contents_.unreadable.empty() ? "" : contents_.unreadable.front().why);
    if (anything_new_) {
      stat("spool.names_missing", "data_loss", names_missing_,
           "records name texts that were not written; shown as ?id");
      stat("spool.unknown_kinds", "data_loss", unknown_kinds_, "records of kinds this version does not know");
      stat("spool.marks_without_op", "data_loss", marks_without_op_,
           "operations started or ended whose enqueue was lost");
    }
    source_.path = dir_;
    source_.format = "ringscope.spool";
    source_.rank = -1;
    write_now("DELETE FROM source WHERE path = ? AND format = ?", {source_.path, source_.format});
    write_now("INSERT INTO source(path, format, rank, rows, lost) VALUES(?, ?, ?, ?, ?)",
              {source_.path, source_.format, int64_t(source_.rank), source_.rows, source_.lost});
  }

  struct Probe {
    int64_t events = 0, dropped = 0;
    double ns_per_event = 0;
  };

  std::string dir_;
  Store& store_;
  SpoolContents contents_;
  JobIds ids_;
  Status status_;
  SourceRow source_;
  spool::Tables tables_;
  int64_t pending_ = 0;
  bool anything_new_ = false;
  std::map<Key, uint64_t> next_seq_;
  std::unordered_map<uint32_t, uint64_t> most_ops_;        // by ring id
  std::unordered_map<uint64_t, std::vector<Mark>> marks_;  // of operations block * kMarksInBlock and on
  std::unordered_map<uint64_t, const std::unordered_map<uint32_t, std::string>*> names_;
  std::map<std::pair<uint64_t, uint64_t>, uint32_t> name_ids_;
  std::unordered_map<uint64_t, Free> frees_;  // by buffer
  std::map<uint64_t, Probe> probes_;
  int64_t names_missing_ = 0, unsaved_ = 0, unknown_kinds_ = 0, marks_without_op_ = 0, lost_ = 0, torn_ = 0,
          unringed_ = 0, unclean_rings_ = 0, monotonic_rings_ = 0, names_lost_ = 0, torn_names_ = 0;
};

}  // namespace

Result<SourceRow> import_spool(const std::string& dir, Store& store) {
  auto contents = read_spool(dir);
  if (!contents) return tl::unexpected(contents.error());
  return SpoolImport(dir, store, std::move(*contents)).run();
}

}  // namespace ringscope
