// What a checkpoint, tokens and flags say together is what is computed, or it is refused by name.
#include "runtime/train/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <numeric>

#include "runtime/train/checkpoint_config.h"
#include "tests/runtime/train/fixture.h"

namespace ringscope {
namespace {

using nlohmann::json;

json config_of(const std::string& model) {
  return testing::read_json(testing::models_dir() + "/" + model + "/config.json");
}
FileTensors tensors_of(const std::string& model) {
  return *read_safetensors(testing::models_dir() + "/" + model + "/model.safetensors");
}

// A checkpoint directory that goes away with the test.
class Directory {
 public:
  Directory(const json& config, const FileTensors& tensors) {
    static int count = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("ringscope-checkpoint-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    std::filesystem::create_directories(path_);
    write("config.json", config.dump());
    EXPECT_TRUE(write_safetensors(path_ / "model.safetensors", tensors));
  }
  ~Directory() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// "" = accepted.
std::string refusal(const json& config) {
  const auto read = parse_checkpoint_config(config.dump(), "config.json");
  return read ? "" : read.error().message;
}
std::string refusal(const std::string& model, const std::string& key, const json& value) {
  json config = config_of(model);
  config[key] = value;
  return refusal(config);
}

TEST(CheckpointConfig, RefusesWhatChangesTheNumbersByName) {
  const std::vector<std::tuple<const char*, const char*, json>> cases = {
      {"gpt2", "scale_attn_weights", false},
      {"gpt2", "scale_attn_weights", nullptr},
      {"gpt2", "scale_attn_by_inverse_layer_idx", true},
      {"gpt2", "reorder_and_upcast_attn", true},
      {"gpt2", "add_cross_attention", true},
      {"gpt2", "activation_function", "gelu"},
      {"gpt2", "n_ctx", 32},
      {"gpt2", "num_hidden_layers", 3},
      {"gpt2", "rope_theta", 1e4},
      {"gpt2", "architectures", {"GPT2ForSequenceClassification"}},
      {"gpt2", "architectures", {"GPT2LMHeadModel", "GPT2DoubleHeadsModel"}},
      {"llama", "attention_bias", true},
      {"llama", "mlp_bias", true},
      {"llama", "hidden_act", "gelu"},
      {"llama", "rope_theta", 5e5},  // rope_parameters has another
      {"llama", "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {"llama", "rope_parameters", {{"rope_type", "llama3"}, {"rope_theta", 1e4}}},
      {"llama", "rope_parameters", {{"rope_theta", 1e4}, {"partial_rotary_factor", 0.5}}},
      {"llama", "partial_rotary_factor", 0.5},
      {"llama", "sliding_window", 16},
      {"llama", "layer_types", {"full_attention", "sliding_attention"}},
      {"llama", "final_logit_softcapping", 30.0},
      {"llama", "embedding_multiplier", 12.0},
      {"llama", "quantization_config", {{"bits", 4}}},
      {"llama", "is_causal", false},
      {"llama", "model_type", "mistral"},
      {"llama", "architectures", {"LlamaForTokenClassification"}},
      {"llama", "a_key_of_tomorrow", 1},
  };
  for (const auto& [model, key, value] : cases) {
    json config = config_of(model);
    config[key] = value;
    const auto read = parse_checkpoint_config(config.dump(), "config.json");
    ASSERT_FALSE(read) << model << " " << key;
    EXPECT_NE(read.error().message.find(key), std::string::npos) << model << " " << key << ": " << read.error().message;
    EXPECT_EQ(read.error().kind, ErrorKind::kUsage) << key;
  }
}

TEST(CheckpointConfig, RefusesUnreadableValuesAndKeysWrittenTwice) {
  EXPECT_NE(refusal("llama", "rms_norm_eps", "1e-5").find("rms_norm_eps"), std::string::npos);
  EXPECT_NE(refusal("llama", "rms_norm_eps", nullptr).find("rms_norm_eps"), std::string::npos);
  EXPECT_NE(refusal("llama", "head_dim", 0).find("head_dim"), std::string::npos);
  EXPECT_NE(refusal("llama", "vocab_size", int64_t(1) << 40).find("vocab_size"), std::string::npos);
  EXPECT_NE(refusal("gpt2", "tie_word_embeddings", nullptr).find("tie_word_embeddings"), std::string::npos);
  std::string text = config_of("llama").dump();
  text.back() = ',';
  const auto twice = parse_checkpoint_config(text + R"("rms_norm_eps": 0.5})", "config.json");
  EXPECT_NE(twice.error().message.find("'rms_norm_eps' is written twice"), std::string::npos);
}

// What public checkpoints of the two families carry besides.
TEST(CheckpointConfig, AcceptsWhatLeavesTheNumbersAlone) {
  const std::vector<std::tuple<const char*, const char*, json>> cases = {
      {"gpt2", "n_ctx", 96},
      {"gpt2", "task_specific_params", {{"text-generation", {{"do_sample", true}, {"max_length", 50}}}}},
      {"gpt2", "resid_pdrop", 0.1},
      {"gpt2", "gradient_checkpointing", false},
      {"gpt2", "num_hidden_layers", 2},
      {"gpt2", "architectures", {"GPT2Model"}},  // tied: the head is the embedding
      {"llama", "_name_or_path", "somebody/model"},
      {"llama", "torch_dtype", "bfloat16"},
      {"llama", "rope_scaling", nullptr},
      {"llama", "rope_theta", 10000},
      {"llama", "pretraining_tp", 2},
      {"llama", "max_sequence_length", 2048},
      {"llama", "eos_token_id", {128001, 128008}},
      {"llama", "rope_interleaved", false},
      {"llama", "layer_types", {"full_attention", "full_attention"}},
      {"llama", "quantization_config", nullptr},
      {"llama", "temperature", 0.6},
  };
  for (const auto& [model, key, value] : cases) EXPECT_EQ(refusal(model, key, value), "") << model << " " << key;
}

TEST(CheckpointConfig, ReadsOtherWordsForTheSame) {
  json gpt2 = config_of("gpt2");
  gpt2["num_hidden_layers"] = gpt2["n_layer"];
  gpt2.erase("n_layer");
  EXPECT_EQ(parse_checkpoint_config(gpt2.dump(), "x")->model.num_layers, 2);
  json llama = config_of("llama");
  llama["rope_parameters"] = {{"rope_theta", 5e5}};
  EXPECT_EQ(parse_checkpoint_config(llama.dump(), "x")->model.rope_theta, 5e5);
  llama.erase("rope_parameters");
  EXPECT_EQ(parse_checkpoint_config(llama.dump(), "x")->model.rope_theta, 1e4);
}

std::string tensor_refusal(const std::string& model, const std::string& name, const FileTensor& tensor) {
  FileTensors tensors = tensors_of(model);
  tensors[name] = tensor;
  const Directory directory(config_of(model), tensors);
  const auto read = read_checkpoint(directory.path());
  return read ? "" : read.error().message;
}
FileTensor filled(std::vector<int64_t> shape, double value) {
  FileTensor t{DType::kF32, shape, {}, {}};
  t.real.assign(size_t(std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>())), value);
  return t;
}
FileTensor causal_mask(int64_t n) {
  FileTensor mask = filled({1, 1, n, n}, 0);
  for (int64_t i = 0; i < n * n; ++i) mask.real[size_t(i)] = i % n <= i / n;
  return mask;
}

TEST(CheckpointTensors, NothingIsLeftUnused) {
  for (const char* name : {"model.layers.0.self_attn.q_proj.bias", "model.layers.2.input_layernorm.weight",
                           "score.weight", "model.layers.0.self_attn.q_norm.weight", "base_model.model.lora_A.weight"})
    EXPECT_NE(tensor_refusal("llama", name, filled({48}, 0)).find(name), std::string::npos) << name;
  EXPECT_NE(tensor_refusal("gpt2", "transformer.h.0.crossattention.c_attn.weight", filled({48, 96}, 0)), "");
  // Tied, and a head of its own; the old names beside the new ones; a buffer that is no mask.
  EXPECT_NE(tensor_refusal("gpt2", "lm_head.weight", filled({257, 48}, 0)).find("tie_word_embeddings"),
            std::string::npos);
  EXPECT_NE(tensor_refusal("gpt2", "ln_f.weight", filled({48}, 1)).find("twice"), std::string::npos);
  EXPECT_NE(tensor_refusal("gpt2", "transformer.h.0.attn.bias", filled({1, 1, 8, 8}, 1)).find("mask"),
            std::string::npos);
  EXPECT_NE(tensor_refusal("gpt2", "transformer.h.0.attn.bias", filled({144}, 0)).find("mask"), std::string::npos);
  EXPECT_NE(tensor_refusal("llama", "model.layers.0.self_attn.rotary_emb.inv_freq", filled({6}, 1)).find("rope_theta"),
            std::string::npos);
}

TEST(CheckpointTensors, BuffersAndCopiesAreFine) {
  EXPECT_EQ(tensor_refusal("gpt2", "transformer.h.0.attn.bias", causal_mask(96)), "");
  EXPECT_EQ(tensor_refusal("gpt2", "transformer.h.0.attn.masked_bias", filled({}, -1e4)), "");
  EXPECT_EQ(tensor_refusal("gpt2", "lm_head.weight", tensors_of("gpt2").at("transformer.wte.weight")), "");
  FileTensor frequency = filled({6}, 0);
  for (int i = 0; i < 6; ++i) frequency.real[i] = std::pow(10000, -2.0 * i / 12) * 1.003;  // as bf16 rounds
  EXPECT_EQ(tensor_refusal("llama", "model.layers.1.self_attn.rotary_emb.inv_freq", frequency), "");
}

TEST(CheckpointTensors, AnAdapterBesideIsRefused) {
  const Directory directory(config_of("llama"), tensors_of("llama"));
  EXPECT_TRUE(read_checkpoint(directory.path()));
  directory.write("adapter_config.json", "{}");
  EXPECT_NE(read_checkpoint(directory.path()).error().message.find("adapter_config.json"), std::string::npos);
}

// ---- tokens ---------------------------------------------------------------------------------------------------------

std::string eval_refusal(const std::string& model, const EvalInput& in, JobConfig config = {}) {
  config.checkpoint = testing::models_dir() + "/" + model;
  config.dtype = DType::kF64;
  const auto result = evaluate(config, in, {});
  return result ? "" : result.error().message;
}

TEST(EvalInputs, WhatLiesOutsideOrContradictsIsNamed) {
  const EvalInput good = testing::read_input("llama", "plain");
  const auto refused = [&](auto change, const std::string& model = "llama") {
    EvalInput in = good;
    change(in);
    return eval_refusal(model, in);
  };
  EXPECT_EQ(refused([](EvalInput&) {}), "");
  EXPECT_NE(refused([](EvalInput& in) { in.input_ids[100] = 257; }).find("input_ids[1,4] is 257"), std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.input_ids[0] = -1; }).find("input_ids[0,0] is -1"), std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.labels[3] = 257; }).find("labels[0,3] is 257"), std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.labels[3] = -1; }).find("use -100"), std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.position_ids[0] = -1; }).find("position_ids[0,0] is -1"), std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.position_ids[95] = 96; }, "gpt2").find("96 learned positions"),
            std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.document_ids.assign(192, -1); }).find("document_ids"), std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) {
              in.valid_lengths = {97, 96};
            }).find("valid_lengths[0] is 97"),
            std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.valid_lengths = {96}; }).find("valid_lengths"), std::string::npos);
  EXPECT_NE(refused([](EvalInput& in) { in.valid_lengths = {50, 96}; }).find("labels[0,50]"), std::string::npos);
  EXPECT_EQ(refused([](EvalInput& in) { in.valid_lengths = {96, 96}; }), "");
}

