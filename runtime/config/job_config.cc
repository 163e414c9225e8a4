#include "runtime/config/job_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/config/keys.h"
#include "tracedb/base/nearest.h"

namespace ringscope {
namespace {

using config::Key;
using config::Kind;
using nlohmann::json;

Status write(JobConfig& config, int index, std::string_view text) {
  if (auto status = config::keys()[size_t(index)].set(config, text); !status) return status;
  config.named |= uint64_t(1) << index;
  config::settle(config);
  return {};
}

// A JSON value as a person would type it, when its type is the key's.
std::optional<std::string> typed(const json& value, Kind kind) {
  const auto whole = [](const json& v) { return v.is_number_integer() || v.is_number_unsigned(); };
  switch (kind) {
    case Kind::kInteger: return whole(value) ? std::optional(value.dump()) : std::nullopt;
    case Kind::kSeed: return whole(value) || value.is_null() ? std::optional(value.dump()) : std::nullopt;
    case Kind::kReal: return value.is_number() ? std::optional(value.dump()) : std::nullopt;
    case Kind::kBool: return value.is_boolean() ? std::optional(value.dump()) : std::nullopt;
    case Kind::kText: return value.is_string() ? std::optional(value.get<std::string>()) : std::nullopt;
    case Kind::kTexts:
    case Kind::kList: break;
  }
  if (!value.is_array() || !std::all_of(value.begin(), value.end(), whole)) return std::nullopt;
  std::string list;
  for (const json& item : value) list += (list.empty() ? "" : ",") + item.dump();
  return list;
}

const char* wanted(Kind kind) {
  switch (kind) {
    case Kind::kInteger: return "a whole number";
    case Kind::kReal: return "a number";
    case Kind::kBool: return "true or false";
    case Kind::kSeed: return "a whole number or null";
    case Kind::kList: return "a list of whole numbers";
    default: return "a text";
  }
}

// The article's keys that are not ours: as the pair of ours that they mean.
constexpr std::string_view kRingAttention = "use_ring_attention";
constexpr std::string_view kRingOverlap = "ring_attention_comm_overlap";

Status apply_synonym(JobConfig& config, std::string_view key, const json& value) {
  if (!value.is_boolean()) return usage_error(fmt::format("{} needs true or false", key));
  if (key == kRingOverlap) return write(config, config::index_of("overlap"), value.dump());
  return write(config, config::index_of("cp_comm_type"), value.get<bool>() ? "p2p" : "all_gather");
}

// Texts of an array, each as a flag of its own.
Status write_texts(JobConfig& config, int index, const json& value) {
  const bool texts =
      value.is_array() && std::all_of(value.begin(), value.end(), [](const json& v) { return v.is_string(); });
  if (!texts)
    return usage_error(fmt::format("{} needs a list of texts, not {}", config::keys()[size_t(index)].name,
                                   value.dump().substr(0, 60)));
  for (const json& item : value)
    if (auto status = write(config, index, item.get<std::string>()); !status) return status;
  return {};
}

Status apply_key(JobConfig& config, const std::string& name, const json& value) {
  if (name == kRingAttention || name == kRingOverlap) return apply_synonym(config, name, value);
  const int index = config::index_of(name);
  if (index < 0) {
    std::vector<std::string_view> known{kRingAttention, kRingOverlap};
    for (const Key& key : config::keys()) known.push_back(key.name);
    return usage_error(fmt::format("unknown key '{}'{}", name, did_you_mean(name, known)));
  }
  const Kind kind = config::keys()[size_t(index)].kind;
  if (kind == Kind::kTexts) return write_texts(config, index, value);
  const std::optional<std::string> text = typed(value, kind);
  if (!text) return usage_error(fmt::format("{} needs {}, not {}", name, wanted(kind), value.dump().substr(0, 60)));
  return write(config, index, *text);
}

int line_of(std::string_view text, size_t byte) {
  return 1 + int(std::count(text.begin(), text.begin() + std::min(byte, text.size()), '\n'));
}

}  // namespace

Status apply_json(JobConfig& config, std::string_view text, std::string_view source) {
  // A key written twice would silently lose: the parser keeps the last.
  std::vector<std::string> seen;
  std::string doubled;
  const auto watch = [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) {
      const std::string key = parsed.get<std::string>();
      if (std::find(seen.begin(), seen.end(), key) != seen.end()) doubled = key;
      seen.push_back(key);
    }
    return true;
  };
  json document;
  try {
    document = json::parse(text.begin(), text.end(), watch);
  } catch (const json::parse_error& error) {
    return data_error(fmt::format("{}:{}: not valid JSON", source, line_of(text, error.byte)));
  } catch (const json::out_of_range&) {
    return data_error(fmt::format("{}: holds a number that is too large for any use", source));
  }
  if (!document.is_object()) return data_error(fmt::format("{}: the config must be one JSON object", source));
  if (!doubled.empty()) return usage_error(fmt::format("{}: key '{}' is written twice", source, doubled));
  for (const std::string& key : seen)  // in the order of the file
    if (auto status = apply_key(config, key, document[key]); !status)
      return tl::unexpected(Error{status.error().kind, fmt::format("{}: {}", source, status.error().message)});
  return {};
}

