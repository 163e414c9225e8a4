// ringscope diagnose PATH...: what went wrong, from our trace or from foreign files.
#include <fmt/format.h>

#include "tools/analyze/analyze.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/report_output.h"
#include "tools/cli/trace_input.h"
#include "tools/report/report.h"

namespace ringscope::cli {
namespace {

Result<Report> diagnose(const std::vector<std::string>& paths) {
  SlowPhase phase(fmt::format("reading {}", paths.size() == 1 ? paths[0] : fmt::format("{} sources", paths.size())),
                  false);
  auto view = load_trace(paths);
  if (!view) return tl::unexpected(view.error());
  return analyze(*view);
}

Result<int> run(const Arguments& args) {
  const auto least = fail_on(args);
  if (!least) return tl::unexpected(least.error());
  if (args.positionals.empty()) return usage_error("diagnose: name a trace, for example ringscope diagnose demo.db");
  auto report = diagnose(args.positionals);
  if (!report) {
    if (args.json() && report.error().kind == ErrorKind::kData)
      print(to_json(unreadable_report(args.positionals, report.error().message), kVersion) + "\n");
    return tl::unexpected(report.error());
  }
  print(args.json() ? to_json(*report, kVersion) + "\n" : to_text(*report));
  if (!args.json() && !report->findings.empty())
    say(fmt::format("next: ringscope playbook {}", report->findings[0].id));
  return report_exit_code(*report, *least);
}

}  // namespace

const Command& diagnose_command() {
  static const Command command{
      "diagnose",
      "name what went wrong: which rank, which group, which operation, why, what to do",
      "PATH... [flags]",
      {"ringscope diagnose demo.db", "ringscope diagnose --json demo.db > verdict.json",
       "ringscope diagnose demo.db.spool      # what a killed or running job left"},
      {fail_on_option()},
      -1,
      run,
      "A path is a trace database or a spool folder. A spool that a killed run left beside DB is recovered into DB\n"
      "first; a complete DB is only read. Exit codes: 0 clean, 1 findings, 3 unreadable, 4 undecided."};
  return command;
}

}  // namespace ringscope::cli
