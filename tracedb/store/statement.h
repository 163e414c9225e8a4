// A prepared statement, inside tracedb/store only.
#pragma once

#include <sqlite3.h>

#include <limits>
#include <string>
#include <string_view>

#include "tracedb/base/result.h"

namespace ringscope {

class Statement {
 public:
  Statement(sqlite3* db, const std::string& sql) : db_(db) {
    code_ = sqlite3_prepare_v2(db, sql.c_str(), int(sql.size()), &statement_, nullptr);
  }
  ~Statement() { sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  void bind(int i, int64_t v) { sqlite3_bind_int64(statement_, i, v); }
  void bind(int i, double v) { sqlite3_bind_double(statement_, i, v); }
  void bind(int i, std::string_view v) { sqlite3_bind_text(statement_, i, v.data(), int(v.size()), SQLITE_TRANSIENT); }
  void bind_null(int i) { sqlite3_bind_null(statement_, i); }

  // True while there are rows; after false, ok() tells the end from an error.
  bool step() {
    if (code_ != SQLITE_OK && code_ != SQLITE_ROW) return false;
    code_ = sqlite3_step(statement_);
    return code_ == SQLITE_ROW;
  }
  void reset() {
    sqlite3_reset(statement_);
    code_ = SQLITE_OK;
  }
  bool ok() const { return code_ == SQLITE_OK || code_ == SQLITE_ROW || code_ == SQLITE_DONE; }
  Status status(const std::string& path) const {
    if (ok()) return {};
    return data_error(path + ": " + sqlite3_errmsg(db_));
  }

  bool null(int c) const { return sqlite3_column_type(statement_, c) == SQLITE_NULL; }
  int64_t integer(int c) const { return sqlite3_column_int64(statement_, c); }  // NULL reads as 0
  int64_t integer(int c, int64_t otherwise) const { return null(c) ? otherwise : sqlite3_column_int64(statement_, c); }
  double real(int c) const {  // NULL reads as NaN: SQLite stores NaN as NULL
    return null(c) ? std::numeric_limits<double>::quiet_NaN() : sqlite3_column_double(statement_, c);
  }
  std::string text(int c) const {
    const auto* t = reinterpret_cast<const char*>(sqlite3_column_text(statement_, c));
    return t ? std::string(t, size_t(sqlite3_column_bytes(statement_, c))) : std::string();
  }
  sqlite3_stmt* raw() { return statement_; }

 private:
  sqlite3* db_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
};

// Fills module "ringscope_rows"; source points at the RowSource* to read next.
class RowSource;
int register_rows_module(sqlite3* db, const RowSource** source);

}  // namespace ringscope
