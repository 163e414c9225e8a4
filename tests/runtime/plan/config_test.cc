#include "runtime/config/job_config.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

namespace ringscope {
namespace {

using nlohmann::json;

std::string refusal(const Status& status) { return status ? "" : status.error().message; }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

JobConfig with(JobConfig config, std::initializer_list<std::pair<const char*, const char*>> flags) {
  for (const auto& [name, value] : flags) {
    const Status status = apply_flag(config, name, value);
    EXPECT_TRUE(status) << refusal(status);
  }
  return config;
}

TEST(ConfigJson, ReadsTheArticlesExample) {
  JobConfig config = default_job();
  const Status status = apply_json(config, R"({"sequence_parallel": true, "context_parallel_size": 4,
    "tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 1, "data_parallel_size": 1, "seq_length": 32768,
    "micro_batch_size": 1, "global_batch_size": 8, "attention_backend": "flash", "use_ring_attention": true,
    "ring_attention_comm_overlap": true})",
                                   "article.json");
  ASSERT_TRUE(status) << refusal(status);
  EXPECT_EQ(config.cp, 4);
  EXPECT_EQ(config.tp, 2);
  EXPECT_EQ(config.dp, 1);
  EXPECT_TRUE(config.sequence_parallel);
  EXPECT_EQ(config.seq_length, 32768);
  EXPECT_EQ(config.global_batch_size, 8);
  EXPECT_EQ(config.cp_comm, CpComm::kP2p);
  EXPECT_TRUE(config.overlap);
  EXPECT_TRUE(validate(config)) << refusal(validate(config));
}

TEST(ConfigJson, RingSwitchesAreSynonyms) {
  JobConfig config;
  ASSERT_TRUE(apply_json(config, R"({"use_ring_attention": false, "ring_attention_comm_overlap": false})", "x"));
  EXPECT_EQ(config.cp_comm, CpComm::kAllGather);
  EXPECT_FALSE(config.overlap);
}

TEST(ConfigJson, RefusalsNameFileKeyAndNearest) {
  const auto message = [](const char* text) {
    JobConfig config;
    return refusal(apply_json(config, text, "job.json"));
  };
  EXPECT_EQ(message(R"({"seq_lenght": 64})"), "job.json: unknown key 'seq_lenght'; did you mean 'seq_length'?");
  EXPECT_TRUE(has(message(R"({"seq_length": "64"})"), "seq_length needs a whole number, not \"64\""));
  EXPECT_TRUE(has(message(R"({"seq_length": 6.5})"), "seq_length needs a whole number"));
  EXPECT_TRUE(has(message(R"({"seq_length": 99999999999})"), "no whole number in range"));
  EXPECT_TRUE(has(message(R"({"lr": true})"), "lr needs a number"));
  EXPECT_TRUE(has(message(R"({"dtype": "bf16"})"), "dtype bf16 is not in this version: use fp32, fp64"));
  EXPECT_TRUE(has(message(R"({"cp_layout": "striped"})"), "cp_layout striped is not in this version"));
  EXPECT_TRUE(has(message(R"({"cp_comm_type": "a2a"})"), "cp_comm_type a2a is not in this version"));
  EXPECT_TRUE(
      has(message(R"({"cp_comm_type": "tcp"})"), "cp_comm_type 'tcp' is unknown: use p2p, all_gather, global_softmax"));
  EXPECT_TRUE(has(message(R"({"lr": 1, "lr": 2})"), "key 'lr' is written twice"));
  EXPECT_TRUE(has(message("{\n\"lr\": 1,\n}"), "job.json:3: not valid JSON"));
  EXPECT_TRUE(has(message("{\"seq_length\": 256e99999}"), "a number that is too large"));
  EXPECT_TRUE(has(message("[1]"), "must be one JSON object"));
  EXPECT_TRUE(has(message(R"({"labels_kept": [1, -2]})"), "no list of counts"));
  JobConfig config;
  EXPECT_EQ(apply_json(config, "{", "x").error().kind, ErrorKind::kData);
  EXPECT_EQ(apply_json(config, R"({"nope": 1})", "x").error().kind, ErrorKind::kUsage);
}

TEST(ConfigSizes, NamingOneMakesTheOthersOne) {
  JobConfig config = with(default_job(), {{"cp", "4"}});
  EXPECT_EQ(config.cp, 4);
  EXPECT_EQ(config.tp, 1);
  EXPECT_EQ(config.dp, 1);
  EXPECT_FALSE(config.sequence_parallel);
  config = with(config, {{"tensor-model-parallel-size", "2"}});
  EXPECT_EQ(config.cp, 4);
  EXPECT_EQ(config.tp, 2);
}

