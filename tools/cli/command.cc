#include "tools/cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tools/cli/internal_error.h"
#include "tools/cli/output.h"
#include "tracedb/base/nearest.h"

namespace ringscope::cli {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kUsage: return kExitUsage;
    case ErrorKind::kData: return kExitData;
    case ErrorKind::kUndecided: return kExitUndecided;
    case ErrorKind::kInternal: return kExitInternal;
  }
  return kExitInternal;
}

std::span<const Command* const> commands() {
  static const std::vector<const Command*> all = {&train_command(),    &eval_command(),  &diagnose_command(),
                                                  &info_command(),     &query_command(), &faults_command(),
                                                  &playbook_command(), &help_command()};
  return all;
}

const Command* find_command(std::string_view name) {
  for (const Command* command : commands())
    if (command->name == name) return command;
  return nullptr;
}

Error unknown_command(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Command* command : commands()) names.push_back(command->name);
  std::error_code error;
  if (std::filesystem::exists(std::filesystem::path(name), error))
    return {ErrorKind::kUsage, fmt::format("'{}' is no verb; did you mean 'ringscope diagnose {}'?", name, name)};
  return {ErrorKind::kUsage,
          fmt::format("unknown verb '{}'{} (ringscope help lists them)", name, did_you_mean(name, names))};
}

namespace {

std::string option_line(const Option& option) {
  std::string left = "  --" + std::string(option.name);
  if (!option.short_form.empty())
    left += (option.short_form.size() == 1 ? ", -" : ", --") + std::string(option.short_form);
  if (!option.value.empty()) left += " " + std::string(option.value);
  constexpr size_t kColumn = 38;
  if (option.help.empty()) return left + "\n";
  if (left.size() + 2 > kColumn) return left + "\n" + std::string(kColumn, ' ') + std::string(option.help) + "\n";
  return left + std::string(kColumn - left.size(), ' ') + std::string(option.help) + "\n";
}

}  // namespace

std::string help_text(const Command& command) {
  std::string text = fmt::format("ringscope {} {}\n{}\n\nExamples:\n", command.name, command.usage, command.summary);
  for (std::string_view example : command.examples) text += fmt::format("  {}\n", example);
  std::vector<std::string_view> groups{""};
  for (const Option& option : command.options)
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  for (std::string_view group : groups) {
    text += fmt::format("\n{}:\n", group.empty() ? "Options" : group);
    for (const Option& option : command.options)
      if (option.group == group) text += option_line(option);
    if (group.empty())
      for (const Option& option :
           {Option{"json", "", "one JSON document on stdout"}, Option{"help", "", "this text", "h"}})
        text += option_line(option);
  }
  if (!command.notes.empty()) text += fmt::format("\n{}\n", command.notes);
  return text;
}

std::string overview_text() {
  std::string text =
      fmt::format("ringscope {}: run, record and explain sequence-parallel LLM jobs\n\nVerbs:\n", kVersion);
  for (const Command* command : commands()) text += fmt::format("  {:<10} {}\n", command->name, command->summary);
  return text +
         "\nStart here:\n"
         "  ringscope train --trace demo.db          train a small job on eight ranks, and record it\n"
         "  ringscope diagnose demo.db               what went wrong in it, if anything\n"
         "  ringscope train --fault ring-early-exit  plant a bug and see it named\n"
         "\nringscope VERB --help tells more. Exit codes: 0 nothing found, 1 findings or a stalled run, 2 wrong "
         "usage,\n"
         "3 unreadable or unwritable files, 4 cannot decide or evidence is missing, 5 a bug of ringscope, 130 "
         "interrupted.\n";
}

namespace {

// Flags behind "--" are words.
bool has_flag(const std::vector<std::string>& args, std::initializer_list<std::string_view> names) {
  const auto end = std::find(args.begin(), args.end(), "--");
  return std::find_first_of(args.begin(), end, names.begin(), names.end()) != end;
}

int fail(const Error& error, std::string_view verb, bool json) {
  if (json) print_json(error_json(error, verb));
  print_error(error);
  return exit_code(error.kind);
}

int run_verb(const Command& command, const std::vector<std::string>& args) {
  if (has_flag(args, {"--help", "-h"})) {
    print(help_text(command));
    return kExitClean;
  }
  const bool json = has_flag(args, {"--json"});
  auto arguments = parse_arguments(command.options, command.positionals, args);
  if (!arguments) {
    Error error = arguments.error();
    error.message = fmt::format("{}: {} (ringscope {} --help)", command.name, error.message, command.name);
    return fail(error, command.name, json);
  }
  try {
    auto code = command.run(*arguments);
    return code ? *code : fail(code.error(), command.name, json);
  } catch (const std::bad_alloc&) {
    return fail({ErrorKind::kData, "out of memory"}, command.name, json);
  } catch (const std::exception& error) {
    if (json) print_json(error_json({ErrorKind::kInternal, error.what()}, command.name));
    (void)flush_output();
    report_internal_error(error.what());
  }
}

}  // namespace

int run_command_line(const std::vector<std::string>& args) {
  if (args.empty()) {
    say(overview_text());
    return kExitUsage;
  }
  if (args[0] == "--version" || args[0] == "-V") {
    print(fmt::format("ringscope {}\n", kVersion));
    return kExitClean;
  }
  const std::string name = args[0] == "--help" || args[0] == "-h" ? "help" : args[0];
  const std::vector<std::string> rest{args.begin() + 1, args.end()};
  const Command* command = find_command(name);
  if (!command) return fail(unknown_command(name), "", has_flag(rest, {"--json"}));
  return run_verb(*command, rest);
}

}  // namespace ringscope::cli
