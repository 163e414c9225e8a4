// The table of configuration keys: one row serves the JSON key, the flag of the same name (dashes for
// underscores), the help text and the way back to JSON.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job_config.h"

namespace ringscope::config {

// kSeed: integer or null; kList: array of integers; kTexts: array of texts, each set by itself
enum class Kind { kInteger, kReal, kBool, kText, kSeed, kList, kTexts };

struct Key {
  std::string_view name;        // "seq_length"
  std::string flag;             // "seq-length"; a switch that turns something off has its own: "no-overlap"
  std::string_view short_form;  // "tp"
  std::string value;            // "N"; "" = switch
  std::string_view help, group;
  Kind kind = Kind::kText;
  std::function<Status(JobConfig&, std::string_view text)> set;
  std::function<nlohmann::ordered_json(const JobConfig&)> get;
  bool negated = false;  // the flag alone writes false
};

const std::vector<Key>& keys();
int index_of(std::string_view name);  // -1 = unknown

// Fills in what follows from the keys that were written (job_config.h, apply_json).
void settle(JobConfig&);

}  // namespace ringscope::config
