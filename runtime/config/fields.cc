#include "runtime/config/fields.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace ringscope {
namespace {

using Json = nlohmann::json;
using Get = std::function<Json(const JobConfig&)>;
using Set = std::function<Status(JobConfig&, const std::string&)>;

Error bad_value(std::string_view key, const std::string& text, const std::string& wanted) {
  return {ErrorKind::kUsage, std::string(key) + " is '" + text + "': use " + wanted};
}

template <class Access>
Field integer(std::string_view key, std::string_view short_form, std::string_view help, int low, Access access) {
  Field f{key, short_form, "N", help};
  f.set = [=](JobConfig& c, const std::string& text) -> Status {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || value < low)
      return tl::unexpected(bad_value(key, text, "a whole number of at least " + std::to_string(low)));
    access(c) = value;
    return {};
  };
  f.get = [=](const JobConfig& c) { return Json(access(const_cast<JobConfig&>(c))); };
  return f;
}

template <class Access>
Field size(std::string_view key, std::string_view short_form, std::string_view help, Access access) {
  Field f = integer(key, short_form, help, 1, access);
  f.is_size = true;
  return f;
}

template <class Access>
Field real(std::string_view key, std::string_view help, double low, double high, Access access) {
  Field f{key, "", "X", help};
  f.set = [=](JobConfig& c, const std::string& text) -> Status {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value) || value < low || value > high)
      return tl::unexpected(bad_value(key, text, "a number from " + Json(low).dump() +
                                                     (high < 1e9 ? " to " + Json(high).dump() : " up")));
    access(c) = value;
    return {};
  };
  f.get = [=](const JobConfig& c) { return Json(access(const_cast<JobConfig&>(c))); };
  return f;
}

template <class Access>
Field toggle(std::string_view key, std::string_view short_form, std::string_view help, Access access) {
  Field f{key, short_form, "", help};
  f.set = [=](JobConfig& c, const std::string& text) -> Status {
    if (text != "true" && text != "false" && text != "") return tl::unexpected(bad_value(key, text, "true or false"));
    access(c) = text != "false";
    return {};
  };
  f.get = [=](const JobConfig& c) { return Json(access(const_cast<JobConfig&>(c))); };
  return f;
}

template <class Access>
Field text(std::string_view key, std::string_view value, std::string_view help, Access access) {
  Field f{key, "", value, help};
  f.set = [=](JobConfig& c, const std::string& typed) -> Status {
    access(c) = typed;
    return {};
  };
  f.get = [=](const JobConfig& c) { return Json(access(const_cast<JobConfig&>(c))); };
  return f;
}

// One of several words.
template <class E, class Access>
Field choice(std::string_view key, std::string_view value, std::string_view help,
             std::vector<std::pair<std::string, E>> words, Access access) {
  Field f{key, "", value, help};
  f.set = [=](JobConfig& c, const std::string& typed) -> Status {
    std::string known;
    for (const auto& [word, meaning] : words) {
      if (word == typed) {
        access(c) = meaning;
        return {};
      }
      known += (known.empty() ? "" : ", ") + word;
    }
    return tl::unexpected(bad_value(key, typed, "one of " + known));
  };
  f.get = [=](const JobConfig& c) -> Json {
    for (const auto& [word, meaning] : words)
      if (access(const_cast<JobConfig&>(c)) == meaning) return word;
    return nullptr;
  };
  return f;
}

Status set_cp_comm(JobConfig& c, const std::string& typed) {
  if (typed == "p2p") c.cp_comm = CpComm::kP2p;
  else if (typed == "all_gather") c.cp_comm = CpComm::kAllGather;
  else if (typed == "global_softmax") c.cp_comm = CpComm::kGlobalSoftmax;
  else if (typed == "a2a" || typed == "a2a+p2p")
    return usage_error("cp_comm_type " + typed + " is not in this version: use p2p, all_gather or global_softmax");
  else return tl::unexpected(bad_value("cp_comm_type", typed, "p2p, all_gather or global_softmax"));
  return {};
}

Status set_cp_layout(JobConfig& c, const std::string& typed) {
  if (typed == "zigzag") c.cp_layout = CpLayout::kZigzag;
  else if (typed == "contiguous") c.cp_layout = CpLayout::kContiguous;
  else if (typed == "striped") return usage_error("cp_layout striped is not in this version: use zigzag or contiguous");
  else return tl::unexpected(bad_value("cp_layout", typed, "zigzag or contiguous"));
  return {};
}

