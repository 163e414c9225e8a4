// The trace database: one SQLite file of one rank or of one job. Schema: schema/*.sql (columns carry units).
//
// Life of a file: Store::create(path) makes a new file for loading (WAL, exclusive); importers fill it;
// finish() derives what follows from the rows, builds indexes and leaves journal_mode=DELETE, so that the
// closed file can be renamed and opened in a read-only folder. Nothing here renames: see
// tracedb/import/spool/spool_import.h, build_database().
//
// Errors: kData for files (unreadable, not ours, newer schema), kUsage for a query of a person that is wrong.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/finding.h"
#include "tracedb/model/trace_view.h"

struct sqlite3;

namespace ringscope {

inline constexpr int kSchemaVersion = 3;           // PRAGMA user_version; older ones are read
inline constexpr int kApplicationId = 0x52536370;  // "RScp", PRAGMA application_id

using Cell = std::variant<std::monostate, int64_t, double, std::string>;  // NULL, INTEGER, REAL, TEXT or BLOB
std::string to_text(const Cell&);                                         // NULL prints as ""

struct QueryResult {
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

// Rows for the bulk path. Cells are read once, row by row; text stays the source's until the insert returns.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t rows() const = 0;
  struct Value {
    enum class Type : uint8_t { kNull, kInteger, kReal, kText } type = Type::kNull;
    int64_t integer = 0;
    double real = 0;
    std::string_view text;
    static Value null() { return {}; }
    static Value of(int64_t v) { return {Type::kInteger, v, 0, {}}; }
    static Value of(double v) { return {Type::kReal, 0, v, {}}; }
    static Value of(std::string_view v) { return {Type::kText, 0, 0, v}; }
  };
  virtual Value cell(int64_t row, int column) const = 0;
};

class Store {
 public:
  // A new database for loading. The file must not exist.
  static Result<Store> create(const std::string& path);
  // Read-only; works in a read-only folder.
  static Result<Store> open(const std::string& path);
  // Read and write of a finished file (save_report). Also resumes loading. Brings an older file to this version.
  static Result<Store> open_writable(const std::string& path);

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();  // closes; without finish() the file stays as it was last committed

  const std::string& path() const;
  int version() const;  // of the schema in the file

  // One statement that only reads; anything else is kUsage.
  Result<QueryResult> query(const std::string& sql) const;
  // The same without keeping rows: the names of the columns once, then row by row until `row` returns false.
  Status query_each(const std::string& sql, const std::function<void(const std::vector<std::string>&)>& columns,
                    const std::function<bool(const std::vector<Cell>&)>& row) const;

  // Replaces the findings in the file. Evidence rows keep (source, table, row).
  Status save_report(const Report&);

  // For importers. begin/commit bracket one transaction; bulk inserts source into table(columns...).
  Status begin();
  Status commit();
  void rollback();
  Status bulk(const std::string& table, const std::vector<std::string>& columns, const RowSource& source);
  Status exec(const std::string& sql);
  // Runs one statement with bound values (cold paths).
  Status run(const std::string& sql, std::span<const Cell> values);
  // Id of a text in table string, added on first sight. "" = 0.
  Result<int64_t> string_id(const std::string& text);

  // Puts rows in (rank, issue) order, matches transfers, derives ring_step, builds indexes, leaves WAL.
  Status finish();

  sqlite3* handle() const;

 private:
  Store();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Every table of the view; ops, syncs and the rest in (rank, issue) order; row index = rowid - 1.
Result<TraceView> load_view(const Store&);

}  // namespace ringscope
