// The typed reader: database -> TraceView. Rows come in id order, which is (rank, issue) order (finish()).
#include <algorithm>

#include "tracedb/store/op_rows.h"
#include "tracedb/store/rows.h"
#include "tracedb/store/statement.h"

namespace ringscope {
namespace {

class ViewReader {
 public:
  explicit ViewReader(const Store& store) : store_(store) {}

  Result<TraceView> read() {
    read_facts();
    read_communicators();
    read_tables();
    if (!status_) return tl::unexpected(status_.error());
    if (store_.version() < 2) number_threads();
    link_operations(view_);
    return std::move(view_);
  }

 private:
  template <class Visit>
  void each(const std::string& sql, Visit visit) {
    if (!status_) return;
    Statement s(store_.handle(), sql);
    while (s.step()) visit(s);
    status_ = s.status(store_.path());
  }
  template <class Row>
  void table(std::vector<Row>& rows) {
    if (status_) status_ = read_rows(store_, rows);
  }
  template <class Row>
  void table(TableId id, std::vector<Row>& rows) {
    if (status_) status_ = read_rows(store_, rows, &view_.origins[size_t(id)]);
  }

  void read_facts() {
    each("SELECT key, value FROM meta", [&](Statement& s) { view_.meta.emplace(s.text(0), s.text(1)); });
    view_.strings.emplace_back();
    each("SELECT id, value FROM string ORDER BY id", [&](Statement& s) {
      const auto id = size_t(s.integer(0));
      if (id < view_.strings.size() || id > view_.strings.size() + (1u << 20)) return;
      view_.strings.resize(id + 1);
      view_.strings[id] = s.text(1);
    });
    each("SELECT path, format, rank, rows, lost FROM source ORDER BY id", [&](Statement& s) {
      view_.sources.push_back({s.text(0), s.text(1), int32_t(s.integer(2)), s.integer(3), s.integer(4)});
    });
    each("SELECT rank, ring, records, torn, from_ns, to_ns FROM lost ORDER BY rank, process, ring_id",
         [&](Statement& s) {
           view_.lost.push_back({int32_t(s.integer(0)), s.text(1), uint64_t(s.integer(2)), uint64_t(s.integer(3)),
                                 s.integer(4), s.integer(5)});
         });
    each("SELECT name, severity, sum(count), max(help) FROM import_stats GROUP BY name, severity ORDER BY name",
         [&](Statement& s) {
           view_.import_stats.push_back({s.text(0), s.text(1), s.integer(2), s.text(3)});
         });
  }

  void read_communicators() {
    if (!status_) return;
    auto comms = read_comms(store_);
    if (comms) view_.comms = std::move(*comms);
    else status_ = tl::unexpected(comms.error());
  }

  void read_tables() {
    table(view_.ranks);
    table(view_.streams);
    std::stable_sort(view_.streams.begin(), view_.streams.end(),
                     [](const StreamRow& a, const StreamRow& b) { return a.rank < b.rank; });
    table(TableId::kRankExit, view_.rank_exits);
    table(TableId::kOp, view_.ops);
    table(TableId::kColl, view_.colls);
    table(TableId::kP2p, view_.p2ps);
    table(TableId::kAccess, view_.accesses);
    table(TableId::kSync, view_.syncs);
    table(TableId::kBuffer, view_.buffers);
    table(TableId::kRingPlan, view_.ring_plans);
    table(TableId::kPositionRun, view_.position_runs);
    table(TableId::kSoftmaxRow, view_.softmax_rows);
    table(TableId::kSoftmaxStat, view_.softmax_stats);
    table(TableId::kTensorStat, view_.tensor_stats);
    table(TableId::kAttentionRow, view_.attention_rows);
    table(TableId::kLabelRun, view_.label_runs);
    table(TableId::kStepValue, view_.step_values);
    table(TableId::kUpdateSample, view_.update_samples);
    table(TableId::kMemorySample, view_.memory_samples);
    table(TableId::kTrainStep, view_.train_steps);
  }

  // Version 1 counted the rings of a rank in the upper bits of `issue`, and every host thread had one.
  void number_threads() {
    for (OpRow& row : view_.ops) row.thread = uint16_t(row.issue >> 40);
    for (SyncRow& row : view_.syncs) row.thread = uint16_t(row.issue >> 40);
  }

  const Store& store_;
  TraceView view_;
  Status status_;
};

}  // namespace

Result<TraceView> load_view(const Store& store) { return ViewReader(store).read(); }

}  // namespace ringscope