TEST(ConfigSizes, OrderOfFlagsDoesNotMatter) {
  const JobConfig a = with(default_job(), {{"sp", ""}, {"tp", "2"}}),
                  b = with(default_job(), {{"tp", "2"}, {"sp", ""}});
  EXPECT_EQ(to_json(a), to_json(b));
  EXPECT_TRUE(a.sequence_parallel);
  const JobConfig c = with(default_job(), {{"num-query-groups", "2"}, {"num-attention-heads", "4"}});
  const JobConfig d = with(default_job(), {{"num-attention-heads", "4"}, {"num-query-groups", "2"}});
  EXPECT_EQ(to_json(c), to_json(d));
  EXPECT_EQ(c.model.num_query_groups, 2);
}

TEST(ConfigSizes, JsonAndFlagsAddUp) {
  JobConfig config = default_job();
  ASSERT_TRUE(apply_json(config, R"({"tensor_model_parallel_size": 2})", "x"));
  config = with(config, {{"cp", "2"}});
  EXPECT_EQ(config.tp, 2);
  EXPECT_EQ(config.cp, 2);
  EXPECT_EQ(config.dp, 1);
  JobConfig untouched = default_job();
  ASSERT_TRUE(apply_json(untouched, R"({"seq_length": 64})", "x"));
  EXPECT_EQ(untouched.dp, 2);
}

TEST(ConfigModel, FollowsArchitecture) {
  const JobConfig gpt = with(default_job(), {{"arch", "gpt"}});
  EXPECT_TRUE(gpt.model.tie_embeddings);
  EXPECT_TRUE(gpt.model.linear_bias);
  EXPECT_EQ(gpt.model.num_query_groups, gpt.model.num_attention_heads);
  EXPECT_EQ(gpt.model.ffn_hidden_size, 4 * gpt.model.hidden_size);
  EXPECT_TRUE(validate(gpt)) << refusal(validate(gpt));
  const JobConfig written = with(default_job(), {{"ffn-hidden-size", "96"}, {"arch", "gpt"}, {"hidden-size", "64"}});
  EXPECT_EQ(written.model.ffn_hidden_size, 96);
  const JobConfig slow = with(default_job(), {{"lr", "1e-4"}});
  EXPECT_DOUBLE_EQ(slow.min_lr, 1e-5);
}

TEST(ConfigFlags, ReadEveryKindOfValue) {
  const JobConfig c = with(JobConfig(), {{"link", "20,5,3"},
                                         {"turns", "7"},
                                         {"labels-kept", "64,48"},
                                         {"no-overlap", ""},
                                         {"fault", "rank-exit:step=2"},
                                         {"hang-timeout", "2.5"},
                                         {"seed", "18446744073709551615"},
                                         {"order", "tp-pp-cp-dp"},
                                         {"data", "a b.txt"}});
  EXPECT_DOUBLE_EQ(c.comm.link.latency_us, 20);
  EXPECT_DOUBLE_EQ(c.comm.link.gbytes_per_s, 5);
  EXPECT_DOUBLE_EQ(c.comm.link.jitter_us, 3);
  EXPECT_EQ(c.comm.link.seed, UINT64_MAX);
  EXPECT_TRUE(c.turns);
  EXPECT_EQ(c.turns_seed, 7u);
  EXPECT_EQ(c.labels_kept, (std::vector<int>{64, 48}));
  EXPECT_FALSE(c.overlap);
  EXPECT_EQ(c.fault.step, 2);
  EXPECT_DOUBLE_EQ(c.hang_timeout_s, 2.5);
  EXPECT_EQ(c.data, "a b.txt");
}

TEST(ConfigFlags, RefuseUnreadableValues) {
  JobConfig c;
  EXPECT_EQ(refusal(apply_flag(c, "sequence-lenth", "1")), "unknown flag --sequence-lenth");
  EXPECT_TRUE(has(refusal(apply_flag(c, "seq-lenght", "1")), "did you mean 'seq-length'"));
  for (const auto& [flag, value] : {std::pair("tp", "two"),
                                    {"tp", ""},
                                    {"tp", "2x"},
                                    {"lr", "nan"},
                                    {"lr", "inf"},
                                    {"lr", "0x1p"},
                                    {"link", "5"},
                                    {"link", "1,2,3,4"},
                                    {"link", "-1,2"},
                                    {"turns", "-1"},
                                    {"seed", "-1"},
                                    {"labels-kept", "1,,2"},
                                    {"sequence-parallel", "maybe"},
                                    {"dtype", "float"}})
    EXPECT_EQ(apply_flag(c, flag, value).error().kind, ErrorKind::kUsage) << flag << "=" << value;
  EXPECT_EQ(to_json(c), to_json(JobConfig())) << "a refused flag left something behind";
}

