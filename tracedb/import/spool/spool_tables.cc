#include "tracedb/import/spool/spool_tables.h"

namespace ringscope::spool {
namespace {

using Value = RowSource::Value;

Value known(int64_t value, bool is_known) { return is_known ? Value::of(value) : Value::null(); }
Value time_value(int64_t ns) { return known(ns, ns != 0); }
Value id_value(uint64_t id) { return Value::of(int64_t(id)); }

// Columns step, layer, microbatch, ring_step, pass.
Value where_cell(uint64_t word, int column) {
  const Where w = Where::unpack(word);
  switch (column) {
    case 0: return known(w.step, w.step >= 0);
    case 1: return known(w.layer, w.layer >= 0);
    case 2: return known(w.microbatch, w.microbatch >= 0);
    case 3: return known(w.ring_step, w.ring_step >= 0);
    default: return known(int64_t(w.pass), w.pass != Pass::kNone);
  }
}

template <class Row>
class Source : public RowSource {
 public:
  using CellOf = Value (*)(const Row&, int);  // columns behind rank and issue
  Source(const std::vector<Row>& rows, CellOf cell_of) : rows_(rows), cell_of_(cell_of) {}
  int64_t rows() const override { return int64_t(rows_.size()); }
  Value cell(int64_t row, int column) const override {
    const Row& r = rows_[size_t(row)];
    if (column == 0) return Value::of(int64_t(r.rank));
    if (column == 1) return id_value(r.issue);
    return cell_of_(r, column - 2);
  }

