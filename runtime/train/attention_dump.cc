#include "runtime/train/attention_dump.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/config/split.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope {
namespace {

using json = nlohmann::ordered_json;
using Values = std::vector<double>;

// [batch x rows, heads] as [batch, heads, rows].
Values heads_first(const Values& values, int64_t batch, int64_t rows, int64_t heads) {
  Values out(values.size());
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < rows; ++s)
      for (int64_t h = 0; h < heads; ++h) out[(b * heads + h) * rows + s] = values[(b * rows + s) * heads + h];
  return out;
}

FileTensors file_of(const AttentionCall& call, const JobConfig& config, const SequenceSplit& split) {
  const auto tensor = [&](const Values& values, int64_t heads) {
    return FileTensor{config.dtype, {call.batch, call.rows, heads, call.dim}, values, {}};
  };
  FileTensors file;
  for (const auto& [name, values] :
       {std::pair{"q", &call.q}, {"out", &call.out}, {"dout", &call.dout}, {"dq", &call.dq}})
    file[name] = tensor(*values, call.heads_q);
  for (const auto& [name, values] : {std::pair{"k", &call.k}, {"v", &call.v}, {"dk", &call.dk}, {"dv", &call.dv}})
    file[name] = tensor(*values, call.heads_kv);
  file["lse"] = {DType::kF64,
                 {call.batch, call.heads_q, call.rows},
                 heads_first(call.lse, call.batch, call.rows, call.heads_q),
                 {}};
  FileTensor& positions = file["positions"];
  positions.dtype = DType::kI64;
  positions.shape = {call.rows};
  for (const int32_t row : split.rows(call.coord.cp)) positions.integer.push_back(row < split.length() ? row : -1);
  return file;
}

const char* word(DType type) { return type == DType::kF64 ? "F64" : "F32"; }

json tensors_json(const JobConfig& config, const std::vector<int>& ranks) {
  json out;
  for (const char* name : {"q", "k", "v", "out", "dout", "dq", "dk", "dv"})
    out[name] = {{"name", name}, {"axes", "bshd"}, {"dtype", word(config.dtype)}, {"ranks", ranks}};
  out["lse"] = {{"name", "lse"}, {"axes", "bhs"}, {"dtype", "F64"}, {"ranks", ranks}};
  out["positions"] = {{"name", "positions"}, {"axes", "s"}, {"dtype", "I64"}, {"ranks", ranks}};
  return out;
}

std::string layout_json(const JobConfig& c, const AttentionCall& call) {
  std::vector<int> ranks, map;
  for (int r = 0; r < c.cp; ++r) ranks.push_back(r);
  for (int64_t h = 0; h < call.heads_q; ++h) map.push_back(int(h / (call.heads_q / call.heads_kv)));
  const std::string type = name(c.dtype);
  const json out = {
      {"format", "ringscope-dump"},
      {"version", 1},
      {"kind", "attention"},
      {"files", {{"pattern", "rank_{rank:03d}.safetensors"}, {"ranks", ranks}}},
      {"tensors", tensors_json(c, ranks)},
      {"parallel", {{"cp", c.cp}, {"tp", c.tp}, {"dp", c.dp}, {"ulysses", 1}}},
      {"sequence", {{"length", c.seq_length}, {"batch", call.batch}, {"cu_seqlens", {0, c.seq_length}}}},
      {"layout", {{"kind", name(c.cp_layout)}, {"positions_tensor", "positions"}}},
      {"heads", {{"q", call.heads_q}, {"kv", call.heads_kv}, {"d_qk", call.dim}, {"d_v", call.dim}, {"map", map}}},
      {"scale", 1 / std::sqrt(double(call.dim))},
      {"mask", {{"causal", true}, {"window", nullptr}, {"documents", false}}},
      {"softcap", 0.0},
      {"alibi_slopes", nullptr},
      {"sinks", nullptr},
      {"dropout_p", 0.0},
      {"lse", {{"base", "e"}, {"empty_row", "-inf"}}},
      {"rounding",
       {{"p", type},
        {"block_out", c.cp > 1 && c.cp_comm != CpComm::kAllGather ? json(type) : json(nullptr)},
        {"accumulate", type},
        {"merge", type}}},
      {"stage", "prefill"}};
  return out.dump(1) + "\n";
}

