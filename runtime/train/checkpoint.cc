#include "runtime/train/checkpoint.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/model/names.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope {
namespace {

using Json = nlohmann::json;
using Shapes = std::map<std::string, std::vector<int64_t>>;

Result<Json> read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file)
    return data_error("cannot open '" + path + "': " + std::strerror(errno) +
                      "; a checkpoint is a directory with config.json and model.safetensors");
  Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded() || !json.is_object()) return data_error("'" + path + "' is not a JSON object");
  return json;
}

// Typed lookups that name the key on a wrong type.
class Keys {
 public:
  Keys(const Json& json, std::string path) : json_(json), path_(std::move(path)) {}

  template <class T>
  T get(const char* key, T otherwise) {
    const auto found = json_.find(key);
    if (found == json_.end() || found->is_null()) return otherwise;
    const bool right = std::is_same_v<T, std::string> ? found->is_string()
                       : std::is_same_v<T, bool>      ? found->is_boolean()
                       : std::is_integral_v<T>        ? found->is_number_integer()
                                                      : found->is_number();
    if (!right) {
      error_ = "'" + path_ + "': '" + key + "' has the wrong type";
      return otherwise;
    }
    return found->get<T>();
  }
  int size(const char* key) {
    const int64_t value = get<int64_t>(key, 0);
    if (value < 1 || value > (1 << 24)) error_ = "'" + path_ + "': '" + key + "' is missing or out of range";
    return int(value);
  }
  const std::string& error() const { return error_; }

 private:
  const Json& json_;
  std::string path_, error_;
};

ModelConfig read_gpt2(Keys& keys) {
  ModelConfig m;
  m.arch = Arch::kGpt;
  m.num_layers = keys.size("n_layer");
  m.hidden_size = keys.size("n_embd");
  m.num_attention_heads = m.num_query_groups = keys.size("n_head");
  m.ffn_hidden_size = keys.get<int>("n_inner", 4 * m.hidden_size);
  m.max_position_embeddings = keys.size("n_positions");
  m.vocab_size = keys.size("vocab_size");
  m.norm_epsilon = keys.get<double>("layer_norm_epsilon", 1e-5);
  m.tie_embeddings = keys.get<bool>("tie_word_embeddings", true);
  m.linear_bias = true;
  return m;
}

ModelConfig read_llama(const Json& json, Keys& keys) {
  ModelConfig m;
  m.arch = Arch::kLlama;
  m.num_layers = keys.size("num_hidden_layers");
  m.hidden_size = keys.size("hidden_size");
  m.num_attention_heads = keys.size("num_attention_heads");
  m.num_query_groups = keys.get<int>("num_key_value_heads", m.num_attention_heads);
  m.head_dim = keys.get<int>("head_dim", 0);
  m.ffn_hidden_size = keys.size("intermediate_size");
  m.max_position_embeddings = keys.size("max_position_embeddings");
  m.vocab_size = keys.size("vocab_size");
  m.norm_epsilon = keys.get<double>("rms_norm_eps", 1e-6);
  m.tie_embeddings = keys.get<bool>("tie_word_embeddings", false);
  m.rope_theta = keys.get<double>("rope_theta", 10000.0);
  if (const auto rope = json.find("rope_parameters"); rope != json.end() && rope->is_object())
    m.rope_theta = Keys(*rope, "rope_parameters").get<double>("rope_theta", m.rope_theta);
  return m;
}

// What the model would need beyond this version, by name; empty = nothing.
std::string unsupported(const Json& json, Keys& keys, const std::string& type) {
  if (type != "gpt2" && type != "llama") return "model_type '" + type + "'";
  if (type == "gpt2") {
    const std::string activation = keys.get<std::string>("activation_function", "gelu_new");
    if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
      return "activation_function '" + activation + "'";
    if (keys.get<bool>("scale_attn_by_inverse_layer_idx", false)) return "scale_attn_by_inverse_layer_idx";
    return "";
  }
  if (keys.get<bool>("attention_bias", false)) return "attention_bias";
  if (keys.get<bool>("mlp_bias", false)) return "mlp_bias";
  if (const std::string act = keys.get<std::string>("hidden_act", "silu"); act != "silu")
    return "hidden_act '" + act + "'";
  for (const char* key : {"rope_parameters", "rope_scaling"})
    if (const auto rope = json.find(key); rope != json.end() && rope->is_object()) {
      Keys inner(*rope, key);
      const std::string kind = inner.get<std::string>("rope_type", inner.get<std::string>("type", "default"));
      if (kind != "default") return "rope_type '" + kind + "'";
    }
  return "";
}

