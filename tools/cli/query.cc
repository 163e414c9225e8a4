// ringscope query DB SQL: one statement that only reads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/trace_input.h"

namespace ringscope::cli {
namespace {

nlohmann::ordered_json as_json(const Cell& cell) {
  if (const auto* i = std::get_if<int64_t>(&cell)) return *i;
  if (const auto* d = std::get_if<double>(&cell)) return std::isfinite(*d) ? nlohmann::ordered_json(*d) : nullptr;
  if (const auto* t = std::get_if<std::string>(&cell)) return *t;
  return nullptr;
}

void print_result_json(const QueryResult& result) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& row : result.rows) {
    nlohmann::ordered_json cells = nlohmann::ordered_json::array();
    for (const Cell& cell : row) cells.push_back(as_json(cell));
    rows.push_back(std::move(cells));
  }
  print_json({{"schema", "ringscope.query/1"}, {"columns", result.columns}, {"rows", std::move(rows)}});
}

// Characters, not bytes: every byte of UTF-8 but the continuations.
size_t width_of(const std::string& text) {
  return size_t(std::count_if(text.begin(), text.end(), [](char c) { return (uint8_t(c) & 0xC0) != 0x80; }));
}

void print_result_text(const QueryResult& result) {
  const size_t columns = result.columns.size();
  std::vector<std::vector<std::string>> lines{result.columns};
  for (const auto& row : result.rows) {
    std::vector<std::string>& line = lines.emplace_back();
    for (const Cell& cell : row) line.push_back(to_text(cell));
  }
  std::vector<size_t> width(columns, 0);
  std::vector<char> numeric(columns, 1);
  for (size_t c = 0; c < columns; ++c) {
    for (const auto& line : lines) width[c] = std::max(width[c], width_of(line[c]));
    for (const auto& row : result.rows) numeric[c] &= !std::holds_alternative<std::string>(row[c]);
  }
  for (const auto& line : lines) {
    std::string text;
    for (size_t c = 0; c < columns; ++c) {
      const std::string pad(width[c] - width_of(line[c]), ' ');
      text += (c ? "  " : "") + (numeric[c] ? pad + line[c] : line[c] + pad);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    print(text + "\n");
  }
}

Result<int> run(const Arguments& args) {
  if (args.positionals.size() != 2)
    return usage_error(
        "query: name a trace and a statement, for example ringscope query demo.db \"SELECT * FROM train_step\"");
  auto store = open_trace(args.positionals[0]);
  if (!store) return tl::unexpected(store.error());
  auto result = store->query(args.positionals[1]);
  if (!result) return tl::unexpected(result.error());
  args.json() ? print_result_json(*result) : print_result_text(*result);
  if (!args.json()) say(fmt::format("{} row{}", result->rows.size(), result->rows.size() == 1 ? "" : "s"));
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
