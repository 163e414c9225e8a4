// Two passes over the rings. The first collects the start and end marks of operations (the workers' rings) and the
// frees of buffers, the second turns everything else into rows in (rank, issue) order and joins them. Transactions of
// about 64k rows; each carries the drain_state of the rings it covers, so a second import continues behind it.
#include "tracedb/import/spool/spool_import.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <map>
#include <unordered_map>

#include "tracedb/import/spool/spool_tables.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

constexpr int64_t kRowsPerTransaction = 64 * 1024;
// A larger sequence number is a damaged record: every operation of a ring wrote a record, or lost one.
constexpr uint64_t kMostOpsWithoutRing = uint64_t(1) << 20;  // of threads that got no ring

struct Mark {
  int64_t start_ns = 0, end_ns = 0;
  uint64_t bytes_sent = 0;
  bool joined = false;
};

struct Free {
  int64_t ns = 0;
  uint16_t stream = 0;
  bool joined = false;
};

std::string token_text(uint64_t token) {
  char text[20];
  std::snprintf(text, sizeof text, "%016" PRIx64, token);
  return text;
}

class SpoolImport {
 public:
  SpoolImport(const std::string& dir, Store& store, SpoolContents contents)
      : dir_(dir), store_(store), contents_(std::move(contents)) {
    for (const ProcessNames& p : contents_.processes) names_[p.token] = &p.names;
  }

