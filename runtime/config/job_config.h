// JobConfig: everything one run is asked to do. Filled from JSON (Megatron-style keys) and from flags of the
// same names; every refusal is one sentence that names the key, the value and what to change it to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/fault/fault.h"
#include "runtime/fault/mutation.h"
#include "runtime/layout/layout.h"
#include "tracedb/base/result.h"
#include "tracedb/model/enums.h"

namespace ringscope {

enum class Arch : uint8_t { kGpt, kLlama };
enum class CpComm : uint8_t { kP2p, kAllGather, kGlobalSoftmax };  // p2p | all_gather | global_softmax
enum class AttentionBackend : uint8_t { kFlash, kOracle };

struct ModelConfig {
  Arch arch = Arch::kLlama;
  int num_layers = 4;
  int hidden_size = 64;
  int num_attention_heads = 4;
  int num_query_groups = 2;  // K/V heads
  int head_dim = 0;          // 0 = hidden / heads
  int ffn_hidden_size = 128;
  int max_position_embeddings = 0;  // 0 = seq_length
  int vocab_size = 257;             // bytes and one padding id (256)
  double hidden_dropout = 0, attention_dropout = 0;
  double norm_epsilon = 1e-5;
  double rope_theta = 10000;
  bool tie_embeddings = false;  // GPT-2: true
  bool linear_bias = false;     // GPT-2: true
};

struct JobConfig {
  ModelConfig model;
  // layout
  int tp = 1, cp = 1, dp = 1, pp = 1;
  bool sequence_parallel = false;
  CpComm cp_comm = CpComm::kP2p;
  bool overlap = true;  // ring: double buffer on a second stream
  CpLayout cp_layout = CpLayout::kZigzag;
  std::string order = "tp-cp-dp-pp";
  int seq_length = 128;
  int micro_batch_size = 1;
  int global_batch_size = 4;
  DType dtype = DType::kF32;
  AttentionBackend attention_backend = AttentionBackend::kFlash;
  // data and optimizer
  std::string data;        // path; empty = the built-in text
  std::string checkpoint;  // start from saved weights
  int train_iters = 20;
  double lr = 3e-3, min_lr = 3e-4;
  int lr_warmup_iters = 5;
  double weight_decay = 0.1, clip_grad = 1.0;
  double adam_beta1 = 0.9, adam_beta2 = 0.95, adam_eps = 1e-8;
  uint64_t seed = 1234;
  // labels kept per sample: empty = all. With entries, sample i of step s keeps its first [(i+s) mod n] labels
  // (the training fixtures' accumulation curve, and a layout with unequal counts).
  std::vector<int> labels_kept;
  // communication
  CommOptions comm;
  // watching
  double hang_timeout_s = 10;
  bool turns = false;
  uint64_t turns_seed = 0;
  FaultPlan fault;
  std::vector<Mutation> mutations;  // --mutate, in the order written

  // Bit i = key i of the table of keys (config_flags' order) was written by somebody: values that follow from
  // others (sizes, K/V heads, ffn, GPT-2's ties and biases) move only while nobody wrote them.
  uint64_t named = 0;

  int world() const { return tp * cp * dp * pp; }
};

// Overlays JSON text on `config`. `source_name` is the file's name for the sentence. Unknown keys, wrong types:
// kUsage with the nearest known key; text that is not JSON: kData with the line. Accepts the article's synonyms
// use_ring_attention (true = p2p, false = all_gather) and ring_attention_comm_overlap.
// What follows from what is written, as soon as it is written (by JSON or by flag):
//   one parallel size        the sizes not written are 1, sequence_parallel false
//   num_attention_heads      num_query_groups = heads
//   hidden_size              ffn_hidden_size = 4 x hidden (gpt), 2 x hidden (llama)
//   arch gpt                 K/V heads = heads, tied embeddings, biases
//   lr                       min_lr = lr / 10
Status apply_json(JobConfig& config, std::string_view json_text, std::string_view source_name);

// Overlays one flag by its long name without dashes, "tensor-model-parallel-size", value as typed ("" = the
// switch alone). kUsage for an unknown name or an unreadable value.
Status apply_flag(JobConfig& config, std::string_view name, std::string_view value);

// Was this key (JSON spelling, "seq_length") written by JSON or flag?
bool is_named(const JobConfig& config, std::string_view key);
// Was any of the four parallel sizes?
bool any_size_named(const JobConfig& config);

// Every flag that apply_flag knows, for the option parser and for help.
struct FlagRow {
  std::string_view name, short_form, value, help;  // short_form: "tp" (written --tp); value: "N", "" = switch
  std::string_view group;                          // heading in help: "Layout", "Model", ...
  bool repeatable = false;
};
std::span<const FlagRow> config_flags();

// The whole config as JSON text (stable key order).
std::string to_json(const JobConfig& config);
// What of it a trace may hold: everything but what was planted. A trace holds observations, never the answer.
std::string to_trace_json(const JobConfig& config);

// Every rule that must hold before a run: divisibility of heads, K/V heads, hidden size, ffn, batch; PP = 1;
// dtype; ranges; what the planted fault needs. The sentence names the value to change, and to what.
Status validate(const JobConfig& config);

// The default job, without any layout, model or config: the demo's layout (TP2 x CP2 x DP2, sequence parallel,
// zigzag, overlap), under half a minute.
JobConfig default_job();

}  // namespace ringscope
