// ringscope query DB SQL: one statement that only reads. Rows go out as they come: a table of any length takes the
// memory of its first rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_input.h"

namespace ringscope::cli {
namespace {

using Row = std::vector<Cell>;

nlohmann::ordered_json as_json(const Cell& cell) {
  if (const auto* i = std::get_if<int64_t>(&cell)) return *i;
  if (const auto* d = std::get_if<double>(&cell)) return std::isfinite(*d) ? nlohmann::ordered_json(*d) : nullptr;
  if (const auto* t = std::get_if<std::string>(&cell)) return *t;
  return nullptr;
}

std::string one_line(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// {"schema", "columns", "rows"}, one row a line. An error behind the first rows is a field of the same document.
class JsonRows {
 public:
  void columns(const std::vector<std::string>& names) {
    print(fmt::format("{{\n  \"schema\": \"ringscope.query/1\",\n  \"columns\": {},\n  \"rows\": [",
                      one_line(nlohmann::ordered_json(names))));
    begun_ = true;
  }
  bool row(const Row& row) {
    nlohmann::ordered_json cells = nlohmann::ordered_json::array();
    for (const Cell& cell : row) cells.push_back(as_json(cell));
    return print((rows_++ ? ",\n    " : "\n    ") + one_line(cells));
  }
  void end(const Status& status) {
    print(rows_ ? "\n  ]" : "]");
    if (!status) print(",\n  \"error\": " + one_line(error_json(status.error(), "query")["error"]));
    print("\n}\n");
  }
  bool begun() const { return begun_; }

 private:
  bool begun_ = false;
  int64_t rows_ = 0;
};

// Characters, not bytes: every byte of UTF-8 but the continuations.
size_t width_of(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xC0) != 0x80; }));
}

// Columns as wide as the names and the first rows need; a wider cell behind them pushes its own line aside.
class TextRows {
 public:
  void columns(const std::vector<std::string>& names) {
    width_.resize(names.size());
    numeric_.assign(names.size(), 1);
    lines_.push_back(names);
    begun_ = true;
  }
  bool row(const Row& row) {
    std::vector<std::string> line;
    for (const Cell& cell : row) {
      line.push_back(to_text(cell));
      held_bytes_ += line.back().size();
    }
    ++rows_;
    if (laid_out_) return write(line);
    for (size_t c = 0; c < row.size(); ++c) numeric_[c] &= !std::holds_alternative<std::string>(row[c]);
    lines_.push_back(std::move(line));
    return lines_.size() <= kSampleRows && held_bytes_ < kSampleBytes ? true : lay_out();
  }
  void end(const Status&) {
    if (!laid_out_) lay_out();
  }
  bool begun() const { return begun_; }
  int64_t rows() const { return rows_; }

 private:
  static constexpr size_t kSampleRows = 1000, kSampleBytes = 1 << 20;

  bool lay_out() {
    laid_out_ = true;
    for (const auto& line : lines_)
      for (size_t c = 0; c < line.size(); ++c) width_[c] = std::max(width_[c], width_of(line[c]));
    const bool open = std::all_of(lines_.begin(), lines_.end(), [&](const auto& line) { return write(line); });
    lines_ = {};
    return open;
  }
  bool write(const std::vector<std::string>& line) const {
    std::string text;
    for (size_t c = 0; c < line.size(); ++c) {
      const size_t used = width_of(line[c]);
      const std::string pad(width_[c] > used ? width_[c] - used : 0, ' ');
      text += (c ? "  " : "") + (numeric_[c] ? pad + line[c] : line[c] + pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return print(text + "\n");
  }

  bool begun_ = false, laid_out_ = false;
  std::vector<std::vector<std::string>> lines_;  // the names and the first rows, until they are laid out
  std::vector<size_t> width_;
  std::vector<char> numeric_;
  size_t held_bytes_ = 0;
  int64_t rows_ = 0;
};

template <class Rows>
Status run_query(const Store& store, const std::string& sql, Rows& rows) {
  Status status = store.query_each(
      sql, [&](const std::vector<std::string>& names) { rows.columns(names); },
      [&](const Row& row) { return rows.row(row); });
  if (rows.begun()) rows.end(status);
  return status;
}

Result<int> run(const Arguments& args) {
  if (args.positionals.size() != 2)
    return usage_error(
        "query: name a trace and a statement, for example ringscope query demo.db \"SELECT * FROM train_step\"");
  auto store = open_trace(args.positionals[0]);
  if (!store) return tl::unexpected(store.error());
  JsonRows json;
  TextRows text;
  const Status status =
      args.json() ? run_query(*store, args.positionals[1], json) : run_query(*store, args.positionals[1], text);
  if (!status) {
    if (!json.begun()) return tl::unexpected(status.error());
    print_error(status.error());  // the document that was begun says it too
    return exit_code(status.error().kind);
  }
  if (!args.json() && flush_output() == Flushed::kWritten)
    say(fmt::format("{} row{}", text.rows(), text.rows() == 1 ? "" : "s"));
  return kExitClean;
}

}  // namespace

const Command& query_command() {
  static const Command command{"query",
                               "ask a trace in SQL (read-only)",
                               "DB SQL",
                               {"ringscope query demo.db \"SELECT step, loss FROM train_step WHERE rank = 0\"",
                                "ringscope query demo.db \"SELECT * FROM v_pending_ops\"",
                                "ringscope query --json demo.db \"SELECT name, sql FROM sqlite_schema\""},
                               {},
                               2,
                               run,
                               "Views: v_ring_timeline, v_pending_ops, v_collective_order, v_exposed_comm, v_memory,\n"
                               "v_replica_mismatch. Columns carry their units."};
  return command;
}

}  // namespace ringscope::cli