Shapes expected_shapes(const ModelConfig& m) {
  Shapes shapes;
  const int64_t h = m.hidden_size;
  const auto linear = [&](const LinearPart& part) {
    shapes[part.weight] = part.full_shape;
    if (!part.bias.empty()) shapes[part.bias] = {part.bias_size};
  };
  const auto norm = [&](const std::string& name) {
    shapes[name + ".weight"] = {h};
    if (m.arch == Arch::kGpt) shapes[name + ".bias"] = {h};
  };
  for (int layer = 0; layer < m.num_layers; ++layer) {
    const LayerNames names = layer_names(m, layer);
    norm(names.norm1);
    norm(names.norm2);
    for (const LinearPart& part : names.qkv) linear(part);
    for (const LinearPart& part : names.up) linear(part);
    linear(names.out);
    linear(names.down);
  }
  const ModelNames names = model_names(m);
  norm(names.final_norm);
  shapes[names.embedding] = {m.vocab_size, h};
  shapes[names.head] = {m.vocab_size, h};
  if (!names.position.empty()) shapes[names.position] = {m.max_position_embeddings, h};
  return shapes;
}

std::string shape_text(const std::vector<int64_t>& shape) { return Json(shape).dump(); }

Status check_tensors(const FileTensors& have, const Shapes& want, const std::string& path) {
  for (const auto& [name, shape] : want) {
    const auto found = have.find(name);
    if (found == have.end())
      return data_error("'" + path + "' has no tensor '" + name + "', which config.json calls for");
    if (found->second.shape != shape)
      return data_error("'" + path + "': tensor '" + name + "' has shape " + shape_text(found->second.shape) +
                        ", config.json calls for " + shape_text(shape));
    if (found->second.real.empty() && !found->second.integer.empty())
      return data_error("'" + path + "': tensor '" + name + "' holds integers");
  }
  for (const auto& [name, tensor] : have)
    if (!want.contains(name))
      return data_error("'" + path + "' has an extra tensor '" + name + "' that the model of config.json does not use");
  return {};
}

// Older GPT-2 files lack the "transformer." prefix and carry mask buffers; a tied head may be stored twice.
void normalise_names(FileTensors& tensors, const ModelConfig& m) {
  FileTensors renamed;
  for (auto& [name, tensor] : tensors) {
    std::string key = name;
    if (m.arch == Arch::kGpt) {
      if (key.ends_with(".attn.bias") || key.ends_with(".attn.masked_bias")) continue;
      if (!key.starts_with("transformer.") && key != "lm_head.weight") key = "transformer." + key;
    } else if (key.ends_with(".rotary_emb.inv_freq")) {
      continue;
    }
    if (m.tie_embeddings && key == "lm_head.weight") continue;
    renamed[key] = std::move(tensor);
  }
  tensors = std::move(renamed);
}

}  // namespace

Result<Checkpoint> read_checkpoint(const std::string& directory) {
  const std::string config_path = directory + "/config.json";
  auto json = read_json(config_path);
  if (!json) return tl::unexpected(json.error());
  Keys keys(*json, config_path);
  const std::string type = keys.get<std::string>("model_type", "");
  if (const std::string what = unsupported(*json, keys, type); !what.empty())
    return usage_error("the checkpoint '" + directory + "' needs " + what +
                       ", which this version cannot compute; it runs GPT-2 (gelu_new) and Llama (rope_type default)");
  Checkpoint out;
  out.model = type == "gpt2" ? read_gpt2(keys) : read_llama(*json, keys);
  if (!keys.error().empty()) return data_error(keys.error());

  const std::string weights = directory + "/model.safetensors";
  auto file = read_safetensors(weights);
  if (!file) return tl::unexpected(file.error());
  normalise_names(*file, out.model);
  if (auto status = check_tensors(*file, expected_shapes(out.model), weights); !status)
    return tl::unexpected(status.error());
  for (auto& [name, tensor] : *file) out.tensors[name] = {tensor.shape, std::move(tensor.real)};
  return out;
}

}  // namespace ringscope