Status set_dtype(JobConfig& c, const std::string& typed) {
  if (typed == "fp32") c.dtype = DType::kF32;
  else if (typed == "fp64") c.dtype = DType::kF64;
  else if (typed == "bf16") return usage_error("dtype bf16 is not in this version: use fp32 or fp64");
  else return tl::unexpected(bad_value("dtype", typed, "fp32 or fp64"));
  return {};
}

// alpha_us,GB_per_s[,jitter_us]
Status set_link(JobConfig& c, const std::string& typed) {
  double v[3] = {0, 0, 0};
  int n = 0;
  const char* at = typed.data();
  const char* const last = at + typed.size();
  while (n < 3 && at < last) {
    const auto [end, error] = std::from_chars(at, last, v[n]);
    if (error != std::errc{} || v[n] < 0 || !std::isfinite(v[n])) break;
    ++n;
    at = end;
    if (at < last && *at == ',') ++at;
    else break;
  }
  if (n < 2 || at != last)
    return tl::unexpected(bad_value("link", typed, "latency_us,GB_per_s[,jitter_us], for example 20,0.5 or 20,0.5,5"));
  c.comm.link = {v[0], v[1], v[2], c.seed};
  return {};
}

Status set_labels_kept(JobConfig& c, const std::string& typed) {
  std::vector<int> values;
  const Json list = Json::parse("[" + typed + "]", nullptr, false);
  if (list.is_discarded()) return tl::unexpected(bad_value("labels_kept", typed, "a list of counts like 64,48,23"));
  for (const Json& item : list) {
    const Json& one = item;
    if (one.is_array()) {
      for (const Json& inner : one)
        if (inner.is_number_integer()) values.push_back(inner);
    } else if (one.is_number_integer()) {
      values.push_back(one);
    } else {
      return tl::unexpected(bad_value("labels_kept", typed, "a list of counts like 64,48,23"));
    }
  }
  c.labels_kept = values;
  return {};
}