// A restart of the positions means "new document" to some programs and nothing to others.
TEST(EvalInputs, ARestartOfThePositionsNeedsDocuments) {
  EvalInput in = testing::read_input("llama", "plain");
  for (int64_t i = 40; i < 96; ++i) in.position_ids[i] -= 40;
  EXPECT_NE(eval_refusal("llama", in).find("position_ids[0,40] is 0 after 39: give document_ids"), std::string::npos);
  in.document_ids.assign(192, 0);
  EXPECT_EQ(eval_refusal("llama", in), "");
}

// ---- flags ----------------------------------------------------------------------------------------------------------

JobConfig with(std::initializer_list<std::pair<const char*, const char*>> flags) {
  JobConfig config;
  for (const auto& [flag, value] : flags) EXPECT_TRUE(apply_flag(config, flag, value));
  return config;
}

TEST(Flags, OfTheModelMayNotContradictTheCheckpoint) {
  const auto refused = [](std::initializer_list<std::pair<const char*, const char*>> flags) {
    JobConfig config = with(flags);
    config.checkpoint = testing::models_dir() + "/llama";
    config.train_iters = 1, config.seq_length = 8, config.global_batch_size = 1;
    const auto result = train(config, {});
    return result ? "" : result.error().message;
  };
  for (const auto& [flag, value] : {std::pair("num-layers", "4"),
                                    {"hidden-size", "64"},
                                    {"num-attention-heads", "8"},
                                    {"arch", "gpt"},
                                    {"head-dim", "8"},
                                    {"ffn-hidden-size", "99"},
                                    {"vocab-size", "300"},
                                    {"norm-epsilon", "1e-6"},
                                    {"rope-theta", "5e5"},
                                    {"max-position-embeddings", "64"},
                                    {"tie-embeddings", ""}}) {
    const std::string sentence = refused({{flag, value}});
    std::string key = flag;
    std::replace(key.begin(), key.end(), '-', '_');
    EXPECT_EQ(sentence.rfind(key, 0), 0u) << flag << ": " << sentence;
  }
  EXPECT_EQ(refused({{"num-layers", "2"}, {"head-dim", "0"}, {"hidden-dropout", "0.1"}}), "");
}

