#include "runtime/config/job_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "runtime/config/fields.h"
#include "tracedb/base/nearest.h"

namespace ringscope {
namespace {

using Json = nlohmann::json;

const Field* find_field(std::string_view key) {
  for (const Field& f : fields())
    if (f.key == key || (!f.short_form.empty() && f.short_form == key)) return &f;
  return nullptr;
}

std::string underscored(std::string_view flag) {
  std::string key(flag);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string did_you_mean_key(std::string_view key) {
  std::vector<std::string_view> known;
  for (const Field& f : fields()) known.push_back(f.key);
  for (const Synonym& s : synonyms()) known.push_back(s.key);
  return did_you_mean(key, known);
}

// The fault as the command line takes it, with the keys that it has.
std::string fault_text(const FaultPlan& plan) {
  for (const FaultRow& row : fault_rows())
    if (row.id == plan.id) {
      std::string text(row.name);
      char separator = ':';
      const auto add = [&](std::string_view key, int value, bool known) {
        if (!known || row.keys.find(key) == std::string_view::npos) return;
        text += separator + std::string(key) + "=" + std::to_string(value);
        separator = ',';
      };
      add("rank", plan.rank, true);
      add("layer", plan.layer, true);
      add("step", plan.step, true);
      add("ring_step", plan.ring_step, plan.ring_step >= 0);
      return text;
    }
  return "";
}

// JSON value -> the text a flag would carry.
Result<std::string> as_text(std::string_view key, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return std::string(value.get<bool>() ? "true" : "false");
  if (value.is_number() || value.is_array()) return value.dump();
  return usage_error(std::string(key) + " has a value of the wrong type: " + value.dump());
}

// As soon as one size is named, the sizes not named are 1 - also for flags after a config that named none.
void reset_sizes(JobConfig& c) {
  if (c.sizes_named) return;
  c.sizes_named = true;
  c.tp = c.cp = c.dp = c.pp = 1;
  c.sequence_parallel = c.sequence_parallel_named && c.sequence_parallel;
}

Status apply(JobConfig& c, const Field& f, const std::string& text) {
  if (f.is_size) reset_sizes(c);
  if (f.key == "sequence_parallel") c.sequence_parallel_named = true;
  return f.set(c, text);
}

// The article's switch: true = ring, false = all-gather.
Status apply_use_ring(JobConfig& c, const Json& value) {
  if (!value.is_boolean()) return usage_error("use_ring_attention must be true or false");
  c.cp_comm = value.get<bool>() ? CpComm::kP2p : CpComm::kAllGather;
  return {};
}

std::string multiples(int of, int near) {
  const int below = near / of * of;
  return below >= of ? std::to_string(below) + " or " + std::to_string(below + of) : std::to_string(of);
}

Status divides(std::string_view what, int value, std::string_view by, int parts, std::string_view flag) {
  if (value % parts == 0) return {};
  return usage_error(std::string(what) + " " + std::to_string(value) + " cannot be split over " + std::string(by) + " " +
                     std::to_string(parts) + ": use " + multiples(parts, value) + " (--" + std::string(flag) +
                     "), or another " + std::string(by));
}

Status validate_model(const JobConfig& c) {
  const ModelConfig& m = c.model;
  if (m.head_dim == 0)
    if (auto s = divides("hidden_size", m.hidden_size, "num_attention_heads", m.num_attention_heads, "hidden-size"); !s) return s;
  if (auto s = divides("num_attention_heads", m.num_attention_heads, "tensor_model_parallel_size", c.tp, "num-attention-heads"); !s) return s;
  if (m.arch == Arch::kGpt && m.num_query_groups != m.num_attention_heads)
    return usage_error("arch gpt has no grouped-query attention: set num_query_groups to " +
                       std::to_string(m.num_attention_heads) + ", or use arch llama");
  if (auto s = divides("num_attention_heads", m.num_attention_heads, "num_query_groups", m.num_query_groups, "num-attention-heads"); !s) return s;
  if (auto s = divides("num_query_groups", m.num_query_groups, "tensor_model_parallel_size", c.tp, "num-query-groups"); !s) return s;
  if (auto s = divides("ffn_hidden_size", m.ffn_hidden_size, "tensor_model_parallel_size", c.tp, "ffn-hidden-size"); !s) return s;
  const int dim = m.head_dim ? m.head_dim : m.hidden_size / m.num_attention_heads;
  if (m.arch == Arch::kLlama && dim % 2)
    return usage_error("head size " + std::to_string(dim) + " is odd, RoPE turns pairs: use hidden_size " +
                       std::to_string((dim + 1) * m.num_attention_heads));
  if (dim > 256) return usage_error("head size " + std::to_string(dim) + " is over 256: use more num_attention_heads");
  if (m.arch == Arch::kGpt && m.max_position_embeddings > 0 && c.seq_length > m.max_position_embeddings)
    return usage_error("seq_length " + std::to_string(c.seq_length) + " is longer than max_position_embeddings " +
                       std::to_string(m.max_position_embeddings) + ": use --seq-length " +
                       std::to_string(m.max_position_embeddings) + " or more positions");
  return {};
}

}  // namespace

Status apply_json(JobConfig& config, std::string_view json_text, std::string_view source) {
  const auto fail = [&](const Error& e) {
    return tl::unexpected(Error{e.kind, "'" + std::string(source) + "': " + e.message});
  };
  Json json;
  try {
    json = Json::parse(json_text);
  } catch (const Json::parse_error& e) {
    return data_error("'" + std::string(source) + "' is not JSON: " + e.what());
  }
  if (!json.is_object()) return data_error("'" + std::string(source) + "' must hold one JSON object with the job's keys");
  for (const auto& [key, value] : json.items()) {
    if (key == "use_ring_attention") {
      if (auto status = apply_use_ring(config, value); !status) return fail(status.error());
      continue;
    }
    if (key == "fault") {
      auto plan = parse_fault(value.is_string() ? value.get<std::string>() : value.dump());
      if (!plan) return fail(plan.error());
      config.fault = *plan;
      continue;
    }
    std::string_view name = key;
    for (const Synonym& s : synonyms())
      if (s.key == key) name = s.field;
    const Field* field = find_field(name);
    if (!field || field->short_form == key)
      return fail({ErrorKind::kUsage, "unknown key '" + key + "'" + did_you_mean_key(key)});
    if (value.is_null()) continue;
    auto text = as_text(key, value);
    if (!text) return fail(text.error());
    if (auto status = apply(config, *field, *text); !status) return fail(status.error());
  }
  return {};
}

Status apply_flag(JobConfig& config, std::string_view name, std::string_view value) {
  if (name == "no-overlap") {
    config.overlap = false;
    return {};
  }
  const Field* field = find_field(underscored(name));
  if (!field) return usage_error("unknown flag '--" + std::string(name) + "'" + did_you_mean_key(underscored(name)));
  return apply(config, *field, std::string(value));
}

std::span<const FlagRow> config_flags() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const Field& f : fields()) {
      std::string flag(f.key);
      std::replace(flag.begin(), flag.end(), '_', '-');
      out.push_back(flag);
    }
    return out;
  }();
  static const std::vector<FlagRow> rows = [] {
    std::vector<FlagRow> out;
    for (size_t i = 0; i < names.size(); ++i) {
      const Field& f = fields()[i];
      if (f.key == "overlap") continue;  // on by default: the flag is --no-overlap
      out.push_back({names[i], f.short_form, f.value, f.help});
    }
    out.push_back({"no-overlap", "", "", "move K/V on the compute stream"});
    return out;
  }();
  return rows;
}

