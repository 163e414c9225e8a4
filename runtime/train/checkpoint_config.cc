#include "runtime/train/checkpoint_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

namespace ringscope {
namespace {

using Json = nlohmann::json;
using Words = std::initializer_list<std::string_view>;

// ---- the keys that both families' configuration classes and their common base know ----------------------------------

// clang-format off
// Where they stand in the numbers: nowhere. Names, versions, tokens with a meaning, how text is generated, what a call
// returns, what other heads than the language model's would do, how weights were made, how they are computed in pieces.
constexpr std::string_view kImmaterial[] = {
    // files and programs
    "model_type", "_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "tokenizer_class",
    "torch_dtype", "dtype", "attn_implementation", "_attn_implementation", "_attn_implementation_internal",
    "_attn_implementation_autoset", "transformers.js_config", "unsloth_version",
    "unsloth_fixed", "is_llama_config", "use_bfloat16", "torchscript", "tf_legacy_loss", "gradient_checkpointing",
    // tokens and generation
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id",
    "decoder_start_token_id", "forced_bos_token_id", "forced_eos_token_id", "prefix", "max_length", "min_length",
    "max_new_tokens", "min_new_tokens", "do_sample", "early_stopping", "num_beams", "num_beam_groups",
    "diversity_penalty", "temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff",
    "repetition_penalty", "encoder_repetition_penalty", "length_penalty", "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size", "bad_words_ids", "force_words_ids", "num_return_sequences",
    "remove_invalid_values", "exponential_decay_length_penalty", "suppress_tokens", "begin_suppress_tokens",
    "renormalize_logits", "penalty_alpha", "max_time", "task_specific_params", "use_cache", "cache_implementation",
    // what a call returns
    "output_attentions", "output_hidden_states", "output_scores", "return_dict", "return_dict_in_generate",
    // other heads
    "id2label", "label2id", "num_labels", "problem_type", "finetuning_task", "summary_type", "summary_use_proj",
    "summary_activation", "summary_proj_to_labels", "summary_first_dropout", "n_special", "predict_special_tokens",
    // how weights were made, and pieces that give the same sums
    "initializer_range", "chunk_size_feed_forward", "pretraining_tp",
    // a decoder either way; the causal mask has no limit of its own
    "is_decoder", "max_sequence_length",
};

// Read by read_gpt2 and read_llama. n_ctx and the long names are other words for GPT-2's own.
constexpr std::string_view kGpt2Read[] = {
    "architectures", "n_layer", "n_embd", "n_head", "n_inner", "n_positions", "vocab_size", "layer_norm_epsilon",
    "tie_word_embeddings", "resid_pdrop", "embd_pdrop", "attn_pdrop", "n_ctx", "hidden_size", "num_hidden_layers",
    "num_attention_heads", "max_position_embeddings",
};
constexpr std::string_view kLlamaRead[] = {
    "architectures", "num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim",
    "intermediate_size", "vocab_size", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_parameters",
    "rope_scaling", "tie_word_embeddings", "attention_dropout",
};
// clang-format on

// Values that this version computes; any other is refused. False or null would ask for something here.
struct Only {
  std::string_view key;
  std::vector<Json> values;
};
const std::vector<Only>& only(Arch arch) {
  static const std::vector<Only> gpt2 = {{"activation_function", {"gelu_new", "gelu_pytorch_tanh"}},
                                         {"scale_attn_weights", {true}},
                                         {"is_causal", {true}}};
  static const std::vector<Only> llama = {
      {"hidden_act", {"silu", "swish"}}, {"partial_rotary_factor", {1, nullptr}}, {"is_causal", {true}}};
  return arch == Arch::kGpt ? gpt2 : llama;
}

bool asks_for_nothing(const Json& value) {
  return value.is_null() || value == Json(false) || value == Json("") ||
         ((value.is_object() || value.is_array()) && value.empty());
}
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

// ---- one file -------------------------------------------------------------------------------------------------------

class ConfigFile {
 public:
  static Result<ConfigFile> parse(std::string_view text, const std::string& source);

  const Json* find(std::string_view key) const {
    const auto found = json_.find(key);
    return found == json_.end() || found->is_null() ? nullptr : &*found;
  }
  const Json& json() const { return json_; }
  const Status& status() const { return status_; }

