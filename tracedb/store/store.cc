#include "tracedb/store/store.h"

#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <unordered_map>

#include "tracedb/base/check.h"
#include "tracedb/store/schema.h"
#include "tracedb/store/statement.h"

namespace ringscope {

struct Store::Impl {
  std::string path;
  int version = kSchemaVersion;
  sqlite3* db = nullptr;
  const RowSource* rows = nullptr;  // what ringscope_rows shows now
  std::unordered_map<std::string, int64_t> strings;
  ~Impl() { sqlite3_close_v2(db); }
};

Store::Store() : impl_(std::make_unique<Impl>()) {}
Store::Store(Store&&) noexcept = default;
Store& Store::operator=(Store&&) noexcept = default;
Store::~Store() = default;

const std::string& Store::path() const { return impl_->path; }
int Store::version() const { return impl_->version; }
sqlite3* Store::handle() const { return impl_->db; }

namespace {

Error sqlite_error(const std::string& path, sqlite3* db) {
  const bool damaged = db && (sqlite3_errcode(db) == SQLITE_CORRUPT || sqlite3_errcode(db) == SQLITE_NOTADB);
  return Error{ErrorKind::kData, path + ": " + (db ? sqlite3_errmsg(db) : "out of memory") +
                                     (damaged ? "; the file is damaged: copy it again, or record again" : "")};
}

Status run_sql(const std::string& path, sqlite3* db, const std::string& sql) {
  if (sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return tl::unexpected(sqlite_error(path, db));
}

// The words of the enum columns.
template <class E>
void add_words(std::string& sql, const char* kind, int count) {
  for (int i = 0; i < count; ++i)
    sql += std::string("INSERT INTO enum_name VALUES('") + kind + "'," + std::to_string(i) + ",'" + name(E(i)) + "');";
}
std::string enum_words() {
  std::string sql;
  add_words<OpKind>(sql, "op_kind", 7);
  add_words<CollFunc>(sql, "coll_func", 11);
  add_words<RedOp>(sql, "red_op", 4);
  add_words<DType>(sql, "dtype", 6);
  add_words<MemCategory>(sql, "mem_category", int(MemCategory::kCount));
  add_words<Axis>(sql, "axis", 7);
  add_words<OpState>(sql, "op_state", 3);
  add_words<PositionRole>(sql, "position_role", 4);
  add_words<TensorRole>(sql, "tensor_role", int(TensorRole::kCount));
  add_words<StepQuantity>(sql, "step_quantity", int(StepQuantity::kCount));
  for (int i = 1; i <= 4; ++i)
    sql += "INSERT INTO enum_name VALUES('access_mode'," + std::to_string(i) + ",'" + name(AccessMode(i)) + "');";
  sql +=
      "INSERT INTO enum_name VALUES('direction',0,'send'),('direction',1,'recv'),"
      "('sync_kind',0,'record'),('sync_kind',1,'wait'),('sync_kind',2,'host_sync'),"
      "('pass',0,'forward'),('pass',1,'backward'),('pass',2,'optimizer');";
  return sql;
}

Status check_is_ours(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return data_error(path + ": cannot open: " + std::strerror(errno));
  char head[100] = {};
  const size_t n = std::fread(head, 1, sizeof head, file);
  const bool sized = std::fseek(file, 0, SEEK_END) == 0;
  const int64_t bytes = sized ? int64_t(std::ftell(file)) : 0;
  std::fclose(file);
  if (n < sizeof head || std::memcmp(head, "SQLite format 3", 16) != 0)
    return data_error(path + ": not a ringscope database" + (n == 0 ? " (empty file)" : ""));
  // SQLite reads a cut-off last page as zeros: rows would be missing without a word.
  const auto big_endian = [&](int at, int width) {
    int64_t value = 0;
    for (int i = 0; i < width; ++i) value = value << 8 | uint8_t(head[at + i]);
    return value;
  };
  const int64_t page = big_endian(16, 2) == 1 ? 65536 : big_endian(16, 2), expected = page * big_endian(28, 4);
  const bool count_is_valid = big_endian(24, 4) == big_endian(92, 4);
  if (sized && count_is_valid && bytes < expected)
    return data_error(path + ": the file is truncated: " + std::to_string(bytes) + " bytes of " +
                      std::to_string(expected) + "; copy it again");
  return {};
}

int64_t pragma_value(sqlite3* db, const char* name) {
  Statement s(db, std::string("PRAGMA ") + name);
  return s.step() ? s.integer(0) : -1;
}

Result<int> read_version(const std::string& path, sqlite3* db) {
  const int64_t application = pragma_value(db, "application_id");
  if (application < 0) return tl::unexpected(sqlite_error(path, db));
  if (application != kApplicationId) return data_error(path + ": an SQLite file, but not a ringscope database");
  const int64_t version = pragma_value(db, "user_version");
  if (version > kSchemaVersion)
    return data_error(path + ": schema version " + std::to_string(version) + " is newer than this version reads (" +
                      std::to_string(kSchemaVersion) + "); use a newer ringscope");
  if (version < 1) return data_error(path + ": loading was never finished; import it again");
  return int(version);
}

// Version 1 counted threads in `issue`, and had one process.
std::string upgrade_threads() {
  return std::string(kSchema_threads) +
         "UPDATE op SET thread = issue >> 40; UPDATE sync SET thread = issue >> 40;"
         "INSERT INTO process SELECT process, row_number() OVER (ORDER BY min(start_ns)) - 1 FROM thread "
         "GROUP BY process;"
         "INSERT INTO comm_of SELECT p.process, c.comm, c.comm FROM process p, comm c WHERE p.number = 0;";
}

// Brings an older file to this version.
Status upgrade(const std::string& path, sqlite3* db, int version) {
  std::string sql = "BEGIN;";
  if (version < 2) sql += upgrade_threads();
  if (version < 3) sql += kSchema_observations;
  return run_sql(path, db, sql + "PRAGMA user_version=" + std::to_string(kSchemaVersion) + ";COMMIT;");
}

}  // namespace

std::string to_text(const Cell& cell) {
  if (const auto* i = std::get_if<int64_t>(&cell)) return std::to_string(*i);
  if (const auto* t = std::get_if<std::string>(&cell)) return *t;
  if (const auto* d = std::get_if<double>(&cell)) {
    char text[40];
    std::snprintf(text, sizeof text, "%.15g", *d);
    return text;
  }
  return "";
}

Result<Store> Store::create(const std::string& path) {
  const bool memory = path == ":memory:";
  if (!memory && access(path.c_str(), F_OK) == 0) return data_error(path + ": exists already");
  Store store;
  store.impl_->path = path;
  sqlite3*& db = store.impl_->db;
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr) !=
      SQLITE_OK)
    return tl::unexpected(sqlite_error(path, db));
  // Page size before the first write; EXCLUSIVE keeps the WAL index out of shared memory.
  std::string setup =
      "PRAGMA page_size=32768;PRAGMA locking_mode=EXCLUSIVE;PRAGMA journal_mode=WAL;"
      "PRAGMA synchronous=NORMAL;PRAGMA cache_size=-65536;PRAGMA temp_store=MEMORY;BEGIN;";
  setup += "PRAGMA application_id=" + std::to_string(kApplicationId) + ";";
  setup += "PRAGMA user_version=" + std::to_string(kSchemaVersion) + ";";
  setup += kSchema_tables;
  setup += kSchema_views;
  setup += kSchema_threads;
  setup += kSchema_observations;
  setup += enum_words() + "COMMIT;";
  if (auto ok = run_sql(path, db, setup); !ok) return tl::unexpected(ok.error());
  if (register_rows_module(db, &store.impl_->rows) != SQLITE_OK) return tl::unexpected(sqlite_error(path, db));
  return store;
}

