// Flags of a verb: declared as rows, parsed strictly (no guessing of prefixes), errors as sentences.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tracedb/base/result.h"

namespace ringscope::cli {

struct Option {
  std::string_view name;   // long form without dashes
  std::string_view value;  // "FILE"; "" = a switch
  std::string_view help;
  std::string_view short_form;  // "o" is written -o, "tp" is written --tp; "" = none
  std::string_view group;       // heading in --help; "" = "Options"
  bool from_config = false;     // goes to apply_flag
  bool repeatable = false;
};

// --json and --help are known to every verb.
struct Arguments {
  std::vector<std::string> positionals;
  std::vector<std::pair<std::string, std::string>> flags;  // long name, value ("" for switches), as typed

  bool has(std::string_view name) const { return find(name).has_value(); }
  std::optional<std::string> find(std::string_view name) const;
  bool json() const { return has("json"); }
};

// kUsage: an unknown flag (with the nearest known one), a missing or surplus value, a flag given twice, more than
// `positionals` words (-1 = any number).
Result<Arguments> parse_arguments(const std::vector<Option>& options, int positionals,
                                  const std::vector<std::string>& args);

// The flags that fill a JobConfig, of the given groups (all when empty), as options.
std::vector<Option> config_options(const std::vector<std::string_view>& groups = {});

}  // namespace ringscope::cli