TEST(ConfigFlags, TableIsComplete) {
  std::set<std::string_view> names;
  for (const FlagRow& row : config_flags()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    if (!row.short_form.empty()) {
      EXPECT_TRUE(names.insert(row.short_form).second) << row.short_form;
    }
    EXPECT_FALSE(row.group.empty()) << row.name;
  }
  for (const char* needed : {"tensor-model-parallel-size",
                             "pipeline-model-parallel-size",
                             "context-parallel-size",
                             "data-parallel-size",
                             "sequence-parallel",
                             "cp-comm-type",
                             "cp-layout",
                             "order",
                             "seq-length",
                             "micro-batch-size",
                             "global-batch-size",
                             "dtype",
                             "tp",
                             "pp",
                             "cp",
                             "dp",
                             "sp",
                             "arch",
                             "num-layers",
                             "hidden-size",
                             "num-attention-heads",
                             "num-query-groups",
                             "ffn-hidden-size",
                             "max-position-embeddings",
                             "hidden-dropout",
                             "attention-dropout",
                             "checkpoint",
                             "data",
                             "train-iters",
                             "lr",
                             "min-lr",
                             "lr-warmup-iters",
                             "weight-decay",
                             "clip-grad",
                             "adam-beta1",
                             "adam-beta2",
                             "adam-eps",
                             "seed",
                             "p2p-slots",
                             "link",
                             "no-overlap",
                             "hang-timeout",
                             "turns",
                             "fault"})
    EXPECT_TRUE(names.contains(needed)) << needed;
}

TEST(ConfigJson, WritesWhatItReads) {
  const JobConfig c = with(default_job(), {{"cp", "4"},
                                           {"arch", "gpt"},
                                           {"fault", "ring-buffer-reuse:rank=2,step=3"},
                                           {"link", "0.5,1.25"},
                                           {"turns", "9"},
                                           {"labels-kept", "5,6"},
                                           {"no-overlap", ""}});
  const std::string text = to_json(c);
  JobConfig again;
  const Status status = apply_json(again, text, "round trip");
  ASSERT_TRUE(status) << refusal(status);
  EXPECT_EQ(to_json(again), text);
  EXPECT_EQ(json::parse(text)["fault"], "ring-buffer-reuse:rank=2,layer=0,step=3");
  EXPECT_EQ(json::parse(to_json(default_job()))["turns"], nullptr);
}

TEST(ConfigJson, WhatATraceHoldsIsTheSameWithAndWithoutAFault) {
  const JobConfig clean = with(default_job(), {{"cp", "4"}});
  EXPECT_EQ(to_trace_json(with(clean, {{"fault", "ring-early-exit:rank=2"}})), to_trace_json(clean));
  EXPECT_EQ(to_trace_json(with(clean, {{"mutate", "drop@ring.kv_send"}, {"mutate", "nan@swiglu"}})),
            to_trace_json(clean));
  json whole = json::parse(to_json(clean));
  whole.erase("fault");
  whole.erase("mutate");
  EXPECT_EQ(json::parse(to_trace_json(clean)), whole);
}

TEST(Validate, AcceptsTheDefaults) {
  EXPECT_TRUE(validate(default_job())) << refusal(validate(default_job()));
  EXPECT_TRUE(validate(JobConfig())) << refusal(validate(JobConfig()));
}