Result<Store> Store::open(const std::string& path) {
  if (auto ok = check_is_ours(path); !ok) return tl::unexpected(ok.error());
  Store store;
  store.impl_->path = path;
  sqlite3*& db = store.impl_->db;
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK)
    return tl::unexpected(sqlite_error(path, db));
  sqlite3_busy_timeout(db, 2000);
  auto version = read_version(path, db);
  if (!version) return tl::unexpected(version.error());
  store.impl_->version = *version;
  return store;
}

Result<Store> Store::open_writable(const std::string& path) {
  if (auto ok = check_is_ours(path); !ok) return tl::unexpected(ok.error());
  Store store;
  store.impl_->path = path;
  sqlite3*& db = store.impl_->db;
  if (sqlite3_open_v2(path.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr) != SQLITE_OK)
    return tl::unexpected(sqlite_error(path, db));
  sqlite3_busy_timeout(db, 2000);
  auto version = read_version(path, db);
  if (!version) return tl::unexpected(version.error());
  if (*version < kSchemaVersion)
    if (auto ok = upgrade(path, db, *version); !ok) return tl::unexpected(ok.error());
  if (auto ok = run_sql(path, db, "PRAGMA cache_size=-65536;PRAGMA temp_store=MEMORY;"); !ok)
    return tl::unexpected(ok.error());
  if (register_rows_module(db, &store.impl_->rows) != SQLITE_OK) return tl::unexpected(sqlite_error(path, db));
  return store;
}

namespace {

int only_reading(void*, int action, const char*, const char* function, const char*, const char*) {
  switch (action) {
    case SQLITE_SELECT:
    case SQLITE_READ:
    case SQLITE_RECURSIVE: return SQLITE_OK;
    case SQLITE_FUNCTION: return function && std::strcmp(function, "load_extension") == 0 ? SQLITE_DENY : SQLITE_OK;
    default: return SQLITE_DENY;
  }
}

Cell cell_of(sqlite3_stmt* s, int c) {
  switch (sqlite3_column_type(s, c)) {
    case SQLITE_INTEGER: return int64_t(sqlite3_column_int64(s, c));
    case SQLITE_FLOAT: return sqlite3_column_double(s, c);
    case SQLITE_NULL: return std::monostate{};
    default: {
      const auto* bytes = static_cast<const char*>(sqlite3_column_blob(s, c));
      return std::string(bytes ? bytes : "", size_t(sqlite3_column_bytes(s, c)));
    }
  }
}

}  // namespace