std::string to_json(const JobConfig& config) {
  Json json = Json::object();
  for (const Field& f : fields())
    if (Json value = f.get(config); !value.is_null()) json[std::string(f.key)] = value;
  if (config.fault.id != FaultId::kNone) json["fault"] = fault_text(config.fault);
  return json.dump();
}

Status validate(const JobConfig& c) {
  if (c.pp != 1)
    return usage_error("pipeline_model_parallel_size " + std::to_string(c.pp) + " is not in this version: use --pp 1");
  if (c.sequence_parallel && c.tp == 1)
    return usage_error("sequence_parallel splits over the TP ranks: use --tp 2 or more, or leave it out");
  if (auto mesh = Mesh::make(c.tp, c.cp, c.dp, c.pp, c.order); !mesh) return tl::unexpected(mesh.error());
  if (auto status = validate_model(c); !status) return status;
  const int per_step = c.micro_batch_size * c.dp;
  if (c.global_batch_size % per_step)
    return usage_error("global_batch_size " + std::to_string(c.global_batch_size) +
                       " is not a multiple of micro_batch_size x data_parallel_size = " + std::to_string(per_step) +
                       ": use " + multiples(per_step, c.global_batch_size));
  if (c.attention_backend == AttentionBackend::kOracle && c.model.attention_dropout > 0)
    return usage_error("attention_backend oracle has no dropout: set attention_dropout to 0 or use flash");
  if (c.attention_backend == AttentionBackend::kOracle && c.cp > 1 && c.cp_comm == CpComm::kGlobalSoftmax)
    return usage_error("attention_backend oracle has no three-step softmax: use cp_comm_type p2p or all_gather");
  const FaultPlan& fault = c.fault;
  if (fault.id != FaultId::kNone && (fault.rank >= c.world() || fault.layer >= c.model.num_layers))
    return usage_error("fault " + fault_text(fault) + " names a rank or layer that this job does not have: it has " +
                       std::to_string(c.world()) + " ranks and " + std::to_string(c.model.num_layers) + " layers");
  return {};
}

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
