#include "runtime/model/names.h"

namespace ringscope {

int64_t head_dim(const ModelConfig& m) { return m.head_dim > 0 ? m.head_dim : m.hidden_size / m.num_attention_heads; }

namespace {

LayerNames gpt_layer(const ModelConfig& m, const std::string& block) {
  const int64_t h = m.hidden_size, f = m.ffn_hidden_size;
  LayerNames n;
  n.norm1 = block + ".ln_1";
  n.norm2 = block + ".ln_2";
  const std::string attn = block + ".attn.c_attn", proj = block + ".attn.c_proj";
  for (int64_t part = 0; part < 3; ++part)  // q, k, v one after another in one [in, out] matrix
    n.qkv.push_back({attn + ".weight", attn + ".bias", {h, 3 * h}, true, part * h, h, 3 * h});
  n.out = {proj + ".weight", proj + ".bias", {h, h}, true, 0, h, h};
  const std::string fc = block + ".mlp.c_fc", down = block + ".mlp.c_proj";
  n.up = {{fc + ".weight", fc + ".bias", {h, f}, true, 0, f, f}};
  n.down = {down + ".weight", down + ".bias", {f, h}, true, 0, h, h};
  return n;
}

LayerNames llama_layer(const ModelConfig& m, const std::string& block) {
  const int64_t h = m.hidden_size, f = m.ffn_hidden_size, d = head_dim(m);
  const int64_t q = m.num_attention_heads * d, kv = m.num_query_groups * d;
  const auto part = [&](const std::string& name, int64_t out, int64_t in) {
    return LinearPart{block + name + ".weight", "", {out, in}, false, 0, out, 0};
  };
  LayerNames n;
  n.norm1 = block + ".input_layernorm";
  n.norm2 = block + ".post_attention_layernorm";
  n.qkv = {part(".self_attn.q_proj", q, h), part(".self_attn.k_proj", kv, h), part(".self_attn.v_proj", kv, h)};
  n.out = part(".self_attn.o_proj", h, q);
  n.up = {part(".mlp.gate_proj", f, h), part(".mlp.up_proj", f, h)};
  n.down = part(".mlp.down_proj", h, f);
  return n;
}

}  // namespace

LayerNames layer_names(const ModelConfig& m, int layer) {
  return m.arch == Arch::kGpt ? gpt_layer(m, "transformer.h." + std::to_string(layer))
                              : llama_layer(m, "model.layers." + std::to_string(layer));
}

ModelNames model_names(const ModelConfig& m) {
  if (m.arch == Arch::kGpt)
    return {"transformer.wte.weight", "transformer.wpe.weight", "transformer.ln_f",
            m.tie_embeddings ? "transformer.wte.weight" : "lm_head.weight"};
  return {"model.embed_tokens.weight", "", "model.norm",
          m.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight"};
}

}  // namespace ringscope
