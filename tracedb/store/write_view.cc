// A view back into a database, by the same description that it was read by.
#include "tracedb/store/rows.h"

namespace ringscope {
namespace {

class ViewWriter {
 public:
  ViewWriter(const TraceView& view, Store& store) : view_(view), store_(store) {}

  Status write() {
    write_facts();
    table(view_.ranks);
    table(view_.rank_exits);
    table(view_.streams);
    table(view_.ops);
    table(view_.colls);
    table(view_.p2ps);
    table(view_.accesses);
    table(view_.syncs);
    table(view_.buffers);
    table(view_.ring_plans);
    table(view_.position_runs);
    table(view_.softmax_rows);
    table(view_.softmax_stats);
    table(view_.tensor_stats);
    table(view_.attention_rows);
    table(view_.label_runs);
    table(view_.step_values);
    table(view_.update_samples);
    table(view_.memory_samples);
    table(view_.train_steps);
    return status_;
  }

 private:
  void row(const char* sql, std::initializer_list<Cell> values) {
    if (status_) status_ = store_.run(sql, std::span<const Cell>(values.begin(), values.size()));
  }
  template <class Row>
  void table(const std::vector<Row>& rows) {
    if (status_) status_ = append(store_, rows);
  }

  void write_facts() {
    for (const auto& [key, value] : view_.meta) row("INSERT INTO meta VALUES(?, ?)", {key, value});
    for (size_t id = 1; id < view_.strings.size(); ++id)
      row("INSERT INTO string VALUES(?, ?)", {int64_t(id), view_.strings[id]});
    for (const SourceRow& s : view_.sources)
      row("INSERT INTO source(path, format, rank, rows, lost) VALUES(?, ?, ?, ?, ?)",
          {s.path, s.format, int64_t(s.rank), s.rows, s.lost});
    for (size_t i = 0; i < view_.comms.size(); ++i) write_comm(view_.comms[i], int64_t(i));
    for (size_t i = 0; i < view_.lost.size(); ++i) {
      const LostRow& l = view_.lost[i];
      const auto time = [](int64_t ns) { return ns ? Cell(ns) : Cell(); };
      row("INSERT INTO lost VALUES('view', ?, ?, ?, ?, ?, ?, ?)",
          {l.ring, int64_t(i), int64_t(l.rank), int64_t(l.records), int64_t(l.torn), time(l.from_ns), time(l.to_ns)});
    }
    for (const ImportStat& s : view_.import_stats)
      row("INSERT OR REPLACE INTO import_stats VALUES('', ?, ?, ?, ?)", {s.name, s.severity, s.count, s.help});
  }

  void write_comm(const CommRow& comm, int64_t creation) {
    row("INSERT INTO comm VALUES(?, ?, ?, ?, ?)",
        {int64_t(comm.comm), creation, int64_t(comm.axis), comm.name, int64_t(comm.ranks.size())});
    for (size_t at = 0; at < comm.ranks.size(); ++at)
      if (comm.ranks[at] >= 0)
        row("INSERT INTO comm_rank VALUES(?, ?, ?, NULL)", {int64_t(comm.comm), int64_t(at), int64_t(comm.ranks[at])});
  }

  const TraceView& view_;
  Store& store_;
  Status status_;
};

}  // namespace

Status write_view(const TraceView& view, Store& store) {
  if (auto ok = store.begin(); !ok) return ok;
  auto status = ViewWriter(view, store).write();
  if (status) status = store.commit();
  if (!status) store.rollback();
  return status;
}

}  // namespace ringscope