  // The first complaint stays.
  void refuse(std::string_view key, const Json& value, std::string_view why) {
    if (status_) status_ = usage_error(fmt::format("'{}': {} = {} {}", path_, key, shown(value), why));
  }
  void wrong(std::string_view key, std::string_view why) {
    if (status_) status_ = data_error(fmt::format("'{}': '{}' {}", path_, key, why));
  }

  // A size by its name, or by the other names that mean the same; 0 where none is there.
  int size(Words names, int otherwise = 0) {
    const Json* first = nullptr;
    for (std::string_view name : names) {
      const Json* value = find(name);
      if (!value) continue;
      if (!value->is_number_integer()) wrong(name, "has the wrong type");
      else if (first && *first != *value)
        refuse(name, *value, fmt::format("contradicts {} = {}", *names.begin(), shown(*first)));
      if (!first) first = value;
    }
    if (!first && otherwise > 0) return otherwise;
    const int64_t value = first && first->is_number_integer() ? first->get<int64_t>() : 0;
    if (value < 1 || value > (1 << 24)) wrong(*names.begin(), "is missing or out of range");
    return int(std::clamp<int64_t>(value, 0, 1 << 24));
  }
  // Null is no number and no truth; `nullable` says where it stands for the default.
  double real(std::string_view key, double otherwise, bool nullable = false) {
    const auto value = json_.find(key);
    if (value == json_.end() || (nullable && value->is_null())) return otherwise;
    if (!value->is_number()) wrong(key, "has the wrong type");
    return value->is_number() ? value->get<double>() : otherwise;
  }
  bool boolean(std::string_view key, bool otherwise) {
    const auto value = json_.find(key);
    if (value == json_.end()) return otherwise;
    if (!value->is_boolean()) wrong(key, "has the wrong type");
    return value->is_boolean() ? value->get<bool>() : otherwise;
  }

 private:
  std::string path_;
  Json json_;
  Status status_;
};

Result<ConfigFile> ConfigFile::parse(std::string_view text, const std::string& path) {
  // The parser keeps the last of two equal keys; which one counts is not for us to guess.
  std::set<std::string> seen;
  std::string twice;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1 && !seen.insert(parsed.get<std::string>()).second)
      twice = parsed.get<std::string>();
    return true;
  };
  ConfigFile file;
  file.path_ = path;
  file.json_ = Json::parse(text.begin(), text.end(), watch, /*allow_exceptions=*/false);
  if (file.json_.is_discarded() || !file.json_.is_object()) return data_error("'" + path + "' is not a JSON object");
  if (!twice.empty()) return usage_error("'" + path + "': key '" + twice + "' is written twice");
  return file;
}

constexpr std::string_view kNotComputed =
    "is nothing that this version computes; it runs GPT-2 (gelu_new) and Llama (rope_type default)";

bool in(const auto& word, const auto& words) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

void check_keys(ConfigFile& file, Arch arch) {
  const std::vector<Only>& rules = only(arch);
  for (const auto& [key, value] : file.json().items()) {
    if (in(key, kImmaterial) || (arch == Arch::kGpt ? in(key, kGpt2Read) : in(key, kLlamaRead))) continue;
    if (key == "layer_types" && value.is_array() &&
        std::all_of(value.begin(), value.end(), [](const Json& type) { return type == Json("full_attention"); }))
      continue;
    const auto rule = std::find_if(rules.begin(), rules.end(), [&, &key = key](const Only& r) { return r.key == key; });
    if (rule != rules.end() ? in(value, rule->values) : asks_for_nothing(value)) continue;
    file.refuse(key, value, kNotComputed);
  }
}

// The rows of logits that eval gives are the language model head's.
void check_architectures(ConfigFile& file, Arch arch, bool tied) {
  const Json* list = file.find("architectures");
  if (!list) return;
  std::vector<std::string_view> causal = {"GPT2LMHeadModel"};
  if (arch == Arch::kLlama) causal = {"LlamaForCausalLM", "LLaMAForCausalLM"};
  const std::string_view base = arch == Arch::kGpt ? "GPT2Model" : "LlamaModel";  // its head is the tied embedding
  if (!list->is_array()) return file.wrong("architectures", "has the wrong type");
  for (const Json& item : *list) {
    const std::string name = item.is_string() ? item.get<std::string>() : "";
    if (!in(name, causal) && !(tied && name == base))
      file.refuse("architectures", *list, fmt::format("has another head than {}, whose logits these are", causal[0]));
  }
}

