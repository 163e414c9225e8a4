#include "runtime/train/checkpoint.h"

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/model/names.h"
#include "runtime/train/checkpoint_config.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope {
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

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

std::string shape_text(const std::vector<int64_t>& shape) { return nlohmann::json(shape).dump(); }

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
  return {};
}

const std::vector<double>& values_of(const FileTensor& tensor, std::vector<double>& widened) {
  if (tensor.integer.empty()) return tensor.real;
  widened.assign(tensor.integer.begin(), tensor.integer.end());
  return widened;
}

// [1,1,n,n], ones up to the diagonal: what the model does anyway.
bool is_causal_mask(const FileTensor& tensor) {
  const std::vector<int64_t>& shape = tensor.shape;
  if (shape.size() != 4 || shape[0] != 1 || shape[1] != 1 || shape[2] != shape[3]) return false;
  std::vector<double> widened;
  const std::vector<double>& values = values_of(tensor, widened);
  for (int64_t i = 0, n = shape[2]; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      if (values[size_t(i * n + j)] != (j <= i ? 1 : 0)) return false;
  return true;
}

// theta^(-2i/D), as exact as half precision has it.
bool is_inverse_frequency(const FileTensor& tensor, const ModelConfig& m) {
  const int64_t d = head_dim(m);
  if (tensor.shape != std::vector<int64_t>{d / 2} || int64_t(tensor.real.size()) != d / 2) return false;
  for (int64_t i = 0; i < d / 2; ++i) {
    const double want = std::pow(m.rope_theta, -2.0 * double(i) / double(d));
    if (!(std::abs(tensor.real[size_t(i)] - want) <= 0.01 * want + 1e-7)) return false;
  }
  return true;
}

bool equal_bits(const FileTensor& a, const FileTensor& b) {
  const auto same = [](double x, double y) { return x == y || (x != x && y != y); };
  return a.shape == b.shape && std::equal(a.real.begin(), a.real.end(), b.real.begin(), b.real.end(), same);
}

// The tensors by the names that the model asks for. Older GPT-2 files lack the "transformer." prefix. What the model
// does not ask for stays out where it says nothing new (mask buffers, rotary frequencies, a tied head that is a copy of
// the embedding) and is an error otherwise.
Result<FileTensors> used_tensors(FileTensors tensors, const ModelConfig& m, const std::string& path) {
  const bool gpt = m.arch == Arch::kGpt;
  const Shapes want = expected_shapes(m);
  FileTensors used;
  const auto differs = [&](const std::string& name, const std::string& what) {
    return data_error("'" + path + "': tensor '" + name + "' " + what);
  };
  for (auto& [name, tensor] : tensors) {
    const std::string key =
        gpt && !want.contains(name) && want.contains("transformer." + name) ? "transformer." + name : name;
    if (want.contains(key)) {
      if (!used.emplace(key, std::move(tensor)).second)
        return differs(key, "is there twice, with and without 'transformer.'");
    } else if (gpt && (name.ends_with(".attn.masked_bias") && tensor.shape.size() <= 1)) {
      continue;  // the number that stood for minus infinity
    } else if (gpt && name.ends_with(".attn.bias")) {
      if (!is_causal_mask(tensor)) return differs(name, "is not the causal mask that this version computes with");
    } else if (!gpt && name.ends_with(".rotary_emb.inv_freq")) {
      if (!is_inverse_frequency(tensor, m)) return differs(name, "is not what rope_theta of config.json gives");
    } else if (name != "lm_head.weight" || !m.tie_embeddings) {
      return differs(name, "is an extra one, which the model of config.json does not use");
    }
  }
  const auto head = tensors.find("lm_head.weight");
  const auto embedding = used.find(model_names(m).embedding);
  if (m.tie_embeddings && head != tensors.end() && embedding != used.end() &&
      !equal_bits(head->second, embedding->second))
    return differs(head->first, "is not the embedding, to which config.json ties it (tie_word_embeddings)");
  return used;
}

}  // namespace

Result<Checkpoint> read_checkpoint(const std::string& directory) {
  const std::string config_path = directory + "/config.json";
  std::ifstream stream(config_path);
  if (!stream)
    return data_error("cannot open '" + config_path + "': " + std::strerror(errno) +
                      "; a checkpoint is a directory with config.json and model.safetensors");
  std::ostringstream text;
  text << stream.rdbuf();
  auto config = parse_checkpoint_config(text.str(), config_path);
  if (!config) return tl::unexpected(config.error());
  std::error_code error;
  if (std::filesystem::exists(directory + "/adapter_config.json", error))
    return usage_error("'" + directory +
                       "' holds an adapter (adapter_config.json), which this version does not apply: " +
                       "merge it into the weights, or take it away");
  Checkpoint out{config->model, config->embedding_dropout, {}};
  const std::string weights = directory + "/model.safetensors";
  auto file = read_safetensors(weights);
  if (!file) return tl::unexpected(file.error());
  if (file->size() < size_t(out.model.num_layers))  // before a list of all that they need is made
    return data_error("'" + weights + "' has " + std::to_string(file->size()) + " tensors, config.json calls for " +
                      std::to_string(out.model.num_layers) + " layers");
  auto used = used_tensors(std::move(*file), out.model, weights);
  if (!used) return tl::unexpected(used.error());
  if (auto status = check_tensors(*used, expected_shapes(out.model), weights); !status)
    return tl::unexpected(status.error());
  for (auto& [name, tensor] : *used) out.tensors[name] = {tensor.shape, std::move(tensor.real)};
  return out;
}

}  // namespace ringscope
