#include "tools/cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/program_options.hpp>

#include "runtime/config/job_config.h"
#include "tracedb/base/nearest.h"

namespace ringscope::cli {
namespace {

namespace po = boost::program_options;

constexpr Option kJson{"json", "", "one JSON document on stdout"};
constexpr Option kHelp{"help", "", "this text", "h"};

std::vector<Option> with_common(const std::vector<Option>& options) {
  std::vector<Option> all = options;
  all.push_back(kJson);
  all.push_back(kHelp);
  return all;
}

void declare(po::options_description& description, const std::string& name, bool has_value) {
  if (has_value) description.add_options()(name.c_str(), po::value<std::string>(), "");
  else description.add_options()(name.c_str(), "");
}

// A short form of one letter belongs to its long name; a longer one is a long option of its own.
po::options_description describe(const std::vector<Option>& options) {
  po::options_description description;
  for (const Option& option : options) {
    std::string name(option.name);
    if (option.short_form.size() == 1) name += fmt::format(",{}", option.short_form);
    declare(description, name, !option.value.empty());
    if (option.short_form.size() > 1) declare(description, std::string(option.short_form), !option.value.empty());
  }
  return description;
}

const Option* find_option(const std::vector<Option>& options, std::string_view name) {
  for (const Option& option : options)
    if (option.name == name || (!option.short_form.empty() && option.short_form == name)) return &option;
  return nullptr;
}

Error unknown_flag(const std::vector<Option>& options, std::string name) {
  name.erase(0, name.find_first_not_of('-'));
  std::vector<std::string_view> known;
  for (const Option& option : options) known.push_back(option.name);
  const std::string_view near = nearest_word(name, known);
  return {ErrorKind::kUsage, fmt::format("unknown flag {}{}{}", name.size() > 1 ? "--" : "-", name,
                                         near.empty() ? "" : fmt::format("; did you mean --{}?", near))};
}

Result<po::parsed_options> parse(const std::vector<Option>& options, const std::vector<std::string>& args) {
  const po::options_description description = describe(options);
  po::positional_options_description words;
  words.add("word", -1);  // a name, or Boost takes none: told apart below by position_key
  namespace style = po::command_line_style;
  try {
    return po::command_line_parser(args)
        .options(description)
        .positional(words)
        .style(style::unix_style & ~style::allow_guessing)
        .run();
  } catch (const po::unknown_option& error) {
    return tl::unexpected(unknown_flag(options, error.get_option_name()));
  } catch (const po::error_with_option_name& error) {
    const std::string name = error.get_option_name();
    const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
    const Option* option = find_option(options, bare);
    if (option && !option->value.empty())
      return usage_error(fmt::format("{} needs a value: {} {}", name, name, option->value));
    if (option) return usage_error(fmt::format("{} is a switch and takes no value", name));
    return usage_error(error.what());
  } catch (const po::error& error) {
    return usage_error(error.what());
  }
}

}  // namespace

std::optional<std::string> Arguments::find(std::string_view name) const {
  for (const auto& [flag, value] : flags)
    if (flag == name) return value;
  return std::nullopt;
}

Result<Arguments> parse_arguments(const std::vector<Option>& declared, int positionals,
                                  const std::vector<std::string>& args) {
  const std::vector<Option> options = with_common(declared);
  auto parsed = parse(options, args);
  if (!parsed) return tl::unexpected(parsed.error());
  Arguments out;
  for (const po::option& given : parsed->options) {
    if (given.position_key >= 0 || given.string_key.empty()) {
      out.positionals.insert(out.positionals.end(), given.value.begin(), given.value.end());
      continue;
    }
    const Option* option = find_option(options, given.string_key);
    if (!option) return tl::unexpected(unknown_flag(options, given.string_key));
    if (out.has(option->name) && !option->repeatable)
      return usage_error(fmt::format("--{} is given twice", option->name));
    out.flags.emplace_back(option->name, given.value.empty() ? "" : given.value[0]);
  }
  if (positionals >= 0 && int(out.positionals.size()) > positionals)
    return usage_error(fmt::format("'{}' is one word too many", out.positionals[size_t(positionals)]));
  return out;
}

std::vector<Option> config_options(const std::vector<std::string_view>& groups) {
  std::vector<Option> out;
  for (const FlagRow& row : config_flags())
    if (groups.empty() || std::find(groups.begin(), groups.end(), row.group) != groups.end())
      out.push_back({row.name, row.value, row.help, row.short_form, row.group, true, row.repeatable});
  return out;
}

}  // namespace ringscope::cli
