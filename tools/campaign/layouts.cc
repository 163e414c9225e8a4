#include "tools/campaign/layouts.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace ringscope::campaign {
namespace {

using nlohmann::ordered_json;

JobConfig small_job() {
  JobConfig c;
  c.model.num_layers = 2;
  c.model.hidden_size = 32;
  c.model.num_attention_heads = 4;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 48;
  c.seq_length = 64;
  c.global_batch_size = 2;
  c.hang_timeout_s = 5;
  return c;
}

// TP x CP x DP, at most eight ranks: every axis alone, every pair, all three; rings of two, three and four.
constexpr std::array<std::array<int, 3>, 14> kShapes{{{2, 1, 1},
                                                      {1, 2, 1},
                                                      {1, 3, 1},
                                                      {1, 4, 1},
                                                      {1, 1, 2},
                                                      {1, 1, 3},
                                                      {1, 1, 4},
                                                      {2, 2, 1},
                                                      {2, 4, 1},
                                                      {1, 2, 2},
                                                      {1, 3, 2},
                                                      {1, 4, 2},
                                                      {2, 1, 2},
                                                      {2, 2, 2}}};

void draw_shape(Random& random, JobConfig& c) {
  const auto& shape = random.pick(kShapes);
  c.tp = shape[0], c.cp = shape[1], c.dp = shape[2];
  c.sequence_parallel = c.tp > 1 && random.one_in(2);
  if (c.cp > 1) {
    constexpr std::array methods{CpComm::kP2p, CpComm::kP2p, CpComm::kAllGather, CpComm::kGlobalSoftmax};
    c.cp_comm = random.pick(methods);
    c.cp_layout = random.one_in(2) ? CpLayout::kContiguous : CpLayout::kZigzag;
    c.overlap = !random.one_in(4);
    constexpr std::array slots{0, 1, 8, 8};
    c.comm.p2p_slots = random.pick(slots);
  }
}

void draw_data(Random& random, JobConfig& c) {
  if (random.one_in(3)) c.seq_length = 61;  // padded under every CP size
  const int accumulated = random.one_in(3) ? 2 : 1;
  c.micro_batch_size = random.one_in(4) ? 2 : 1;
  c.global_batch_size = c.dp * c.micro_batch_size * accumulated;
  if (random.one_in(5)) c.labels_kept = {60, 20, 7};
  constexpr std::array steps{1, 2, 3, 3, 4};
  c.train_iters = random.pick(steps);
}

void draw_model(Random& random, JobConfig& c) {
  if (random.one_in(3)) {
    c.model.arch = Arch::kGpt;
    c.model.num_query_groups = c.model.num_attention_heads;
    c.model.linear_bias = c.model.tie_embeddings = true;
  }
  if (random.one_in(5)) c.model.hidden_dropout = c.model.attention_dropout = 0.1;
}

// "--no-overlap" writes "overlap"; every other flag is its key with dashes.
std::string key_of(std::string_view flag) {
  std::string key(flag.starts_with("no-") ? flag.substr(3) : flag);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

std::string text_of(const ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return value.dump();
  std::string list;
  for (const ordered_json& item : value) list += (list.empty() ? "" : ",") + item.dump();
  return list;
}

bool is_size(const FlagRow& row) { return row.short_form == "tp" || row.short_form == "cp" || row.short_form == "dp"; }

}  // namespace

const char* name(Keep keep) { return keep == Keep::kStream ? "stream" : "flight"; }

Result<Layout> draw_layout(Random& random, const FixedFlags& fixed) {
  std::string why;
  for (int attempt = 0; attempt < 200; ++attempt) {
    Layout layout{small_job()};
    JobConfig& c = layout.config;
    draw_shape(random, c);
    draw_data(random, c);
    draw_model(random, c);
    c.seed = 1000 + random.below(9000);
    c.turns = random.one_in(3);
    c.turns_seed = random.below(10000);
    layout.keep = random.one_in(4) ? Keep::kFlight : Keep::kStream;
    for (const auto& [flag, value] : fixed)
      if (auto ok = apply_flag(c, flag, value); !ok) return tl::unexpected(ok.error());
    if (auto ok = validate(c)) return layout;
    else why = ok.error().message;
  }
  return usage_error("no job fits these flags: " + why);
}

std::string flags_of(const JobConfig& wanted) {
  const ordered_json target = ordered_json::parse(to_json(wanted));
  std::vector<const FlagRow*> rows;
  for (const FlagRow& row : config_flags())
    if (row.name != "mutate" && row.name != "fault") rows.push_back(&row);
  // What follows from a written key moves others, so: write what differs, look again. A written key moves no more.
  std::vector<char> written(rows.size(), 0);
  const auto differs = [&](const JobConfig& config, const FlagRow& row) {
    const ordered_json now = ordered_json::parse(to_json(config));
    const std::string key = key_of(row.name);
    return now.value(key, ordered_json()) != target.value(key, ordered_json());
  };
  std::string text;
  for (bool more = true; more;) {
    more = false;
    text.clear();
    JobConfig config = default_job();
    for (size_t i = 0; i < rows.size(); ++i) {
      const FlagRow& row = *rows[i];
      if (!written[i] && !(is_size(row))) continue;
      written[i] = 1;
      const ordered_json value = target.value(key_of(row.name), ordered_json());
      const std::string flag(row.short_form.empty() ? row.name : row.short_form);
      text += (text.empty() ? "--" : " --") + flag;
      if (!row.value.empty()) text += " " + text_of(value);
      (void)apply_flag(config, row.name, row.value.empty() ? "" : text_of(value));
    }
    for (size_t i = 0; i < rows.size(); ++i)
      if (!written[i] && differs(config, *rows[i])) written[i] = 1, more = true;
  }
  return text;
}

}  // namespace ringscope::campaign
