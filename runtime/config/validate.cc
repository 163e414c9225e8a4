// What must hold before a run. Every refusal names the key, the value, and a value that works.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "runtime/config/fault_reach.h"
#include "runtime/config/job_config.h"
#include "runtime/config/split.h"

namespace ringscope {
namespace {

// Ranks are threads of one process, a few for each.
constexpr int kMaxWorld = 512;
// Limits of the place words in the trace (tracedb/model/where.h); all ones mean unknown.
constexpr int kMaxLayers = 0xFFF - 1, kMaxMicrobatches = 0xFFF - 1, kMaxSteps = 0xFFFFFF - 1;

constexpr int kMaxHeadDim = 256;

// "4 or 8" around 6, "4" around 3: the multiples of m next to value.
std::string neighbours(int value, int m) {
  const int below = value / m * m, above = below + m;
  return below > 0 ? fmt::format("{} or {}", below, above) : fmt::format("{}", above);
}

Status at_least(const char* key, int64_t value, int64_t least, int64_t most = INT32_MAX) {
  if (value < least) return usage_error(fmt::format("{} is {}: use {} or more", key, value, least));
  if (value > most) return usage_error(fmt::format("{} is {}: use at most {}", key, value, most));
  return {};
}

Status check_model(const JobConfig& c) {
  const ModelConfig& m = c.model;
  const struct {
    const char* key;
    int value, most;
  } positive[] = {{"num_layers", m.num_layers, kMaxLayers},
                  {"hidden_size", m.hidden_size, 1 << 20},
                  {"num_attention_heads", m.num_attention_heads, 1 << 16},
                  {"num_query_groups", m.num_query_groups, 1 << 16},
                  {"ffn_hidden_size", m.ffn_hidden_size, 1 << 24},
                  {"vocab_size", m.vocab_size, 1 << 24}};
  for (const auto& p : positive)
    if (auto status = at_least(p.key, p.value, 1, p.most); !status) return status;
  if (auto status = at_least("head_dim", m.head_dim, 0, 1 << 16); !status) return status;
  if (auto status = at_least("max_position_embeddings", m.max_position_embeddings, 0); !status) return status;
  if (m.head_dim == 0 && m.hidden_size % m.num_attention_heads != 0)
    return usage_error(fmt::format("hidden_size {} cannot be split over num_attention_heads {}: use {}", m.hidden_size,
                                   m.num_attention_heads, neighbours(m.hidden_size, m.num_attention_heads)));
  const int head_dim = m.head_dim ? m.head_dim : m.hidden_size / m.num_attention_heads;
  if (m.arch == Arch::kLlama && head_dim % 2 != 0)
    return usage_error(
        fmt::format("a head is {} wide and rotary positions need an even width: use head_dim {} or "
                    "hidden_size {}",
                    head_dim, head_dim + 1, (head_dim + 1) * m.num_attention_heads));
  if (head_dim > kMaxHeadDim)
    return usage_error(fmt::format("a head is {} wide, the kernels go up to {}: use {} or more num_attention_heads",
                                   head_dim, kMaxHeadDim, (m.hidden_size + kMaxHeadDim - 1) / kMaxHeadDim));
  if (m.arch == Arch::kGpt && m.num_query_groups != m.num_attention_heads)
    return usage_error(fmt::format("num_query_groups {}: arch gpt has no grouped heads, use {} or arch llama",
                                   m.num_query_groups, m.num_attention_heads));
  if (m.num_attention_heads % m.num_query_groups != 0)
    return usage_error(
        fmt::format("num_attention_heads {} is no multiple of num_query_groups {}: use {} heads, or {} "
                    "groups",
                    m.num_attention_heads, m.num_query_groups, neighbours(m.num_attention_heads, m.num_query_groups),
                    std::gcd(m.num_attention_heads, m.num_query_groups)));
  if (m.arch == Arch::kGpt && m.max_position_embeddings && c.seq_length > m.max_position_embeddings)
    return usage_error(
        fmt::format("seq_length {} is longer than max_position_embeddings {}: use a seq_length of at "
                    "most {}, or more positions",
                    c.seq_length, m.max_position_embeddings, m.max_position_embeddings));
  if (is_named(c, "linear_bias") && m.linear_bias != (m.arch == Arch::kGpt))
    return usage_error(fmt::format("linear_bias {}: arch {}; leave it out", m.linear_bias,
                                   m.arch == Arch::kGpt ? "gpt always has biases" : "llama has none"));
  if (m.arch == Arch::kGpt && m.rope_theta != ModelConfig().rope_theta)
    return usage_error(fmt::format("rope_theta {}: arch gpt has learned positions; leave it out", m.rope_theta));
  for (auto [key, p] : {std::pair("hidden_dropout", m.hidden_dropout), {"attention_dropout", m.attention_dropout}})
    if (!(p >= 0 && p < 1)) return usage_error(fmt::format("{} is {}: use 0 or more, below 1", key, p));
  for (auto [key, x] : {std::pair("norm_epsilon", m.norm_epsilon), {"rope_theta", m.rope_theta}})
    if (!(x > 0)) return usage_error(fmt::format("{} is {}: use a number above 0", key, x));
  return {};
}

// tp must divide the heads, the K/V heads and the MLP.
Status check_tensor_parallel(const JobConfig& c) {
  const ModelConfig& m = c.model;
  const struct {
    const char* key;
    int value;
    const char* unit;
  } split[] = {{"num_attention_heads", m.num_attention_heads, " heads"},
               {"num_query_groups", m.num_query_groups, " groups"},
               {"ffn_hidden_size", m.ffn_hidden_size, ""}};
  const int common = std::gcd(std::gcd(m.num_attention_heads, m.num_query_groups), m.ffn_hidden_size);
  int works = c.tp;
  while (common % works != 0) --works;
  for (const auto& s : split)
    if (s.value % c.tp != 0)
      return usage_error(fmt::format("{} {} cannot be split over tensor_model_parallel_size {}: use {}{}, or --tp {}",
                                     s.key, s.value, c.tp, neighbours(s.value, c.tp), s.unit, works));
  return {};
}

Status check_layout(const JobConfig& c) {
  auto mesh = Mesh::make(c.tp, c.cp, c.dp, c.pp, c.order);
  if (!mesh) return tl::unexpected(mesh.error());
  if (c.pp != 1) return usage_error(fmt::format("pipeline_model_parallel_size {} is not in this version: use 1", c.pp));
  if (mesh->world() > kMaxWorld)
    return usage_error(
        fmt::format("{} ranks as threads of one process are too many: use sizes whose product is at "
                    "most {}",
                    mesh->world(), kMaxWorld));
  if (c.sequence_parallel && c.tp == 1)
    return usage_error(
        "sequence_parallel splits norm and residual over the TP ranks and tensor_model_parallel_size is "
        "1: use --tp 2 or more, or leave it out");
  auto split = sequence_split(c);
  if (!split) return tl::unexpected(split.error());
  if (c.dtype != DType::kF32 && c.dtype != DType::kF64)
    return usage_error(fmt::format("dtype {} is not in this version: use fp32 or fp64", name(c.dtype)));
  if (c.attention_backend == AttentionBackend::kOracle && c.model.attention_dropout > 0)
    return usage_error("attention_backend oracle has no dropout: use attention_dropout 0, or flash");
  if (c.attention_backend == AttentionBackend::kOracle && c.cp > 1 && c.cp_comm == CpComm::kGlobalSoftmax)
    return usage_error("attention_backend oracle has no three-step softmax: use cp_comm_type p2p or all_gather");
  return {};
}

Status check_batch(const JobConfig& c) {
  if (auto status = at_least("micro_batch_size", c.micro_batch_size, 1, 1 << 16); !status) return status;
  if (auto status = at_least("global_batch_size", c.global_batch_size, 1, 1 << 20); !status) return status;
  const int64_t pass = int64_t(c.micro_batch_size) * c.dp;
  if (c.global_batch_size % pass != 0)
    return usage_error(
        fmt::format("global_batch_size {} is no multiple of micro_batch_size {} x data_parallel_size {}: "
                    "use {}",
                    c.global_batch_size, c.micro_batch_size, c.dp, neighbours(c.global_batch_size, int(pass))));
  return at_least("global_batch_size / (micro_batch_size x data_parallel_size)", c.global_batch_size / pass, 1,
                  kMaxMicrobatches);
}

Status check_training(const JobConfig& c) {
  if (auto status = at_least("train_iters", c.train_iters, 1, kMaxSteps); !status) return status;
  if (auto status = at_least("lr_warmup_iters", c.lr_warmup_iters, 0); !status) return status;
  if (auto status = at_least("p2p_slots", c.comm.p2p_slots, 0, 1 << 16); !status) return status;
  const struct {
    const char* key;
    double value;
  } not_negative[] = {{"lr", c.lr},
                      {"min_lr", c.min_lr},
                      {"weight_decay", c.weight_decay},
                      {"adam_beta1", c.adam_beta1},
                      {"adam_beta2", c.adam_beta2},
                      {"clip_grad", c.clip_grad}};
  for (const auto& n : not_negative)
    if (!(n.value >= 0)) return usage_error(fmt::format("{} is {}: use 0 or more", n.key, n.value));
  if (c.min_lr > c.lr)
    return usage_error(fmt::format("min_lr {} is above lr {}: use at most {}", c.min_lr, c.lr, c.lr));
  return {};
}

Status check_ranges(const JobConfig& c) {
  for (auto [key, beta] : {std::pair("adam_beta1", c.adam_beta1), {"adam_beta2", c.adam_beta2}})
    if (!(beta < 1)) return usage_error(fmt::format("{} is {}: use a number below 1", key, beta));
  const struct {
    const char* key;
    double value;
  } positive[] = {{"adam_eps", c.adam_eps}, {"hang_timeout", c.hang_timeout_s}};
  for (const auto& p : positive)
    if (!(p.value > 0)) return usage_error(fmt::format("{} is {}: use a number above 0", p.key, p.value));
  for (int kept : c.labels_kept)
    if (kept < 0) return usage_error(fmt::format("labels_kept has {}: use 0 or more", kept));
  return {};
}

}  // namespace

Result<SequenceSplit> sequence_split(const JobConfig& c) {
  return SequenceSplit::make(c.seq_length, c.cp, c.cp_layout, c.sequence_parallel ? c.tp : 1);
}

Status validate(const JobConfig& c) {
  for (const auto check :
       {check_layout, check_model, check_tensor_parallel, check_batch, check_training, check_ranges, check_fault_reach})
    if (auto status = check(c); !status) return status;
  return {};
}

}  // namespace ringscope