  Result<SourceRow> run() {
    Status ok = read_drain_state();
    if (ok) collect_marks();
    if (ok) ok = store_.begin();
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
      const uint64_t token = std::strtoull(std::get<std::string>(row[0]).c_str(), nullptr, 16);
      next_seq_[{token, uint32_t(std::get<int64_t>(row[1]))}] = uint64_t(std::get<int64_t>(row[2]));
    }
    for (const RingReader& ring : contents_.rings) {
      const auto it = next_seq_.find(key_of(ring));
      if (it == next_seq_.end() || it->second < ring.end_seq()) anything_new_ = true;
    }
    return {};
  }

  Mark* mark_of(uint64_t op, bool create) {
    std::vector<Mark>& marks = marks_[uint32_t(op >> 40)];
    const uint64_t at = op & ((uint64_t(1) << 40) - 1);
    const auto most = most_ops_.find(uint32_t(op >> 40));
    if (at > (most == most_ops_.end() ? kMostOpsWithoutRing : most->second)) return nullptr;
    if (at >= marks.size()) {
      if (!create) return nullptr;
      marks.resize(std::max<size_t>(at + 1, marks.size() * 2));
    }
    return &marks[at];
  }

  void collect_marks() {
    if (!anything_new_) return;
    for (const RingReader& ring : contents_.rings) {
      const RingLoss loss = ring.loss();
      most_ops_[ring.ring_id()] = loss.recovered + loss.lost + loss.torn + 1;
    }
    for (const RingReader& ring : contents_.rings) {
      ring.for_each(1, [&](const Group& g) {
        if (g.kind == RecordKind::kBufferFree) frees_[g.as<BufferFreeRecord>().buffer] = {ring.to_ns(g.ticks), g.lane};
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
  int64_t name(const RingReader& ring, uint64_t id) {
    if (id == 0) return 0;
    const auto [it, fresh] = name_ids_.try_emplace({ring.process_token(), id}, 0);
    if (!fresh) return it->second;
    auto stored = store_.string_id(text(ring, id));
    if (!stored) {
      status_ = tl::unexpected(stored.error());
      return 0;
    }
    return it->second = *stored;
  }
  void write_now(const std::string& sql, std::initializer_list<Cell> values) {
    if (status_) status_ = store_.run(sql, std::span<const Cell>(values.begin(), values.size()));
  }

  Status read_ring(const RingReader& ring) {
    const uint64_t ordinal = ordinals_[ring.rank()]++;
    const auto drained = next_seq_.find(key_of(ring));
    const uint64_t from = drained == next_seq_.end() ? 1 : drained->second;
    ring.for_each(from, [&](const Group& g) {
      if (!status_) return;
      read_group(ring, g, ordinal << 40 | g.seq);
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

  template <class Row, class Record>
  Row& add(std::vector<Row>& rows, const RingReader& ring, const Record& record, uint64_t issue) {
    Row& row = rows.emplace_back();
    row.rank = ring.rank();
    row.issue = issue;
    row.r = record;
    return row;
  }

  void read_group(const RingReader& ring, const Group& g, uint64_t issue) {
    switch (g.kind) {
      case RecordKind::kOpStart:
      case RecordKind::kOpEnd:
      case RecordKind::kBufferFree: break;  // joined through the marks
      case RecordKind::kOpEnqueue: read_enqueue(ring, g, issue); break;
      case RecordKind::kColl: add(tables_.colls, ring, g.as<CollRecord>(), issue); break;
      case RecordKind::kP2p: add(tables_.p2ps, ring, g.as<P2pRecord>(), issue); break;
      case RecordKind::kAccess: add(tables_.accesses, ring, g.as<AccessRecord>(), issue); break;
      case RecordKind::kSync: {
        auto& row = add(tables_.syncs, ring, g.as<SyncRecord>(), issue);
        row.stream = g.lane;
        row.name = name(ring, row.r.name);
        row.time_ns = ring.to_ns(g.ticks);
        break;
      }
      case RecordKind::kBufferAlloc: {
        auto& row = add(tables_.buffers, ring, g.as<BufferAllocRecord>(), issue);
        row.name = name(ring, row.r.name);
        row.time_ns = ring.to_ns(g.ticks);
        if (const auto free = frees_.find(row.r.buffer); free != frees_.end()) {
          row.free_ns = free->second.ns;
          row.free_stream = free->second.stream;
          free->second.joined = true;
        }
        break;
      }
      case RecordKind::kRingPlan: add(tables_.ring_plans, ring, g.as<RingPlanRecord>(), issue); break;
      case RecordKind::kSoftmaxRow: add(tables_.softmax_rows, ring, g.as<SoftmaxRowRecord>(), issue); break;
      case RecordKind::kSoftmaxStat: add(tables_.softmax_stats, ring, g.as<SoftmaxStatRecord>(), issue); break;
      case RecordKind::kTensorStat: {
        auto& row = add(tables_.tensor_stats, ring, g.as<TensorStatRecord>(), issue);
        row.name = name(ring, row.r.name);
        break;
      }
      case RecordKind::kPositionRun: add(tables_.positions, ring, g.as<PositionRunRecord>(), issue); break;
      case RecordKind::kMemorySample:
        add(tables_.memory, ring, g.as<MemorySampleRecord>(), issue).time_ns = ring.to_ns(g.ticks);
        break;
      case RecordKind::kTrainStep: add(tables_.train_steps, ring, g.as<TrainStepRecord>(), issue); break;
      default: read_fact(ring, g); break;
    }
  }

  void read_enqueue(const RingReader& ring, const Group& g, uint64_t issue) {
    auto& row = add(tables_.ops, ring, g.as<OpEnqueueRecord>(), issue);
    row.stream = g.lane;
    row.name = name(ring, row.r.name);
    row.enqueue_ns = ring.to_ns(g.ticks);
    if (Mark* mark = mark_of(row.r.op, false)) {
      row.start_ns = mark->start_ns;
      row.end_ns = mark->end_ns;
      row.bytes_sent = mark->bytes_sent;
      mark->joined = true;
    }
  }

  // Records of which there are few: straight into the store.
  void read_fact(const RingReader& ring, const Group& g) {
    switch (g.kind) {
      case RecordKind::kStream:
        write_now("INSERT INTO stream(rank, stream, name) VALUES(?, ?, ?)",
                  {int64_t(ring.rank()), int64_t(g.lane), text(ring, g.as<StreamRecord>().name)});
        break;
      case RecordKind::kComm: read_comm(ring, g.as<CommRecord>()); break;
      case RecordKind::kCommRank: {
        const auto r = g.as<CommRankRecord>();
        write_now("INSERT OR IGNORE INTO comm_rank VALUES(?, ?, ?, NULL)",
                  {int64_t(r.comm), int64_t(r.group_rank), int64_t(r.rank)});
        break;
      }
      case RecordKind::kRankExit: {
        const auto r = g.as<RankExitRecord>();
        const Where w = Where::unpack(r.where);
        auto known = [](int64_t v, bool is) { return is ? Cell(v) : Cell(); };
        write_now(
            "INSERT INTO rank_exit(rank, status, time_ns, reason, step, layer, microbatch, ring_step, pass) "
            "VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)",
            {int64_t(r.rank), r.status, ring.to_ns(g.ticks), text(ring, r.reason), known(w.step, w.step >= 0),
             known(w.layer, w.layer >= 0), known(w.microbatch, w.microbatch >= 0), known(w.ring_step, w.ring_step >= 0),
             known(int64_t(w.pass), w.pass != Pass::kNone)});
        break;
      }
      case RecordKind::kRank: {
        const auto r = g.as<RankRecord>();
        write_now("INSERT OR REPLACE INTO rank VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  {int64_t(r.rank), int64_t(r.world), int64_t(r.tp), int64_t(r.cp), int64_t(r.dp), int64_t(r.pp),
                   int64_t(r.tp_size), int64_t(r.cp_size), int64_t(r.dp_size), int64_t(r.pp_size), int64_t(r.pid),
                   text(ring, r.host)});
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

  void read_comm(const RingReader& ring, const CommRecord& r) {
    write_now(
        "INSERT INTO comm VALUES(?, ?, ?, ?, ?) ON CONFLICT(comm) DO UPDATE SET creation = "
        "min(creation, excluded.creation)",
        {int64_t(r.comm), int64_t(r.creation), int64_t(r.axis), text(ring, r.name), int64_t(r.size)});
    if (ring.rank() < 0) return;
    write_now(
        "INSERT INTO comm_rank VALUES(?, ?, ?, ?) ON CONFLICT(comm, group_rank) DO UPDATE SET creation = "
        "excluded.creation",
        {int64_t(r.comm), int64_t(r.group_rank), int64_t(ring.rank()), int64_t(r.creation)});
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
    for (const auto& [ring, marks] : marks_) {
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
             int64_t(uint64_t(ring) << 40 | at)});
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
                  {free.ns, free.stream == kEveryStream ? Cell() : Cell(int64_t(free.stream)), int64_t(buffer)});
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
    if (loss.lost + loss.torn > 0) write_lost(token, ring, loss);
  }

  void write_lost(const std::string& token, const RingReader& ring, const RingLoss& loss) {
    auto time = [&](uint64_t ticks) { return ticks ? Cell(ring.to_ns(ticks)) : Cell(); };
    write_now("INSERT OR REPLACE INTO lost VALUES(?, ?, ?, ?, ?, ?, ?, ?)",
              {token, ring.thread_name().empty() ? "ring " + std::to_string(ring.ring_id()) : ring.thread_name(),
               int64_t(ring.ring_id()), int64_t(ring.rank()), int64_t(loss.lost), int64_t(loss.torn),
               time(loss.first_ticks), time(loss.last_ticks)});
  }

  void write_process_facts() {
    for (const ProcessNames& p : contents_.processes) {
      Probe& probe = probes_[p.token];
      probe.dropped += int64_t(p.unringed);
      probe.ns_per_event = p.ns_per_record;
      names_lost_ += int64_t(p.names_lost);
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
    stat("spool.records_torn", "data_loss", torn_, "records that were being written when the program was killed");
    stat("spool.records_without_ring", "data_loss", unringed_, "threads could not create a ring file; see disk space");
    stat("spool.rings_open", "info", unclean_rings_,
         "rings that were not closed in order: the program was killed or runs");
    stat("spool.clock_monotonic", "info", monotonic_rings_, "no invariant TSC: times come from clock_gettime");
    stat("spool.names_lost", "data_loss", names_lost_, "names that could not be written; see disk space");
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
  Status status_;
  SourceRow source_;
  spool::Tables tables_;
  int64_t pending_ = 0;
  bool anything_new_ = false;
  std::map<Key, uint64_t> next_seq_;
  std::unordered_map<uint32_t, uint64_t> most_ops_;        // by ring id
  std::unordered_map<uint32_t, std::vector<Mark>> marks_;  // by ring id, then sequence
  std::unordered_map<uint64_t, const std::unordered_map<uint32_t, std::string>*> names_;
  std::map<std::pair<uint64_t, uint64_t>, int64_t> name_ids_;
  std::map<int, uint64_t> ordinals_;          // rings of a rank so far
  std::unordered_map<uint64_t, Free> frees_;  // by buffer
  std::map<uint64_t, Probe> probes_;
  int64_t names_missing_ = 0, unknown_kinds_ = 0, marks_without_op_ = 0, lost_ = 0, torn_ = 0, unringed_ = 0,
          unclean_rings_ = 0, monotonic_rings_ = 0, names_lost_ = 0, torn_names_ = 0;
};

}  // namespace

Result<SourceRow> import_spool(const std::string& dir, Store& store) {
  auto contents = read_spool(dir);
  if (!contents) return tl::unexpected(contents.error());
  return SpoolImport(dir, store, std::move(*contents)).run();
}

}  // namespace ringscope
