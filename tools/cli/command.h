// A verb of the command line, and the registry of all of them. Each verb is one file that defines its Command.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/options.h"

namespace ringscope::cli {

// The exit codes of every verb (ARCHITECTURE.md, "Exit codes").
enum ExitCode : int {
  kExitClean = 0,
  kExitFindings = 1,
  kExitUsage = 2,
  kExitData = 3,
  kExitUndecided = 4,
  kExitInternal = 5,
  kExitInterrupted = 130,
};
int exit_code(ErrorKind kind);

struct Command {
  std::string_view name;                   // "train"
  std::string_view summary;                // one line for `help`
  std::string_view usage;                  // "[CONFIG] [flags]"
  std::vector<std::string_view> examples;  // whole command lines, shown first in --help
  std::vector<Option> options;
  int positionals = 0;  // most that it takes; -1 = any number
  // Prints its result on stdout. An error becomes one line on stderr and the exit code of its kind.
  Result<int> (*run)(const Arguments&) = nullptr;
  std::string_view notes;  // behind the options in --help
};

std::span<const Command* const> commands();  // in the order of `help`
const Command* find_command(std::string_view name);
Error unknown_command(std::string_view name);

// What `ringscope VERB --help` prints.
std::string help_text(const Command&);
// What `ringscope help` prints.
std::string overview_text();

// args without the program's name. Never throws; prints what has to be printed.
int run_command_line(const std::vector<std::string>& args);

const Command& train_command();
const Command& eval_command();
const Command& diagnose_command();
const Command& info_command();
const Command& query_command();
const Command& faults_command();
const Command& playbook_command();
const Command& help_command();

}  // namespace ringscope::cli