Status apply_flag(JobConfig& config, std::string_view name, std::string_view value) {
  const std::vector<Key>& table = config::keys();
  for (size_t i = 0; i < table.size(); ++i) {
    const Key& key = table[i];
    if (name != key.flag && (key.short_form.empty() || name != key.short_form)) continue;
    if (key.kind != Kind::kBool) {
      JobConfig changed = config;  // a refused flag leaves nothing behind
      if (auto status = write(changed, int(i), value); !status)
        return usage_error(fmt::format("--{}: {}", name, status.error().message));
      config = std::move(changed);
      return {};
    }
    if (!value.empty() && value != "true" && value != "false")
      return usage_error(fmt::format("--{} takes no value but true or false, not '{}'", name, value));
    return write(config, int(i), (value != "false") != key.negated ? "true" : "false");
  }
  std::vector<std::string_view> known;
  for (const Key& key : table) known.push_back(key.flag);
  return usage_error(fmt::format("unknown flag --{}{}", name, did_you_mean(name, known)));
}

bool is_named(const JobConfig& config, std::string_view key) {
  const int index = config::index_of(key);
  return index >= 0 && config.named >> index & 1;
}

bool any_size_named(const JobConfig& config) {
  for (const char* key :
       {"tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size", "data_parallel_size"})
    if (is_named(config, key)) return true;
  return false;
}

std::span<const FlagRow> config_flags() {
  static const std::vector<FlagRow> rows = [] {
    std::vector<FlagRow> out;
    for (const Key& key : config::keys())
      out.push_back({key.flag, key.short_form, key.value, key.help, key.group, key.kind == Kind::kTexts});
    return out;
  }();
  return rows;
}

namespace {

std::string as_text(const JobConfig& config, bool with_fault) {
  nlohmann::ordered_json out;
  for (const Key& key : config::keys())
    if (with_fault || (key.name != "fault" && key.name != "mutate")) out[std::string(key.name)] = key.get(config);
  return out.dump(2, ' ', false, json::error_handler_t::replace);
}

}  // namespace

std::string to_json(const JobConfig& config) { return as_text(config, true); }
std::string to_trace_json(const JobConfig& config) { return as_text(config, false); }

// Small enough for half a minute on two cores, wide enough that attention is work and the loss visibly falls.
JobConfig default_job() {
  JobConfig c;
  c.tp = c.cp = c.dp = 2;
  c.sequence_parallel = true;
  c.model.num_layers = 4;
  c.model.hidden_size = 128;
  c.model.num_attention_heads = 8;
  c.model.num_query_groups = 4;
  c.model.ffn_hidden_size = 256;
  c.seq_length = 256;
  c.global_batch_size = 4;
  c.train_iters = 30;
  c.lr = 6e-3;
  c.min_lr = 6e-4;
  return c;
}

}  // namespace ringscope
