// ringscope help [VERB]
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace ringscope::cli {
namespace {

Result<int> run(const Arguments& args) {
  if (args.json()) {
    nlohmann::ordered_json verbs = nlohmann::ordered_json::array();
    for (const Command* command : commands())
      verbs.push_back({{"name", command->name}, {"summary", command->summary}, {"usage", command->usage}});
    print_json({{"schema", "ringscope.help/1"}, {"version", kVersion}, {"verbs", verbs}});
    return kExitClean;
  }
  if (args.positionals.empty()) {
    print(overview_text());
    return kExitClean;
  }
  const Command* command = find_command(args.positionals[0]);
  if (!command) return tl::unexpected(unknown_command(args.positionals[0]));
  print(help_text(*command));
  return kExitClean;
}

}  // namespace

const Command& help_command() {
  static const Command command{"help",   "list the verbs, or show one verb's flags and examples",
                               "[VERB]", {"ringscope help", "ringscope help train"},
                               {},       1,
                               run};
  return command;
}

}  // namespace ringscope::cli
