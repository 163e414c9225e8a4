// ringscope playbook [ID]: the page of a finding, or the index by symptom.
#include <fmt/format.h>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/report/playbook.h"
#include "tracedb/base/nearest.h"

namespace ringscope::cli {
namespace {

Result<int> run(const Arguments& args) {
  const std::string id = args.positionals.empty() ? "index" : args.positionals[0];
  const auto page = playbook_page(id);
  if (!page) {
    std::vector<std::string_view> known;
    for (const PlaybookPage& p : playbook_pages()) known.push_back(p.id);
    return usage_error(
        fmt::format("no playbook page '{}'{} (ringscope playbook shows the index)", id, did_you_mean(id, known)));
  }
  if (args.json()) {
    print_json({{"schema", "ringscope.playbook/1"}, {"id", id}, {"text", std::string(*page)}});
  } else {
    print(*page);
  }
  return kExitClean;
}

}  // namespace

const Command& playbook_command() {
  static const Command command{"playbook", "the page of a finding: symptom, cause, proof, fix",
                               "[ID]",     {"ringscope playbook", "ringscope playbook hang.ring_break"},
                               {},         1,
                               run};
  return command;
}

}  // namespace ringscope::cli
