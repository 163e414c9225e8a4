#include "tracedb/store/rows.h"

#include <algorithm>
#include <unordered_map>

#include "tracedb/store/columns.h"

namespace ringscope {
namespace {

template <class Row>
class Source : public RowSource {
 public:
  explicit Source(const std::vector<Row>& rows) : rows_(rows) {}
  int64_t rows() const override { return int64_t(rows_.size()); }
  Value cell(int64_t row, int column) const override {
    return Table<Row>::kColumns[size_t(column)].get(rows_[size_t(row)]);
  }

 private:
  const std::vector<Row>& rows_;
};

// Only `rank` has no id of its own.
template <class Row>
constexpr const char* kIdColumn = std::is_same_v<Row, RankRow> ? "rank" : "id";

int64_t number(const Store& store, const std::string& sql) {
  Statement s(store.handle(), sql);
  return s.step() ? s.integer(0) : 0;
}

// Rows to make room for: the largest id, unless the file is too small to hold so many (a damaged one).
template <class Row>
size_t expected_rows(const Store& store) {
  const int64_t most = number(store, std::string("SELECT max(") + kIdColumn<Row> + ") FROM " + Table<Row>::kName);
  const int64_t bytes = number(store, "PRAGMA page_count") * number(store, "PRAGMA page_size");
  return size_t(std::clamp<int64_t>(most, 0, bytes / 8));
}

}  // namespace

template <class Row>
Status append(Store& store, const std::vector<Row>& rows) {
  std::vector<std::string> columns;
  for (const Column<Row>& c : Table<Row>::kColumns) columns.emplace_back(c.name);
  return store.bulk(Table<Row>::kName, columns, Source<Row>(rows));
}

template <class Row>
Status read_rows(const Store& store, std::vector<Row>& rows, std::vector<RowRun>* runs) {
  const int version = store.version();
  if (version < since<Row>()) return {};  // nobody recorded such rows then
  rows.reserve(rows.size() + expected_rows<Row>(store));
  Statement s(store.handle(), std::string("SELECT ") + kIdColumn<Row> + "," + column_list<Row>(version) + " FROM " +
                                  Table<Row>::kName + " ORDER BY " + kIdColumn<Row>);
  int64_t next_id = 1;
  while (s.step()) {
    if (runs && s.integer(0) != next_id) runs->push_back({uint32_t(rows.size()), 0, s.integer(0)});
    next_id = s.integer(0) + 1;
    Row& row = rows.emplace_back();
    int at = 1;
    for (const Column<Row>& c : Table<Row>::kColumns)
      if (c.since <= version) c.set(row, s, at++);
  }
  return s.status(store.path());
}

Result<std::vector<CommRow>> read_comms(const Store& store) {
  std::vector<CommRow> comms;
  std::unordered_map<uint32_t, size_t> row_of;
  Statement s(store.handle(), "SELECT comm, axis, name, size FROM comm ORDER BY creation, comm");
  while (s.step()) {
    CommRow row{uint32_t(s.integer(0)), Axis(s.integer(1)), s.text(2), {}};
    row.ranks.assign(size_t(std::clamp<int64_t>(s.integer(3), 0, kMostMembers)), -1);
    row_of.emplace(row.comm, comms.size());
    comms.push_back(std::move(row));
  }
  if (auto ok = s.status(store.path()); !ok) return tl::unexpected(ok.error());
  Statement members(store.handle(), "SELECT comm, group_rank, rank FROM comm_rank");
  while (members.step()) {
    const auto comm = row_of.find(uint32_t(members.integer(0)));
    if (comm == row_of.end()) continue;
    std::vector<int32_t>& ranks = comms[comm->second].ranks;
    const int64_t at = members.integer(1);
    if (at >= 0 && at < int64_t(ranks.size())) ranks[size_t(at)] = int32_t(members.integer(2));
  }
  if (auto ok = members.status(store.path()); !ok) return tl::unexpected(ok.error());
  return comms;
}

#define RINGSCOPE_ROWS(Row)                                     \
  template Status append<Row>(Store&, const std::vector<Row>&); \
  template Status read_rows<Row>(const Store&, std::vector<Row>&, std::vector<RowRun>*);
RINGSCOPE_ROWS(RankRow)
RINGSCOPE_ROWS(RankExitRow)
RINGSCOPE_ROWS(StreamRow)
RINGSCOPE_ROWS(OpRow)
RINGSCOPE_ROWS(CollRow)
RINGSCOPE_ROWS(P2pRow)
RINGSCOPE_ROWS(AccessRow)
RINGSCOPE_ROWS(SyncRow)
RINGSCOPE_ROWS(BufferRow)
RINGSCOPE_ROWS(RingPlanRow)
RINGSCOPE_ROWS(PositionRunRow)
RINGSCOPE_ROWS(SoftmaxRow)
RINGSCOPE_ROWS(SoftmaxStatRow)
RINGSCOPE_ROWS(TensorStatRow)
RINGSCOPE_ROWS(AttentionRow)
RINGSCOPE_ROWS(LabelRunRow)
RINGSCOPE_ROWS(StepValueRow)
RINGSCOPE_ROWS(UpdateSampleRow)
RINGSCOPE_ROWS(MemorySampleRow)
RINGSCOPE_ROWS(TrainStepRow)
#undef RINGSCOPE_ROWS

}  // namespace ringscope
