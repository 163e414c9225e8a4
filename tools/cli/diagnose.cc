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

// One report a job. A job that cannot be loaded is a report of its own: others may have findings.
Result<std::vector<Report>> diagnose(const std::vector<std::string>& paths) {
  SlowPhase phase(fmt::format("reading {}", paths.size() == 1 ? paths[0] : fmt::format("{} sources", paths.size())),
                  false);
  auto found = find_jobs(paths);
  if (!found) return tl::unexpected(found.error());
  std::vector<Report> reports;
  for (size_t job = 0; job < found->jobs.size(); ++job) {
    auto view = load_job(*found, job);
    reports.push_back(view ? analyze(*view) : unreadable_report(found->jobs[job].sources, view.error().message));
  }
  return reports;
}

void say_next(const std::vector<Report>& reports) {
  for (const Report& report : reports)
    if (!report.findings.empty()) return say(fmt::format("next: ringscope playbook {}", report.findings[0].id));
}

Result<int> run(const Arguments& args) {
  const auto least = fail_on(args);
  if (!least) return tl::unexpected(least.error());
  if (args.positionals.empty()) return usage_error("diagnose: name a trace, for example ringscope diagnose demo.db");
  auto reports = diagnose(args.positionals);
  if (!reports && (!args.json() || reports.error().kind != ErrorKind::kData)) return tl::unexpected(reports.error());
  if (!reports) reports = std::vector<Report>{unreadable_report(args.positionals, reports.error().message)};
  const bool unreadable = worst_verdict(*reports) == Verdict::kUnreadable;
  if (args.json()) print(to_json(*reports, kVersion) + "\n");
  else if (!unreadable) print(to_text(*reports));
  if (unreadable)
    for (const Report& report : *reports) print_error(unreadable_error(report));
  if (!args.json()) say_next(*reports);
  return report_exit_code(*reports, *least);
}

}  // namespace

const Command& diagnose_command() {
  static const Command command{
      "diagnose",
      "name what went wrong: which rank, which group, which operation, why, what to do",
      "PATH... [flags]",
      {"ringscope diagnose demo.db", "ringscope diagnose --json demo.db > verdict.json",
       "ringscope diagnose demo.db.spool      # what a killed or running job left",
       "ringscope diagnose runs/              # every trace in a folder, a report for each job"},
      {fail_on_option()},
      -1,
      run,
      "A path is a trace database, a spool folder, or a folder of them, to any depth. A spool that a killed run left\n"
      "beside DB is recovered into DB first; a complete DB is only read. Sources of one job give one report; several\n"
      "jobs give one each, and with --json one document: \"verdict\" is the worst, \"reports\" holds them all.\n"
      "Files that are no traces are listed. Exit codes: 0 clean, 1 findings, 3 nothing could be read, 4 undecided, or\n"
      "nothing found and evidence is missing (the end of the run, a rank, records, a file that was not recognised)."};
  return command;
}

}  // namespace ringscope::cli
