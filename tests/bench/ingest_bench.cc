// Rows per second into SQLite: the virtual table against prepared single-row inserts, same rows, same run; then
// a whole spool with joins, order and indexes.
#include <sqlite3.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "probes/recorder/emit.h"
#include "tests/bench/must.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/store/store.h"

using namespace ringscope;
using bench::die;
using bench::must;

namespace {

constexpr int64_t kRows = 2'000'000, kBatch = 65'536;
constexpr int kColumns = 10;

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }
int64_t value(int64_t row, int column) { return row * 31 + column * 1000003; }

class Rows : public RowSource {
 public:
  Rows(int64_t from, int64_t count) : from_(from), count_(count) {}
  int64_t rows() const override { return count_; }
  Value cell(int64_t row, int column) const override { return Value::of(value(from_ + row, column)); }

 private:
  int64_t from_, count_;
};

Store fresh(const std::string& path) {
  Store store = must(Store::create(path));
  must(
      store.exec("CREATE TABLE bench(c0 INTEGER,c1 INTEGER,c2 INTEGER,c3 INTEGER,c4 INTEGER,c5 INTEGER,c6 INTEGER,"
                 "c7 INTEGER,c8 INTEGER,c9 INTEGER) STRICT"));
  return store;
}

double bulk_rate(const std::string& path) {
  Store store = fresh(path);
  std::vector<std::string> columns;
  for (int c = 0; c < kColumns; ++c) columns.push_back("c" + std::to_string(c));
  const double from = seconds();
  for (int64_t at = 0; at < kRows; at += kBatch) {
    must(store.begin());
    must(store.bulk("bench", columns, Rows(at, std::min(kBatch, kRows - at))));
    must(store.commit());
  }
  return double(kRows) / (seconds() - from);
}

double prepared_rate(const std::string& path) {
  Store store = fresh(path);
  sqlite3_stmt* insert = nullptr;
  sqlite3_prepare_v2(store.handle(), "INSERT INTO bench VALUES(?,?,?,?,?,?,?,?,?,?)", -1, &insert, nullptr);
  const double from = seconds();
  for (int64_t at = 0; at < kRows; at += kBatch) {
    must(store.begin());
    for (int64_t row = at; row < std::min(at + kBatch, kRows); ++row) {
      for (int c = 0; c < kColumns; ++c) sqlite3_bind_int64(insert, c + 1, value(row, c));
      if (sqlite3_step(insert) != SQLITE_DONE) die(sqlite3_errmsg(store.handle()));
      sqlite3_reset(insert);
    }
    must(store.commit());
  }
  const double rate = double(kRows) / (seconds() - from);
  sqlite3_finalize(insert);
  return rate;
}

void whole_spool(const std::string& dir) {
  constexpr uint64_t kOps = 200'000;
  const std::string spool = dir + "/s";
  rs_options options{};
  options.spool_dir = spool.c_str();
  options.ring_bytes = uint64_t(64) << 20;
  if (rs_open(&options) != 0) die(rs_last_error());
  rs_thread_attach(0, "rank0.host");
  for (uint64_t i = 0; i < kOps; ++i) {
    OpEnqueueRecord op{};
    op.op = rs_next_op();
    op.name = RS_NAME("op");
    emit(RecordKind::kOpEnqueue, op);
    emit(RecordKind::kAccess, AccessRecord{op.op, 1, 0, 64, 1});
    emit(RecordKind::kOpStart, OpStartRecord{op.op});
    emit(RecordKind::kOpEnd, OpEndRecord{op.op, 0});
  }
  rs_close();
  const double from = seconds();
  must(build_database(spool, dir + "/t.db"));
  std::printf("whole spool: %.2f M records/s (joined, ordered, indexed)\n", 4e-6 * double(kOps) / (seconds() - from));
}

}  // namespace

int main() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ingest-bench-XXXXXX").string();
  if (!mkdtemp(pattern.data())) return 1;
  double bulk = 0, prepared = 0;
  for (int round = 0; round < 3; ++round) {  // alternating, so that a busy machine hits both
    const std::string n = std::to_string(round);
    bulk = std::max(bulk, bulk_rate(pattern + "/bulk" + n));
    prepared = std::max(prepared, prepared_rate(pattern + "/prepared" + n));
  }
  std::printf("virtual table: %.2f M rows/s   prepared: %.2f M rows/s   ratio %.2f   (%d columns, best of 3)\n",
              bulk / 1e6, prepared / 1e6, bulk / prepared, kColumns);
  whole_spool(pattern);
  std::filesystem::remove_all(pattern);
}
