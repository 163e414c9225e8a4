// The table of configuration fields: one row each for the JSON key, the flag, its help, and how to read and write
// the value. JSON, flags, help and to_json all come from it.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <span>

#include "runtime/config/job_config.h"

namespace ringscope {

struct Field {
  std::string_view key;         // JSON key, also the flag with dashes for underscores
  std::string_view short_form;  // "tp"; empty = none
  std::string_view value;       // shown in help; "" = switch
  std::string_view help;
  bool is_size = false;         // a parallel size: naming one resets the others to 1
  std::function<Status(JobConfig&, const std::string&)> set;   // from text
  std::function<nlohmann::json(const JobConfig&)> get;
};
std::span<const Field> fields();

// Keys of the source article and other spellings -> our key. Values may need translation (use_ring_attention).
struct Synonym {
  std::string_view key, field;
};
std::span<const Synonym> synonyms();

}  // namespace ringscope