TEST(Validate, SentencesNameTheValueAndWhatToUse) {
  const auto refused = [](std::initializer_list<std::pair<const char*, const char*>> flags) {
    const Status status = validate(with(JobConfig(), flags));
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(refused({{"num-attention-heads", "6"}, {"hidden-size", "96"}, {"num-query-groups", "2"}, {"tp", "4"}}),
            "num_attention_heads 6 cannot be split over tensor_model_parallel_size 4: use 4 or 8 heads, or --tp 2");
  EXPECT_EQ(refused({{"num-attention-heads", "8"}, {"num-query-groups", "2"}, {"tp", "4"}}),
            "num_query_groups 2 cannot be split over tensor_model_parallel_size 4: use 4 groups, or --tp 2");
  EXPECT_EQ(refused({{"hidden-size", "66"}, {"num-attention-heads", "4"}}),
            "hidden_size 66 cannot be split over num_attention_heads 4: use 64 or 68");
  EXPECT_EQ(refused({{"global-batch-size", "6"}, {"dp", "4"}}),
            "global_batch_size 6 is no multiple of micro_batch_size 1 x data_parallel_size 4: use 4 or 8");
  EXPECT_TRUE(has(refused({{"num-attention-heads", "6"}, {"hidden-size", "96"}, {"num-query-groups", "4"}}),
                  "use 4 or 8 heads"));
  EXPECT_TRUE(has(refused({{"ffn-hidden-size", "99"}, {"tp", "2"}}), "ffn_hidden_size 99 cannot be split"));
  EXPECT_TRUE(has(refused({{"pp", "2"}}), "pipeline_model_parallel_size 2 is not in this version"));
  EXPECT_TRUE(has(refused({{"sp", ""}}), "use --tp 2 or more"));
  EXPECT_TRUE(has(refused({{"seq-length", "0"}}), "seq_length is 0"));
  EXPECT_TRUE(has(refused({{"tp", "0"}}), "tensor_model_parallel_size is 0"));
  EXPECT_TRUE(has(refused({{"order", "tp-cp"}}), "order 'tp-cp'"));
  EXPECT_TRUE(has(refused({{"dp", "1000"}, {"global-batch-size", "1000"}}), "at most 512"));
  EXPECT_TRUE(has(refused({{"arch", "gpt"}, {"seq-length", "128"}, {"max-position-embeddings", "64"}}),
                  "longer than max_position_embeddings"));
  EXPECT_TRUE(has(refused({{"attention-dropout", "1"}}), "attention_dropout is 1"));
  EXPECT_TRUE(has(refused({{"min-lr", "1"}}), "min_lr 1 is above lr"));
  EXPECT_TRUE(has(refused({{"hang-timeout", "0"}}), "hang_timeout is 0"));
  EXPECT_TRUE(has(refused({{"train-iters", "0"}}), "train_iters is 0"));
  EXPECT_TRUE(has(refused({{"num-layers", "0"}}), "num_layers is 0"));
  EXPECT_EQ(refused({{"linear-bias", ""}}), "linear_bias true: arch llama has none; leave it out");
  EXPECT_TRUE(has(refused({{"arch", "gpt"}, {"linear-bias", "false"}}), "arch gpt always has biases"));
  EXPECT_TRUE(has(refused({{"arch", "gpt"}, {"rope-theta", "5e5"}}), "arch gpt has learned positions"));
  EXPECT_TRUE(has(refused({{"arch", "gpt"}, {"num-query-groups", "2"}}), "arch gpt has no grouped heads"));
  EXPECT_TRUE(
      has(refused({{"hidden-size", "12"}, {"num-attention-heads", "4"}}), "rotary positions need an even width"));
  EXPECT_TRUE(
      has(refused({{"hidden-size", "1024"}, {"num-attention-heads", "2"}}), "use 4 or more num_attention_heads"));
}

TEST(Validate, FaultsNeedTheirPlace) {
  const auto refused = [](std::initializer_list<std::pair<const char*, const char*>> flags) {
    const Status status = validate(with(default_job(), flags));
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(refused({{"cp", "2"}, {"fault", "ring-buffer-reuse"}}),
            "fault ring-buffer-reuse needs --cp 4 or more and --cp-comm-type p2p");
  EXPECT_EQ(refused({{"cp", "4"}, {"cp-comm-type", "all_gather"}, {"fault", "ring-early-exit"}}),
            "fault ring-early-exit needs --cp 2 or more and --cp-comm-type p2p");
  EXPECT_TRUE(has(refused({{"cp", "4"}, {"fault", "ring-early-exit:rank=4"}}),
                  "rank=4, but the job has 4 ranks: use at most 3"));
  EXPECT_TRUE(has(refused({{"cp", "4"}, {"fault", "ring-early-exit:layer=9"}}), "layer=9, but the job has 4 layers"));
  EXPECT_TRUE(has(refused({{"cp", "4"}, {"fault", "ring-early-exit:step=30"}}), "step=30, but the job has 30 steps"));
  EXPECT_EQ(refused({{"cp", "4"}, {"fault", "ring-early-exit:rank=3,layer=3,step=29"}}), "accepted");
}

}  // namespace
}  // namespace ringscope