TEST(Flags, OfSizesMayNotContradictTheTokens) {
  const EvalInput in = testing::read_input("llama", "plain");
  EXPECT_NE(eval_refusal("llama", in, with({{"seq-length", "64"}})).find("seq_length 64"), std::string::npos);
  EXPECT_NE(eval_refusal("llama", in, with({{"micro-batch-size", "1"}})).find("micro_batch_size 1"), std::string::npos);
  EXPECT_NE(eval_refusal("llama", in, with({{"global-batch-size", "4"}})).find("global_batch_size 4"),
            std::string::npos);
  EXPECT_EQ(eval_refusal("llama", in, with({{"seq-length", "96"}, {"global-batch-size", "2"}})), "");
}

TEST(Flags, TrainingUsesTheDropoutThatTheCheckpointNames) {
  json config = config_of("gpt2");
  const auto loss = [&](const json& with, std::initializer_list<std::pair<const char*, const char*>> flags) {
    const Directory directory(with, tensors_of("gpt2"));
    JobConfig job = ringscope::with(flags);
    job.checkpoint = directory.path();
    job.train_iters = 1, job.seq_length = 32, job.global_batch_size = 1;
    const auto result = train(job, {});
    EXPECT_TRUE(result) << result.error().message;
    return result ? result->steps[0].loss : 0;
  };
  const double plain = loss(config, {});
  config["resid_pdrop"] = config["embd_pdrop"] = config["attn_pdrop"] = 0.2;
  EXPECT_NE(loss(config, {}), plain);
  EXPECT_EQ(loss(config, {{"hidden-dropout", "0"}, {"attention-dropout", "0"}}), plain);
  config["embd_pdrop"] = 0.1;
  const Directory two(config, tensors_of("gpt2"));
  JobConfig job;
  job.checkpoint = two.path();
  job.seq_length = 32;
  EXPECT_NE(train(job, {}).error().message.find("embd_pdrop 0.1"), std::string::npos);
}

