// A temporary folder that goes with its test, and small helpers around databases.
#pragma once

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tracedb/store/store.h"

namespace ringscope {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tracedb-test-XXXXXX").string();
    dir_ = mkdtemp(pattern.data()) ? pattern : "";
  }
  ~Scratch() {
    std::error_code ignored;
    if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
  }
  std::string operator/(const std::string& name) const { return dir_ + "/" + name; }
  const std::string& dir() const { return dir_; }

 private:
  std::string dir_;
};

inline int64_t scalar(const Store& store, const std::string& sql) {
  auto result = store.query(sql);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  if (!result || result->rows.empty()) return -1;
  const auto* value = std::get_if<int64_t>(&result->rows[0][0]);
  return value ? *value : -1;
}

// Every row of every table, as text. Times can be left out: those of a running program are refined as its clocks
// are sampled again.
inline std::string dump(const Store& store, bool times = true) {
  std::string text;
  auto tables =
      store.query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name");
  EXPECT_TRUE(tables);
  for (const auto& row : tables->rows) {
    const std::string table = to_text(row[0]);
    auto rows = store.query("SELECT * FROM " + table + " ORDER BY 1, 2");
    EXPECT_TRUE(rows);
    text += "== " + table + "\n";
    for (const auto& cells : rows->rows) {
      for (size_t c = 0; c < cells.size(); ++c)
        if (times || !rows->columns[c].ends_with("_ns")) text += to_text(cells[c]) + "|";
      text += "\n";
    }
  }
  return text;
}

inline std::string integrity(const Store& store) {
  std::string answer;
  sqlite3_exec(
      store.handle(), "PRAGMA integrity_check",
      [](void* out, int, char** cells, char**) {
        *static_cast<std::string*>(out) += cells[0];
        return 0;
      },
      &answer, nullptr);
  return answer;
}

}  // namespace ringscope
