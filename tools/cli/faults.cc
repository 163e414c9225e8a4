// ringscope faults: the bugs that train can plant.
#include <fmt/format.h>

#include "runtime/fault/fault.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace ringscope::cli {
namespace {

using nlohmann::ordered_json;

ordered_json words(std::string_view list) {
  ordered_json out = ordered_json::array();
  for (size_t begin = 0; begin < list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    out.push_back(std::string(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return out;
}

ordered_json as_json(const FaultRow& row) {
  return {{"name", row.name},        {"what", row.what},   {"finding", row.finding},  {"implied", words(row.implied)},
          {"outcome", row.outcome},  {"ranks", row.ranks}, {"keys", words(row.keys)}, {"layout", row.layout},
          {"imitates", row.imitates}};
}

std::string as_text(const FaultRow& row) {
  std::string text =
      fmt::format("{}\n  {}\n  finding: {}", row.name, row.what, row.finding.empty() ? "none" : row.finding);
  if (!row.implied.empty()) text += fmt::format(" (and, following from it, {})", row.implied);
  return text + fmt::format("; outcome: {}\n  accused: {}\n  keys: {}; layout: {}\n  imitates: {}\n\n", row.outcome,
                            row.ranks, row.keys, row.layout, row.imitates);
}

Result<int> run(const Arguments& args) {
  if (args.json()) {
    ordered_json rows = ordered_json::array();
    for (const FaultRow& row : fault_rows()) rows.push_back(as_json(row));
    print_json({{"schema", "ringscope.faults/1"}, {"faults", rows}});
    return kExitClean;
  }
  for (const FaultRow& row : fault_rows()) print(as_text(row));
  say("next: ringscope train --fault NAME[:key=value,...]");
  return kExitClean;
}

}  // namespace

const Command& faults_command() {
  static const Command command{
      "faults",
      "list the bugs that train can plant, and the finding each must give",
      "",
      {"ringscope faults", "ringscope faults --json", "ringscope train --fault ring-early-exit:rank=2,step=3"},
      {},
      0,
      run};
  return command;
}

}  // namespace ringscope::cli