// ---- NaN ------------------------------------------------------------------------------------------------------------

TEST(NonFiniteWeights, ReachTheLogitsUnderEveryLayoutAndAreNamed) {
  FileTensors tensors = tensors_of("llama");
  const std::string name = "model.layers.0.self_attn.v_proj.weight";
  tensors[name].real[5] = NAN;
  tensors["lm_head.weight"].real[48 * 7] = 1e300;
  tensors["lm_head.weight"].dtype = DType::kF64;
  const Directory directory(config_of("llama"), tensors);
  EvalInput in = testing::read_input("llama", "plain");
  for (const testing::Layout& layout : testing::layouts()) {
    SCOPED_TRACE(layout.name);
    JobConfig config = testing::job(layout, "llama", DType::kF32);
    config.checkpoint = directory.path();
    const auto result = evaluate(config, in, {});
    ASSERT_TRUE(result) << result.error().message;
    for (double logit : result->tensors.at("logits").values) ASSERT_TRUE(std::isnan(logit));
    ASSERT_EQ(result->non_finite_weights.size(), 2u);
    EXPECT_EQ(result->non_finite_weights[0].name, "lm_head.weight");  // 1e300 is infinite in fp32
    EXPECT_EQ(result->non_finite_weights[0].infinite, 1);
    EXPECT_EQ(result->non_finite_weights[1].name, name);
    EXPECT_EQ(result->non_finite_weights[1].nan, 1);
    EXPECT_EQ(result->non_finite_out.front().name.substr(0, 5), "grad.");
    EXPECT_EQ(result->non_finite_out.size(), result->tensors.size());
  }
}