 private:
  const std::vector<Row>& rows_;
  CellOf cell_of_;
};

Value op_cell(const OpRow& o, int c) {
  switch (c) {
    case 0: return id_value(o.r.op);
    case 1: return id_value(o.stream);
    case 2: return Value::of(o.name);
    case 3: return id_value(o.r.kind);
    case 4: return Value::of(int64_t(o.state()));
    case 5: return id_value(o.r.group);
    case 6: return time_value(o.enqueue_ns);
    case 7: return time_value(o.start_ns);
    case 8: return time_value(o.end_ns);
    case 9: return id_value(o.bytes_sent);
    default: return where_cell(o.r.where, c - 10);
  }
}
Value coll_cell(const CollRow& o, int c) {
  const uint64_t cells[] = {o.r.op, o.r.comm, o.r.seq, o.r.func, o.r.count, o.r.dtype, o.r.redop};
  return c < 7 ? id_value(cells[c]) : Value::of(int64_t(o.r.root));
}
Value p2p_cell(const P2pRow& o, int c) {
  const uint64_t cells[] = {o.r.op, o.r.comm, o.r.peer, o.r.direction, o.r.seq, o.r.bytes, o.r.count, o.r.dtype};
  return id_value(cells[c]);
}
Value access_cell(const AccessRow& o, int c) {
  const uint64_t cells[] = {o.r.op, o.r.buffer, o.r.begin, o.r.end, o.r.mode};
  return id_value(cells[c]);
}
Value sync_cell(const SyncRow& o, int c) {
  const uint64_t cells[] = {o.r.kind, o.stream, o.r.event, o.r.key, uint64_t(o.name)};
  if (c < 5) return id_value(cells[c]);
  return c == 5 ? time_value(o.time_ns) : where_cell(o.r.where, c - 6);
}
Value buffer_cell(const BufferRow& o, int c) {
  const uint64_t cells[] = {o.r.buffer, o.r.base, o.r.bytes, o.r.category, uint64_t(o.name)};
  if (c < 5) return id_value(cells[c]);
  switch (c) {
    case 5: return time_value(o.time_ns);
    case 6: return time_value(o.free_ns);
    case 7: return known(o.free_stream, o.free_ns && o.free_stream != kEveryStream);
    default: return where_cell(o.r.where, c - 8);
  }
}
Value ring_plan_cell(const RingPlanRow& o, int c) {
  const uint64_t cells[] = {o.r.comm, o.r.expected_steps, o.r.run_steps};
  return c < 3 ? id_value(cells[c]) : where_cell(o.r.where, c - 3);
}
Value softmax_cell(const SoftmaxRow& o, int c) {
  switch (c) {
    case 0: return id_value(o.r.position);
    case 1: return id_value(o.r.head);
    case 2: return known(o.r.kv_owner, o.r.kv_owner != 0xFFFF);
    case 3: return id_value(o.r.sample);
    case 4: return id_value(o.r.method);
    case 5: return id_value(o.r.parts);
    case 6: return Value::of(o.r.m_own);
    case 7: return Value::of(o.r.lse_own);
    case 8: return Value::of(o.r.m_used);
    case 9: return Value::of(o.r.sum_used);
    case 10: return Value::of(o.r.lse_result);
    default: return where_cell(o.r.where, c - 11);
  }
}
Value softmax_stat_cell(const SoftmaxStatRow& o, int c) {
  const uint64_t cells[] = {o.r.rows, o.r.empty, o.r.bad, o.r.method, o.r.parts};
  if (c < 5) return id_value(cells[c]);
  const double values[] = {o.r.lse_min, o.r.lse_max, o.r.lse_mean};
  return c < 8 ? Value::of(values[c - 5]) : where_cell(o.r.where, c - 8);
}
Value tensor_stat_cell(const TensorStatRow& o, int c) {
  switch (c) {
    case 0: return Value::of(o.name);
    case 1: return id_value(o.r.role);
    case 2: return known(o.r.part, o.r.part != 0xFFFF);
    case 3: return id_value(o.r.count);
    case 4: return id_value(o.r.checksum);
    case 5: return Value::of(o.r.norm);
    case 6: return id_value(o.r.bad);
    default: return where_cell(o.r.where, c - 7);
  }
}
Value position_cell(const PositionRow& o, int c) {
  switch (c) {
    case 0: return id_value(o.r.role);
    case 1: return id_value(o.r.token_start);
    case 2: return id_value(o.r.count);
    case 3: return id_value(o.r.pos_start);
    case 4: return Value::of(int64_t(o.r.stride));
    case 5: return known(o.r.document, o.r.document != 0xFFFFFFFF);
    case 6: return id_value(o.r.sample);
    case 7: return Value::of(double(o.r.rope_base));
    default: return where_cell(o.r.where, c - 8);
  }
}
Value memory_cell(const MemoryRow& o, int c) {
  const uint64_t cells[] = {o.r.category, o.r.bytes, o.r.peak_bytes};
  if (c < 3) return id_value(cells[c]);
  return c == 3 ? time_value(o.time_ns) : where_cell(o.r.where, c - 4);
}
Value train_cell(const TrainRow& o, int c) {
  switch (c) {
    case 0: return Value::of(o.r.loss_sum);
    case 1: return id_value(o.r.valid_tokens);
    case 2: return Value::of(o.r.divisor);
    case 3: return Value::of(o.r.loss);
    case 4: return id_value(o.r.tokens);
    case 5: return Value::of(o.r.seconds);
    case 6: return Value::of(o.r.grad_norm);
    case 7: return Value::of(o.r.lr);
    case 8: return id_value(o.r.peak_bytes);
    default: return where_cell(o.r.where, c - 9);
  }
}

const std::vector<std::string>& where_columns() {
  static const std::vector<std::string> columns = {"step", "layer", "microbatch", "ring_step", "pass"};
  return columns;
}

template <class Row>
Status put(Store& store, const char* table, const std::vector<Row>& rows, std::vector<std::string> own, bool has_where,
           typename Source<Row>::CellOf cell_of) {
  std::vector<std::string> columns = {"rank", "issue"};
  columns.insert(columns.end(), own.begin(), own.end());
  if (has_where) columns.insert(columns.end(), where_columns().begin(), where_columns().end());
  return store.bulk(table, columns, Source<Row>(rows, cell_of));
}

}  // namespace

Status Tables::write(Store& s) const {
  Status ok =
      put(s, "op", ops,
          {"op_id", "stream", "name", "kind", "state", "group_op", "enqueue_ns", "start_ns", "end_ns", "bytes_sent"},
          true, op_cell);
  if (ok)
    ok = put(s, "coll", colls, {"op_id", "comm", "seq", "func", "count", "dtype", "redop", "root"}, false, coll_cell);
  if (ok)
    ok = put(s, "p2p", p2ps, {"op_id", "comm", "peer", "direction", "seq", "bytes", "count", "dtype"}, false, p2p_cell);
  if (ok) ok = put(s, "access", accesses, {"op_id", "buffer", "begin_byte", "end_byte", "mode"}, false, access_cell);
  if (ok) ok = put(s, "sync", syncs, {"kind", "stream", "event", "key", "name", "time_ns"}, true, sync_cell);
  if (ok)
    ok = put(s, "buffer", buffers,
             {"buffer", "base", "bytes", "category", "name", "alloc_ns", "free_ns", "free_stream"}, true, buffer_cell);
  if (ok) ok = put(s, "ring_plan", ring_plans, {"comm", "expected_steps", "run_steps"}, true, ring_plan_cell);
  if (ok)
    ok = put(s, "softmax_row", softmax_rows,
             {"position", "head", "kv_owner", "sample", "method", "parts", "m_own", "lse_own", "m_used", "sum_used",
              "lse_result"},
             true, softmax_cell);
  if (ok)
    ok = put(s, "softmax_stat", softmax_stats,
             {"rows", "empty", "bad", "method", "parts", "lse_min", "lse_max", "lse_mean"}, true, softmax_stat_cell);
  if (ok)
    ok = put(s, "tensor_stat", tensor_stats, {"name", "role", "part", "count", "checksum", "norm", "bad"}, true,
             tensor_stat_cell);
  if (ok)
    ok = put(s, "position_run", positions,
             {"role", "token_start", "count", "pos_start", "stride", "document", "sample", "rope_base"}, true,
             position_cell);
  if (ok) ok = put(s, "memory_sample", memory, {"category", "bytes", "peak_bytes", "time_ns"}, true, memory_cell);
  if (ok)
    ok = put(s, "train_step", train_steps,
             {"loss_sum", "valid_tokens", "divisor", "loss", "tokens", "seconds", "grad_norm", "lr", "peak_bytes"},
             true, train_cell);
  return ok;
}

void Tables::clear() { *this = Tables(); }

}  // namespace ringscope::spool
