#include "runtime/config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "tracedb/base/check.h"

namespace ringscope::config {
namespace {

using nlohmann::ordered_json;

template <class T>
bool read_number(std::string_view text, T& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(out);
  return true;
}

std::string flag_of(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

// Rows of the table. `at` gives the field.
template <class At>
Key integer(std::string_view name, std::string_view short_form, std::string_view help, std::string_view group, At at) {
  Key key{name, flag_of(name), short_form, "N", help, group, Kind::kInteger};
  key.set = [name, at](JobConfig& c, std::string_view text) -> Status {
    if (!read_number(text, at(c))) return usage_error(fmt::format("{} '{}' is no whole number in range", name, text));
    return {};
  };
  key.get = [at](const JobConfig& c) { return ordered_json(at(const_cast<JobConfig&>(c))); };
  return key;
}

template <class At>
Key real(std::string_view name, std::string_view value, std::string_view help, std::string_view group, At at) {
  Key key{name, flag_of(name), "", std::string(value), help, group, Kind::kReal};
  key.set = [name, at](JobConfig& c, std::string_view text) -> Status {
    if (!read_number(text, at(c))) return usage_error(fmt::format("{} '{}' is no number", name, text));
    return {};
  };
  key.get = [at](const JobConfig& c) { return ordered_json(at(const_cast<JobConfig&>(c))); };
  return key;
}

template <class At>
Key boolean(std::string_view name, std::string_view short_form, std::string_view help, std::string_view group, At at) {
  Key key{name, flag_of(name), short_form, "", help, group, Kind::kBool};
  key.set = [name, at](JobConfig& c, std::string_view text) -> Status {
    if (text != "true" && text != "false") return usage_error(fmt::format("{} '{}': use true or false", name, text));
    at(c) = text == "true";
    return {};
  };
  key.get = [at](const JobConfig& c) { return ordered_json(at(const_cast<JobConfig&>(c))); };
  return key;
}

template <class At>
Key text(std::string_view name, std::string_view value, std::string_view help, std::string_view group, At at) {
  Key key{name, flag_of(name), "", std::string(value), help, group, Kind::kText};
  key.set = [at](JobConfig& c, std::string_view typed) -> Status {
    at(c) = std::string(typed);
    return {};
  };
  key.get = [at](const JobConfig& c) { return ordered_json(at(const_cast<JobConfig&>(c))); };
  return key;
}

// A word of a closed list. `later`: words that the design knows and this version refuses by name.
template <class E>
struct Word {
  std::string_view word;
  E value;
};
template <class E, class At>
Key choice(std::string_view name, std::string_view help, std::string_view group, At at, std::vector<Word<E>> words,
           std::vector<std::string_view> later = {}) {
  std::vector<std::string_view> shown;
  for (auto w = words.begin(); w != words.end(); ++w)  // the first word of a value is its name, others are synonyms
    if (std::none_of(words.begin(), w, [&](const Word<E>& before) { return before.value == w->value; }))
      shown.push_back(w->word);
  Key key{name, flag_of(name), "", fmt::format("{}", fmt::join(shown, "|")), help, group, Kind::kText};
  key.set = [=](JobConfig& c, std::string_view typed) -> Status {
    for (const Word<E>& w : words)
      if (w.word == typed) {
        at(c) = w.value;
        return {};
      }
    if (std::find(later.begin(), later.end(), typed) != later.end())
      return usage_error(fmt::format("{} {} is not in this version: use {}", name, typed, fmt::join(shown, ", ")));
    return usage_error(fmt::format("{} '{}' is unknown: use {}", name, typed, fmt::join(shown, ", ")));
  };
  key.get = [=](const JobConfig& c) {
    for (const Word<E>& w : words)
      if (w.value == at(const_cast<JobConfig&>(c))) return ordered_json(std::string(w.word));
    return ordered_json(nullptr);
  };
  return key;
}

Key link_key() {
  Key key{"link",
          "link",
          "",
          "US,GB_PER_S[,JITTER_US]",
          "emulate a link: latency, bandwidth, jitter of every message",
          "Communication",
          Kind::kText};
  key.set = [](JobConfig& c, std::string_view typed) -> Status {
    LinkModel link;
    double* const parts[] = {&link.latency_us, &link.gbytes_per_s, &link.jitter_us};
    size_t n = 0;
    for (size_t begin = 0; begin <= typed.size() && !typed.empty(); ++n) {
      const size_t end = std::min(typed.find(',', begin), typed.size());
      if (n == 3 || !read_number(typed.substr(begin, end - begin), *parts[n]) || *parts[n] < 0)
        return usage_error(
            fmt::format("link '{}' is not US,GB_PER_S[,JITTER_US]: use for example 20,5 or 20,5,3", typed));
      begin = end + 1;
    }
    if (n == 1) return usage_error(fmt::format("link '{}' lacks the bandwidth: use for example {},5", typed, typed));
    c.comm.link = link;
    return {};
  };
  key.get = [](const JobConfig& c) {
    const LinkModel& link = c.comm.link;
    if (link.latency_us == 0 && link.gbytes_per_s == 0 && link.jitter_us == 0) return ordered_json("");
    return ordered_json(fmt::format("{},{},{}", link.latency_us, link.gbytes_per_s, link.jitter_us));
  };
  return key;
}

Key turns_key() {
  Key key{"turns",    "turns",    "", "SEED", "run one task at a time, in an order drawn from SEED: reproducible",
          "Watching", Kind::kSeed};
  key.set = [](JobConfig& c, std::string_view typed) -> Status {
    c.turns = typed != "null";
    c.turns_seed = 0;
    if (c.turns && !read_number(typed, c.turns_seed))
      return usage_error(fmt::format("turns '{}' is no seed: use a whole number, 0 or more", typed));
    return {};
  };
  key.get = [](const JobConfig& c) { return c.turns ? ordered_json(c.turns_seed) : ordered_json(nullptr); };
  return key;
}

Key labels_key() {
  Key key{"labels_kept",
          "labels-kept",
          "",
          "N,N,...",
          "labels kept per sample, in turn over samples and steps: unequal token counts",
          "Data and optimizer",
          Kind::kList};
  key.set = [](JobConfig& c, std::string_view typed) -> Status {
    std::vector<int> kept;
    for (size_t begin = 0; begin <= typed.size() && !typed.empty();) {
      const size_t end = std::min(typed.find(',', begin), typed.size());
      int n = 0;
      if (!read_number(typed.substr(begin, end - begin), n) || n < 0)
        return usage_error(fmt::format("labels_kept '{}' is no list of counts: use for example 64,48,23,7", typed));
      kept.push_back(n);
      begin = end + 1;
    }
    c.labels_kept = std::move(kept);
    return {};
  };
  key.get = [](const JobConfig& c) { return ordered_json(c.labels_kept); };
  return key;
}

Key fault_key() {
  Key key{"fault",
          "fault",
          "",
          "NAME[:key=value,...]",
          "plant a bug that a real team shipped (ringscope faults); alone it brings the layout it needs",
          "Watching",
          Kind::kText};
  key.set = [](JobConfig& c, std::string_view typed) -> Status {
    c.fault = {};
    if (typed.empty()) return {};
    auto plan = parse_fault(typed);
    if (!plan) return tl::unexpected(plan.error());
    c.fault = *plan;
    return {};
  };
  key.get = [](const JobConfig& c) { return ordered_json(to_text(c.fault)); };
  return key;
}

Key mutate_key() {
  Key key{"mutate",
          "mutate",
          "",
          "OP@SITE",
          "plant one change where an operation passes (train --sites lists where); may be given several times",
          "Watching",
          Kind::kTexts};
  key.set = [](JobConfig& c, std::string_view typed) -> Status {
    auto mutation = parse_mutation(typed);
    if (!mutation) return tl::unexpected(mutation.error());
    c.mutations.push_back(std::move(*mutation));
    return {};
  };
  key.get = [](const JobConfig& c) {
    ordered_json out = ordered_json::array();
    for (const Mutation& mutation : c.mutations) out.push_back(to_text(mutation));
    return out;
  };
  return key;
}

// clang-format off
#define RS_FIELD(field) [](JobConfig& c) -> auto& { return c.field; }
// clang-format on

void add_layout(std::vector<Key>& t) {
  const char* const g = "Layout";
  t.push_back(integer("tensor_model_parallel_size", "tp", "tensor parallel ranks", g, RS_FIELD(tp)));
  t.push_back(integer("pipeline_model_parallel_size", "pp", "pipeline stages (this version: 1)", g, RS_FIELD(pp)));
  t.push_back(integer("context_parallel_size", "cp", "ranks that share a sequence through attention", g, RS_FIELD(cp)));
  t.push_back(integer("data_parallel_size", "dp", "ranks that share the batch", g, RS_FIELD(dp)));
  t.push_back(boolean("sequence_parallel", "sp", "norm, dropout and residual on S/TP", g, RS_FIELD(sequence_parallel)));
  t.push_back(choice<CpComm>("cp_comm_type", "how context parallel ranks exchange", g, RS_FIELD(cp_comm),
                             {{"p2p", CpComm::kP2p},
                              {"all_gather", CpComm::kAllGather},
                              {"allgather", CpComm::kAllGather},
                              {"global_softmax", CpComm::kGlobalSoftmax}},
                             {"a2a", "a2a+p2p"}));
  t.push_back(choice<CpLayout>(
      "cp_layout", "which rows a context parallel rank owns", g, RS_FIELD(cp_layout),
      {{"contiguous", CpLayout::kContiguous}, {"zigzag", CpLayout::kZigzag}, {"headtail", CpLayout::kZigzag}},
      {"striped"}));
  t.push_back(
      text("order", "AXES", "axes by stride, smallest first: tp-cp-dp-pp (default), tp-pp-cp-dp", g, RS_FIELD(order)));
  t.push_back(integer("seq_length", "", "tokens of a sequence", g, RS_FIELD(seq_length)));
  t.push_back(integer("micro_batch_size", "", "sequences a rank computes at once", g, RS_FIELD(micro_batch_size)));
  t.push_back(integer("global_batch_size", "", "sequences of a step, over all ranks", g, RS_FIELD(global_batch_size)));
  t.push_back(choice<DType>("dtype", "precision of weights and activations", g, RS_FIELD(dtype),
                            {{"fp32", DType::kF32}, {"fp64", DType::kF64}}, {"bf16"}));
  t.push_back(choice<AttentionBackend>("attention_backend", "blocked kernel, or the plain float64 yardstick", g,
                                       RS_FIELD(attention_backend),
                                       {{"flash", AttentionBackend::kFlash}, {"oracle", AttentionBackend::kOracle}}));
}

void add_model(std::vector<Key>& t) {
  const char* const g = "Model";
  t.push_back(choice<Arch>("arch", "GPT-2 or Llama architecture", g, RS_FIELD(model.arch),
                           {{"gpt", Arch::kGpt}, {"gpt2", Arch::kGpt}, {"llama", Arch::kLlama}}));
  t.push_back(integer("num_layers", "", "transformer blocks", g, RS_FIELD(model.num_layers)));
  t.push_back(integer("hidden_size", "", "width of the model", g, RS_FIELD(model.hidden_size)));
  t.push_back(integer("num_attention_heads", "", "query heads", g, RS_FIELD(model.num_attention_heads)));
  t.push_back(integer("num_query_groups", "", "key/value heads (default: as many as query heads)", g,
                      RS_FIELD(model.num_query_groups)));
  t.push_back(integer("head_dim", "", "width of a head; 0 = hidden size / heads", g, RS_FIELD(model.head_dim)));
  t.push_back(integer("ffn_hidden_size", "", "width of the MLP (default: 4 x hidden for gpt, 2 x for llama)", g,
                      RS_FIELD(model.ffn_hidden_size)));
  t.push_back(integer("max_position_embeddings", "", "learned positions; 0 = sequence length", g,
                      RS_FIELD(model.max_position_embeddings)));
  t.push_back(integer("vocab_size", "", "256 byte values and a padding id at least", g, RS_FIELD(model.vocab_size)));
  t.push_back(real("hidden_dropout", "P", "dropout of embedding and residual", g, RS_FIELD(model.hidden_dropout)));
  t.push_back(real("attention_dropout", "P", "dropout of attention weights", g, RS_FIELD(model.attention_dropout)));
  t.push_back(real("norm_epsilon", "X", "inside the root of LayerNorm or RMSNorm", g, RS_FIELD(model.norm_epsilon)));
  t.push_back(real("rope_theta", "X", "base of the rotary angles (llama)", g, RS_FIELD(model.rope_theta)));
  t.push_back(
      boolean("tie_embeddings", "", "one matrix for embedding and output head", g, RS_FIELD(model.tie_embeddings)));
  t.push_back(boolean("linear_bias", "", "biases in the linear layers", g, RS_FIELD(model.linear_bias)));
  t.push_back(text("checkpoint", "DIR", "start from saved weights: config.json and model.safetensors", g,
                   RS_FIELD(checkpoint)));
}

void add_training(std::vector<Key>& t) {
  const char* const g = "Data and optimizer";
  t.push_back(
      text("data", "FILE", "training text, read as bytes (default: a text inside the program)", g, RS_FIELD(data)));
  t.push_back(integer("train_iters", "", "steps", g, RS_FIELD(train_iters)));
  t.push_back(real("lr", "X", "highest learning rate", g, RS_FIELD(lr)));
  t.push_back(real("min_lr", "X", "learning rate of the last step (cosine)", g, RS_FIELD(min_lr)));
  t.push_back(integer("lr_warmup_iters", "", "steps of linear warm-up", g, RS_FIELD(lr_warmup_iters)));
  t.push_back(real("weight_decay", "X", "AdamW's, on matrices", g, RS_FIELD(weight_decay)));
  t.push_back(real("clip_grad", "X", "largest gradient norm; 0 = no clipping", g, RS_FIELD(clip_grad)));
  t.push_back(real("adam_beta1", "X", "", g, RS_FIELD(adam_beta1)));
  t.push_back(real("adam_beta2", "X", "", g, RS_FIELD(adam_beta2)));
  t.push_back(real("adam_eps", "X", "", g, RS_FIELD(adam_eps)));
  t.push_back(integer("seed", "", "of weights, dropout and link jitter", g, RS_FIELD(seed)));
  t.push_back(labels_key());
}

void add_communication(std::vector<Key>& t) {
  t.push_back(integer("p2p_slots", "", "512 KiB slots of a point-to-point FIFO; 0 = rendezvous", "Communication",
                      RS_FIELD(comm.p2p_slots)));
  t.push_back(link_key());
  Key overlap =
      boolean("overlap", "", "do not transfer K/V blocks while attention runs", "Communication", RS_FIELD(overlap));
  overlap.flag = "no-overlap";
  overlap.negated = true;
  t.push_back(overlap);
}

void add_watching(std::vector<Key>& t) {
  t.push_back(real("hang_timeout", "S", "seconds without any progress until the run counts as stalled", "Watching",
                   RS_FIELD(hang_timeout_s)));
  t.push_back(turns_key());
  t.push_back(fault_key());
  t.push_back(mutate_key());
}

#undef RS_FIELD

}  // namespace

const std::vector<Key>& keys() {
  static const std::vector<Key> table = [] {
    std::vector<Key> t;
    add_layout(t);
    add_model(t);
    add_training(t);
    add_communication(t);
    add_watching(t);
    RS_CHECK(t.size() <= 64, "JobConfig::named has one bit a key");
    return t;
  }();
  return table;
}

int index_of(std::string_view name) {
  const std::vector<Key>& table = keys();
  for (size_t i = 0; i < table.size(); ++i)
    if (table[i].name == name) return int(i);
  return -1;
}

void settle(JobConfig& c) {
  const auto named = [&](std::string_view key) { return is_named(c, key); };
  if (any_size_named(c)) {
    if (!named("tensor_model_parallel_size")) c.tp = 1;
    if (!named("pipeline_model_parallel_size")) c.pp = 1;
    if (!named("context_parallel_size")) c.cp = 1;
    if (!named("data_parallel_size")) c.dp = 1;
    if (!named("sequence_parallel")) c.sequence_parallel = false;
  }
  ModelConfig& m = c.model;
  const bool gpt = m.arch == Arch::kGpt;
  if (named("arch")) {
    if (!named("tie_embeddings")) m.tie_embeddings = gpt;
    if (!named("linear_bias")) m.linear_bias = gpt;
  }
  if ((gpt || named("num_attention_heads")) && !named("num_query_groups")) m.num_query_groups = m.num_attention_heads;
  if ((named("arch") || named("hidden_size")) && !named("ffn_hidden_size"))
    m.ffn_hidden_size = int(std::clamp<int64_t>(int64_t(m.hidden_size) * (gpt ? 4 : 2), INT32_MIN, INT32_MAX));
  if (named("lr") && !named("min_lr")) c.min_lr = c.lr / 10;
  c.comm.link.seed = c.seed;
}

}  // namespace ringscope::config