Result<QueryResult> Store::query(const std::string& sql) const {
  QueryResult result;
  auto ok = query_each(
      sql, [&](const std::vector<std::string>& columns) { result.columns = columns; },
      [&](const std::vector<Cell>& row) {
        result.rows.push_back(row);
        return true;
      });
  if (!ok) return tl::unexpected(ok.error());
  return result;
}

Status Store::query_each(const std::string& sql, const std::function<void(const std::vector<std::string>&)>& on_columns,
                         const std::function<bool(const std::vector<Cell>&)>& on_row) const {
  sqlite3* db = impl_->db;
  sqlite3_stmt* statement = nullptr;
  const char* rest = nullptr;
  sqlite3_set_authorizer(db, only_reading, nullptr);
  const int code = sqlite3_prepare_v2(db, sql.c_str(), int(sql.size()), &statement, &rest);
  sqlite3_set_authorizer(db, nullptr, nullptr);
  const std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> owner(statement, sqlite3_finalize);
  if (code == SQLITE_AUTH) return usage_error("a query may only read: use one SELECT");
  if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT || code == SQLITE_IOERR || code == SQLITE_CANTOPEN)
    return tl::unexpected(sqlite_error(impl_->path, db));
  if (code != SQLITE_OK) return usage_error(std::string("SQL: ") + sqlite3_errmsg(db));
  if (!statement) return usage_error("the query is empty");
  if (sqlite3_column_count(statement) == 0) return usage_error("a query may only read: use one SELECT");  // VACUUM INTO
  if (std::string(rest).find_first_not_of(" \t\r\n;") != std::string::npos)
    return usage_error("a query is one statement; found more text behind it");
  std::vector<std::string> names;
  const int columns = sqlite3_column_count(statement);
  for (int c = 0; c < columns; ++c) names.emplace_back(sqlite3_column_name(statement, c));
  int step = sqlite3_step(statement);  // what is wrong with a statement mostly shows before its first row
  if (step == SQLITE_ROW || step == SQLITE_DONE) on_columns(names);
  std::vector<Cell> row(static_cast<size_t>(columns));
  for (; step == SQLITE_ROW; step = sqlite3_step(statement)) {
    for (int c = 0; c < columns; ++c) row[size_t(c)] = cell_of(statement, c);
    if (!on_row(row)) return {};
  }
  if (step == SQLITE_DONE) return {};
  if (step == SQLITE_ERROR || step == SQLITE_MISMATCH) return usage_error(std::string("SQL: ") + sqlite3_errmsg(db));
  return tl::unexpected(sqlite_error(impl_->path, db));
}

Status Store::exec(const std::string& sql) { return run_sql(impl_->path, impl_->db, sql); }
Status Store::begin() { return exec("BEGIN IMMEDIATE"); }
Status Store::commit() { return exec("COMMIT"); }
void Store::rollback() {
  if (sqlite3_get_autocommit(impl_->db) == 0) (void)exec("ROLLBACK");
  impl_->strings.clear();  // ids that were handed out inside may be gone
}

Status Store::bulk(const std::string& table, const std::vector<std::string>& columns, const RowSource& source) {
  if (source.rows() == 0) return {};
  std::string names, cells;
  for (size_t i = 0; i < columns.size(); ++i) {
    names += (i ? "," : "") + columns[i];
    cells += (i ? ",c" : "c") + std::to_string(i);
  }
  impl_->rows = &source;
  auto status = exec("INSERT INTO " + table + "(" + names + ") SELECT " + cells + " FROM ringscope_rows");
  impl_->rows = nullptr;
  return status;
}

Status Store::run(const std::string& sql, std::span<const Cell> values) {
  Statement s(impl_->db, sql);
  for (size_t i = 0; i < values.size() && s.ok(); ++i) {
    const int at = int(i) + 1;
    if (const auto* n = std::get_if<int64_t>(&values[i])) s.bind(at, *n);
    else if (const auto* d = std::get_if<double>(&values[i])) s.bind(at, *d);
    else if (const auto* t = std::get_if<std::string>(&values[i])) s.bind(at, std::string_view(*t));
    else s.bind_null(at);
  }
  while (s.step()) {
  }
  return s.status(impl_->path);
}

Result<int64_t> Store::string_id(const std::string& text) {
  if (text.empty()) return 0;
  auto& strings = impl_->strings;
  if (strings.empty()) {
    Statement all(impl_->db, "SELECT id, value FROM string");
    while (all.step()) strings.emplace(all.text(1), all.integer(0));
    if (auto ok = all.status(impl_->path); !ok) return tl::unexpected(ok.error());
  }
  const auto [it, fresh] = strings.try_emplace(text, int64_t(strings.size()) + 1);
  if (fresh) {
    const Cell values[] = {it->second, text};
    if (auto ok = run("INSERT INTO string(id, value) VALUES(?, ?)", values); !ok) {
      strings.erase(it);
      return tl::unexpected(ok.error());
    }
  }
  return it->second;
}

}  // namespace ringscope