std::vector<Field> make_fields() {
#define RS_AT(member) [](JobConfig& c) -> auto& { return c.member; }
  const double big = 1e12;
  std::vector<Field> all;
  all.push_back(size("tensor_model_parallel_size", "tp", "ranks that share every layer's matrices", RS_AT(tp)));
  all.push_back(size("pipeline_model_parallel_size", "pp", "pipeline stages (1 in this version)", RS_AT(pp)));
  all.push_back(size("context_parallel_size", "cp", "ranks that share every sequence through attention", RS_AT(cp)));
  all.push_back(size("data_parallel_size", "dp", "ranks that share the batch", RS_AT(dp)));
  all.push_back(toggle("sequence_parallel", "sp", "split norm, dropout and residual over the TP ranks", RS_AT(sequence_parallel)));
  all.push_back({"cp_comm_type", "", "p2p|all_gather|global_softmax", "how context parallelism exchanges keys and values",
                 false, set_cp_comm, [](const JobConfig& c) -> Json {
                   return c.cp_comm == CpComm::kP2p ? "p2p" : c.cp_comm == CpComm::kAllGather ? "all_gather" : "global_softmax";
                 }});
  all.push_back({"cp_layout", "", "contiguous|zigzag", "which tokens a CP rank owns", false, set_cp_layout,
                 [](const JobConfig& c) -> Json { return name(c.cp_layout); }});
  all.push_back(text("order", "tp-cp-dp-pp", "axes from the smallest stride; the article's is tp-pp-cp-dp", RS_AT(order)));
  all.push_back(toggle("overlap", "", "move K/V on a second stream while attention runs", RS_AT(overlap)));
  all.push_back(integer("seq_length", "", "tokens of a sequence", 1, RS_AT(seq_length)));
  all.push_back(integer("micro_batch_size", "", "sequences a rank computes at once", 1, RS_AT(micro_batch_size)));
  all.push_back(integer("global_batch_size", "", "sequences of an optimizer step", 1, RS_AT(global_batch_size)));
  all.push_back({"dtype", "", "fp64|fp32", "type of parameters and activations", false, set_dtype,
                 [](const JobConfig& c) -> Json { return name(c.dtype); }});
  all.push_back(choice<AttentionBackend>("attention_backend", "flash|oracle", "the fast kernel, or plain float64 loops",
                                         {{"flash", AttentionBackend::kFlash}, {"oracle", AttentionBackend::kOracle}},
                                         RS_AT(attention_backend)));
  all.push_back(choice<Arch>("arch", "gpt|llama", "GPT-2 or Llama", {{"gpt", Arch::kGpt}, {"llama", Arch::kLlama}}, RS_AT(model.arch)));
  all.push_back(integer("num_layers", "", "transformer blocks", 1, RS_AT(model.num_layers)));
  all.push_back(integer("hidden_size", "", "width of the residual stream", 1, RS_AT(model.hidden_size)));
  all.push_back(integer("num_attention_heads", "", "query heads", 1, RS_AT(model.num_attention_heads)));
  all.push_back(integer("num_query_groups", "", "key/value heads (grouped-query attention)", 1, RS_AT(model.num_query_groups)));
  all.push_back(integer("ffn_hidden_size", "", "width of the MLP", 1, RS_AT(model.ffn_hidden_size)));
  all.push_back(integer("max_position_embeddings", "", "learned positions; 0 = seq_length", 0, RS_AT(model.max_position_embeddings)));
  all.push_back(real("hidden_dropout", "dropout on embeddings and residuals", 0, 0.99, RS_AT(model.hidden_dropout)));
  all.push_back(real("attention_dropout", "dropout on attention weights", 0, 0.99, RS_AT(model.attention_dropout)));
  all.push_back(text("checkpoint", "DIR", "start from a Hugging Face style GPT-2 or Llama directory", RS_AT(checkpoint)));
  all.push_back(text("data", "FILE", "training text, any bytes (default: a text inside the program)", RS_AT(data)));
  all.push_back(integer("train_iters", "", "optimizer steps", 1, RS_AT(train_iters)));
  all.push_back(real("lr", "peak learning rate", 0, 1e3, RS_AT(lr)));
  all.push_back(real("min_lr", "learning rate of the last step", 0, 1e3, RS_AT(min_lr)));
  all.push_back(integer("lr_warmup_iters", "", "steps of linear warm-up", 0, RS_AT(lr_warmup_iters)));
  all.push_back(real("weight_decay", "on matrices and embeddings", 0, 1e3, RS_AT(weight_decay)));
  all.push_back(real("clip_grad", "largest gradient norm; 0 = no clipping", 0, big, RS_AT(clip_grad)));
  all.push_back(real("adam_beta1", "AdamW", 0, 0.999999, RS_AT(adam_beta1)));
  all.push_back(real("adam_beta2", "AdamW", 0, 0.99999999, RS_AT(adam_beta2)));
  all.push_back(real("adam_eps", "AdamW", 0, 1, RS_AT(adam_eps)));
  all.push_back(integer("seed", "", "of weights, dropout and link jitter", 0, RS_AT(seed)));
  all.push_back({"labels_kept", "", "N,N,...", "labels counted per sample, in turn (unequal token counts)", false,
                 set_labels_kept, [](const JobConfig& c) { return Json(c.labels_kept); }});
  all.push_back(integer("p2p_slots", "", "512 KiB slots of a point-to-point FIFO; 0 = rendezvous", 0, RS_AT(comm.p2p_slots)));
  all.push_back({"link", "", "US,GB_S[,JITTER_US]", "emulated link: latency, bandwidth, jitter", false, set_link,
                 [](const JobConfig& c) -> Json {
                   const LinkModel& l = c.comm.link;
                   if (l.latency_us == 0 && l.gbytes_per_s == 0) return nullptr;
                   return Json(l.latency_us).dump() + "," + Json(l.gbytes_per_s).dump() + "," + Json(l.jitter_us).dump();
                 }});
  all.push_back(real("hang_timeout", "seconds without progress that count as a stall", 0.05, 1e6, RS_AT(hang_timeout_s)));
#undef RS_AT
  return all;
}

}  // namespace

std::span<const Field> fields() {
  static const std::vector<Field> all = make_fields();
  return all;
}

std::span<const Synonym> synonyms() {
  static constexpr Synonym all[] = {
      {"tensor_parallel_size", "tensor_model_parallel_size"},
      {"pipeline_parallel_size", "pipeline_model_parallel_size"},
      {"ring_attention_comm_overlap", "overlap"},
      {"sequence_length", "seq_length"},
      {"max_seq_length", "seq_length"},
      {"num_key_value_heads", "num_query_groups"},
      {"iterations", "train_iters"},
      {"learning_rate", "lr"},
  };
  return all;
}

}  // namespace ringscope
