// The bulk path: an eponymous virtual table over rows in memory, read by INSERT ... SELECT. No bind calls: twice
// the rate of prepared single-row inserts (tests/bench/ingest_bench.cc).
#include "tracedb/store/statement.h"
#include "tracedb/store/store.h"

namespace ringscope {
namespace {

constexpr int kColumns = 24;

struct Table {
  sqlite3_vtab base;
  const RowSource** source;
};
struct Cursor {
  sqlite3_vtab_cursor base;
  const RowSource* source;
  int64_t row, rows;
};

int connect(sqlite3* db, void* aux, int, const char* const*, sqlite3_vtab** out, char**) {
  std::string declaration = "CREATE TABLE rows(";
  for (int i = 0; i < kColumns; ++i) declaration += (i ? ",c" : "c") + std::to_string(i);
  const int code = sqlite3_declare_vtab(db, (declaration + ")").c_str());
  if (code != SQLITE_OK) return code;
  *out = &(new Table{{}, static_cast<const RowSource**>(aux)})->base;
  return SQLITE_OK;
}
int disconnect(sqlite3_vtab* table) {
  delete reinterpret_cast<Table*>(table);
  return SQLITE_OK;
}
int best_index(sqlite3_vtab*, sqlite3_index_info* info) {
  info->estimatedCost = 1e6;
  return SQLITE_OK;
}
int open_cursor(sqlite3_vtab* table, sqlite3_vtab_cursor** out) {
  *out = &(new Cursor{{}, *reinterpret_cast<Table*>(table)->source, 0, 0})->base;
  return SQLITE_OK;
}
int close_cursor(sqlite3_vtab_cursor* cursor) {
  delete reinterpret_cast<Cursor*>(cursor);
  return SQLITE_OK;
}
int filter(sqlite3_vtab_cursor* base, int, const char*, int, sqlite3_value**) {
  auto* cursor = reinterpret_cast<Cursor*>(base);
  cursor->row = 0;
  cursor->rows = cursor->source ? cursor->source->rows() : 0;
  return SQLITE_OK;
}
int next(sqlite3_vtab_cursor* cursor) {
  ++reinterpret_cast<Cursor*>(cursor)->row;
  return SQLITE_OK;
}
int eof(sqlite3_vtab_cursor* base) {
  const auto* cursor = reinterpret_cast<Cursor*>(base);
  return cursor->row >= cursor->rows;
}
int column(sqlite3_vtab_cursor* base, sqlite3_context* context, int c) {
  const auto* cursor = reinterpret_cast<Cursor*>(base);
  const RowSource::Value v = cursor->source->cell(cursor->row, c);
  switch (v.type) {
    case RowSource::Value::Type::kNull: sqlite3_result_null(context); break;
    case RowSource::Value::Type::kInteger: sqlite3_result_int64(context, v.integer); break;
    case RowSource::Value::Type::kReal: sqlite3_result_double(context, v.real); break;
    case RowSource::Value::Type::kText:
      sqlite3_result_text(context, v.text.data(), int(v.text.size()), SQLITE_STATIC);
      break;
  }
  return SQLITE_OK;
}
int row_id(sqlite3_vtab_cursor* cursor, sqlite3_int64* id) {
  *id = reinterpret_cast<Cursor*>(cursor)->row;
  return SQLITE_OK;
}

const sqlite3_module kModule = {.iVersion = 0,
                                .xCreate = nullptr,
                                .xConnect = connect,
                                .xBestIndex = best_index,
                                .xDisconnect = disconnect,
                                .xDestroy = disconnect,
                                .xOpen = open_cursor,
                                .xClose = close_cursor,
                                .xFilter = filter,
                                .xNext = next,
                                .xEof = eof,
                                .xColumn = column,
                                .xRowid = row_id,
                                .xUpdate = nullptr,
                                .xBegin = nullptr,
                                .xSync = nullptr,
                                .xCommit = nullptr,
                                .xRollback = nullptr,
                                .xFindFunction = nullptr,
                                .xRename = nullptr,
                                .xSavepoint = nullptr,
                                .xRelease = nullptr,
                                .xRollbackTo = nullptr,
                                .xShadowName = nullptr};

}  // namespace

int register_rows_module(sqlite3* db, const RowSource** source) {
  return sqlite3_create_module(db, "ringscope_rows", &kModule, source);
}

}  // namespace ringscope
