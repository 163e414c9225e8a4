// ringscope faults: the bugs that train can plant.
#include <fmt/format.h>

#include "runtime/fault/fault.h"
#include "tools/cli/campaign.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tracedb/base/nearest.h"

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
  if (!args.positionals.empty()) {
    if (args.positionals[0] == "campaign") return run_campaign_verb(args);
    constexpr std::string_view kKnown[] = {"campaign"};
    return usage_error(
        fmt::format("'{}' is nothing that faults does{}; alone it lists the faults, 'faults campaign' "
                    "plants mutations",
                    args.positionals[0], did_you_mean(args.positionals[0], kKnown)));
  }
  for (const auto& [flag, value] : args.flags)
    if (flag != "json")
      return usage_error(fmt::format("--{} goes with a campaign: ringscope faults campaign --{}{}{}", flag, flag,
                                     value.empty() ? "" : " ", value));
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
      "list the bugs that train can plant; plant thousands nobody chose, and score the verdicts",
      "[campaign [flags]]",
      {"ringscope faults", "ringscope faults --json", "ringscope train --fault ring-early-exit:rank=2,step=3",
       "ringscope faults campaign --seed 7 --count 300",
       "ringscope faults campaign --count 50 --cp 4 --arch gpt --json", "ringscope faults campaign --table"},
      campaign_options(),
      1,
      run,
      "faults campaign draws single mutations (train --mutate, train --sites) over random layouts, every operation\n"
      "equally often, runs each beside its twin without it, and judges the verdicts by a table of its own. Flags of\n"
      "layout and model are fixed for all its jobs; what is not given is drawn. Every row has the command that "
      "repeats\n"
      "it. Verdicts: right, partly (kind or ranks), careful (undecided, incomplete, unexplained), missed (clean), "
      "wrong\n"
      "(somebody else accused), false_alarm, silent (nothing recorded can show it). Exit codes: 0 nobody accused\n"
      "wrongly and no false alarm, 1 otherwise, 2 wrong usage, 5 an error of the campaign itself, 130 interrupted\n"
      "(what there is so far is printed)."};
  return command;
}

}  // namespace ringscope::cli