Status write_text(const std::string& path, const std::string& text) {
  const std::string unfinished = path + ".tmp";
  {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    file << text << std::flush;
    if (!file) return data_error(path + ": cannot write: " + std::strerror(errno));
  }
  if (std::rename(unfinished.c_str(), path.c_str()) == 0) return {};
  return data_error(path + ": cannot write: " + std::strerror(errno));
}

}  // namespace

bool AttentionCapture::picked() const {
  const Where& where = context_.device->where();
  return where.layer == pick_.layer && where.step == pick_.step && where.microbatch == 0;
}

void AttentionCapture::forward(const AttentionSaved& saved) {
  if (picked()) saved_ = saved;
}

void AttentionCapture::backward(const Tensor& d_o, const AttentionGrad& grad) {
  if (!picked()) return;
  d_o_ = d_o;
  grad_ = grad;
}

bool AttentionCapture::read_back(int64_t batch, AttentionCall& call) {
  if (!d_o_.defined()) return true;
  const Tensor &q = saved_.q, &kv = saved_.kv;
  call.coord = context_.coord;
  call.batch = batch;
  call.rows = q.dim(0) / batch;
  call.heads_q = q.dim(1);
  call.heads_kv = kv.dim(2);
  call.dim = q.dim(2);
  const struct {
    Tensor from;
    std::vector<double>& to;
  } parts[] = {{kv[0], call.k},         {kv[1], call.v},         {saved_.o, call.out},
               {saved_.lse, call.lse},  {d_o_, call.dout},       {grad_.dq, call.dq},
               {grad_.dkv[0], call.dk}, {grad_.dkv[1], call.dv}, {q, call.q}};
  for (const auto& part : parts) {
    part.to = context_.device->read_back(*context_.compute, part.from, "attention dump");
    if (part.to.empty()) return false;
  }
  saved_ = {};
  d_o_ = {};
  grad_ = {};
  return true;
}

Status check(const AttentionPick& pick, const JobConfig& config) {
  if (pick.layer < 0 || pick.layer >= config.model.num_layers)
    return usage_error(fmt::format("dump-attention names layer {}, but the model has {}: use 0 to {}", pick.layer,
                                   config.model.num_layers, config.model.num_layers - 1));
  if (pick.step < 0 || pick.step >= config.train_iters)
    return usage_error(fmt::format("dump-attention names step {}, but the job has {}: use 0 to {}", pick.step,
                                   config.train_iters, config.train_iters - 1));
  if (config.model.attention_dropout > 0)
    return usage_error("a dump of attention with dropout cannot be checked by anybody: use --attention-dropout 0");
  return {};
}

Status write_attention_dump(const std::string& dir, const JobConfig& config, const std::vector<AttentionCall>& calls) {
  const SequenceSplit split = *sequence_split(config);
  const auto folder_of = [&](const Coord& at) {
    return config.tp * config.dp == 1 ? dir : fmt::format("{}/tp{}_dp{}", dir, at.tp, at.dp);
  };
  for (const AttentionCall& call : calls) {
    std::error_code error;
    std::filesystem::create_directories(folder_of(call.coord), error);
    if (error) return data_error(folder_of(call.coord) + ": cannot create: " + error.message());
    const std::string path = fmt::format("{}/rank_{:03d}.safetensors", folder_of(call.coord), call.coord.cp);
    if (auto ok = write_safetensors(path, file_of(call, config, split)); !ok) return ok;
  }
  for (const AttentionCall& call : calls)
    if (call.coord.cp == 0)
      if (auto ok = write_text(folder_of(call.coord) + "/layout.json", layout_json(config, call)); !ok) return ok;
  return {};
}

}  // namespace ringscope