double rope_theta(ConfigFile& file) {
  double theta = file.real("rope_theta", 0, true);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const Json* rope = file.find(key);
    if (!rope) continue;
    if (!rope->is_object()) {
      file.wrong(key, "has the wrong type");
      continue;
    }
    // The type first: the other keys belong to it.
    for (const char* kind : {"rope_type", "type"})
      if (const auto found = rope->find(kind); found != rope->end() && *found != Json("default") && !found->is_null())
        file.refuse(fmt::format("{}.{}", key, kind), *found, kNotComputed);
    for (const auto& [inner, value] : rope->items()) {
      const std::string name = fmt::format("{}.{}", key, inner);
      const bool one = inner == "factor" || inner == "partial_rotary_factor" || inner == "attention_factor";
      if (value.is_null() || (one && value == Json(1)) || inner == "rope_type" || inner == "type") continue;
      if (inner != "rope_theta") {
        file.refuse(name, value, kNotComputed);
      } else if (!value.is_number()) {
        file.wrong(name, "has the wrong type");
      } else if (theta > 0 && value != Json(theta)) {
        file.refuse(name, value, fmt::format("contradicts rope_theta = {}", theta));
      } else {
        theta = value.get<double>();
      }
    }
  }
  return theta > 0 || file.find("rope_theta") ? theta : 10000;
}

CheckpointConfig read_gpt2(ConfigFile& file) {
  CheckpointConfig out;
  ModelConfig& m = out.model;
  m.arch = Arch::kGpt;
  m.num_layers = file.size({"n_layer", "num_hidden_layers"});
  m.hidden_size = file.size({"n_embd", "hidden_size"});
  m.num_attention_heads = m.num_query_groups = file.size({"n_head", "num_attention_heads"});
  m.ffn_hidden_size = file.size({"n_inner"}, 4 * m.hidden_size);
  m.max_position_embeddings = file.size({"n_positions", "max_position_embeddings", "n_ctx"});
  m.vocab_size = file.size({"vocab_size"});
  m.norm_epsilon = file.real("layer_norm_epsilon", 1e-5);
  m.tie_embeddings = file.boolean("tie_word_embeddings", true);
  m.linear_bias = true;
  m.hidden_dropout = file.real("resid_pdrop", 0);
  out.embedding_dropout = file.real("embd_pdrop", m.hidden_dropout);
  m.attention_dropout = file.real("attn_pdrop", 0);
  return out;
}

CheckpointConfig read_llama(ConfigFile& file) {
  CheckpointConfig out;
  ModelConfig& m = out.model;
  m.arch = Arch::kLlama;
  m.num_layers = file.size({"num_hidden_layers"});
  m.hidden_size = file.size({"hidden_size"});
  m.num_attention_heads = file.size({"num_attention_heads"});
  m.num_query_groups = file.size({"num_key_value_heads"}, m.num_attention_heads);
  m.head_dim = file.find("head_dim") ? file.size({"head_dim"}) : 0;
  m.ffn_hidden_size = file.size({"intermediate_size"});
  m.max_position_embeddings = file.size({"max_position_embeddings"}, 2048);
  m.vocab_size = file.size({"vocab_size"});
  m.norm_epsilon = file.real("rms_norm_eps", 1e-6);
  m.rope_theta = rope_theta(file);
  m.tie_embeddings = file.boolean("tie_word_embeddings", false);
  m.linear_bias = false;
  m.attention_dropout = file.real("attention_dropout", 0, true);
  return out;
}

}  // namespace

Result<CheckpointConfig> parse_checkpoint_config(std::string_view text, const std::string& path) {
  auto file = ConfigFile::parse(text, path);
  if (!file) return tl::unexpected(file.error());
  const Json* type = file->find("model_type");
  if (!type || (*type != Json("gpt2") && *type != Json("llama")))
    return usage_error(fmt::format("'{}': model_type = {} {}", path, type ? shown(*type) : "none", kNotComputed));
  const Arch arch = *type == Json("gpt2") ? Arch::kGpt : Arch::kLlama;
  CheckpointConfig out = arch == Arch::kGpt ? read_gpt2(*file) : read_llama(*file);
  check_architectures(*file, arch, out.model.tie_embeddings);
  check_keys(*file, arch);
  if (!file->status()) return tl::unexpected(file->status().error());
  return out;
}

}  // namespace ringscope