// A causal model: what is not finite at one token is seen by that token and later ones, whatever the layout.
TEST(NonFiniteWeights, OfOneTokenStayBehindIt) {
  FileTensors tensors = tensors_of("llama");
  EvalInput in = testing::read_input("llama", "odd");
  const int64_t at = 30, token = in.input_ids[at];
  for (int64_t i = 0; i < at; ++i)
    if (in.input_ids[i] == token) in.input_ids[i] = (token + 1) % 256;
  tensors["model.embed_tokens.weight"].real[size_t(token * 48 + 3)] = INFINITY;
  const Directory directory(config_of("llama"), tensors);
  for (const testing::Layout& layout : testing::layouts()) {
    SCOPED_TRACE(layout.name);
    JobConfig config = testing::job(layout, "llama", DType::kF64);
    config.checkpoint = directory.path();
    const auto result = evaluate(config, in, {});
    ASSERT_TRUE(result) << result.error().message;
    const std::vector<double>& logits = result->tensors.at("logits").values;
    for (int64_t i = 0; i < 53; ++i) ASSERT_EQ(std::isfinite(logits[size_t(i * 257)]), i < at) << i;
  }
}

// Rows that a layout adds behind the end are no token: no weight's value shows in them.
TEST(NonFiniteWeights, OfATokenThatNobodyUsesStayOut) {
  FileTensors tensors = tensors_of("llama");
  tensors["model.embed_tokens.weight"].real[256 * 48] = NAN;
  const Directory directory(config_of("llama"), tensors);
  for (const testing::Layout& layout : testing::layouts()) {
    JobConfig config = testing::job(layout, "llama", DType::kF64);
    config.checkpoint = directory.path();
    const auto result = evaluate(config, testing::read_input("llama", "odd"), {});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_TRUE(result->non_finite_out.empty()) << layout.name << " " << result->non_finite_out[0].name;
  }
}

}  // namespace
}  // namespace ringscope
