// --dump-attention: the files alone, put together by their positions, must be the attention of the oracle.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "runtime/oracle/oracle.h"
#include "runtime/train/train.h"
#include "tracedb/tensorfile/safetensors.h"

namespace ringscope {
namespace {

namespace fs = std::filesystem;

JobConfig job(int tp, int cp, int dp, DType dtype) {
  JobConfig c;
  c.model.num_layers = 2;
  c.model.hidden_size = 32;
  c.model.num_attention_heads = 4;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 48;
  c.tp = tp, c.cp = cp, c.dp = dp;
  c.sequence_parallel = tp > 1;
  c.seq_length = 61;  // padded
  c.micro_batch_size = 2;
  c.global_batch_size = 4 * dp;  // two microbatches: the first is dumped
  c.train_iters = 2;
  c.dtype = dtype;
  return c;
}

class Folder {
 public:
  Folder() : dir_(fs::temp_directory_path() / ("ringscope-dump-test-" + std::to_string(getpid()))) {}
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(dir_, ignored);
  }
  std::string path() const { return dir_.string(); }

 private:
  fs::path dir_;
};

// Tensors of one CP group's folder, in the order of the whole sequence.
struct Whole {
  nlohmann::json layout;
  std::map<std::string, std::vector<double>> tensors;  // [batch x length, heads, dim]; lse [batch x length, heads]
};

// Where a value of a file's tensor belongs in the whole one.
void place(const FileTensor& from, const std::string& axes, int64_t sample, int64_t local, int64_t row, int64_t length,
           std::vector<double>& to) {
  if (axes == "bhs") {
    const int64_t heads = from.shape[1], rows = from.shape[2];
    to.resize(size_t(from.shape[0] * length * heads));
    for (int64_t h = 0; h < heads; ++h)
      to[size_t((sample * length + row) * heads + h)] = from.real[size_t((sample * heads + h) * rows + local)];
    return;
  }
  const int64_t rows = from.shape[1], width = from.shape[2] * from.shape[3];
  to.resize(size_t(from.shape[0] * length * width));
  for (int64_t x = 0; x < width; ++x)
    to[size_t((sample * length + row) * width + x)] = from.real[size_t((sample * rows + local) * width + x)];
}

Whole read_whole(const std::string& dir) {
  Whole whole;
  std::ifstream file(dir + "/layout.json");
  whole.layout = nlohmann::json::parse(file);
  const int64_t length = whole.layout["sequence"]["length"], batch = whole.layout["sequence"]["batch"];
  std::vector<int> seen(size_t(length), 0);
  for (const int rank : whole.layout["files"]["ranks"]) {
    char name[40];
    std::snprintf(name, sizeof name, "/rank_%03d.safetensors", rank);
    const auto tensors = read_safetensors(dir + name);
    EXPECT_TRUE(tensors) << tensors.error().message;
    const std::vector<int64_t>& positions = tensors->at("positions").integer;
    EXPECT_EQ(tensors->size(), whole.layout["tensors"].size());
    for (size_t local = 0; local < positions.size(); ++local) {
      if (positions[local] < 0) continue;
      ++seen[size_t(positions[local])];
      for (const auto& [tensor, facts] : whole.layout["tensors"].items())
        for (int64_t b = 0; b < batch && tensor != "positions"; ++b)
          place(tensors->at(tensor), facts["axes"], b, int64_t(local), positions[local], length, whole.tensors[tensor]);
    }
  }
  EXPECT_EQ(seen, std::vector<int>(size_t(length), 1)) << "positions are no permutation";
  return whole;
}

double error(const std::vector<double>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    difference += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  EXPECT_GT(norm, 0);
  return std::sqrt(difference / norm);
}

// Distance of every result in the files from the oracle's, given the inputs in the files.
std::map<std::string, double> errors(const std::string& dir) {
  const Whole whole = read_whole(dir);
  oracle::Attention a;
  a.batch = whole.layout["sequence"]["batch"];
  a.tq = a.tk = whole.layout["sequence"]["length"];
  a.hq = whole.layout["heads"]["q"];
  a.hk = whole.layout["heads"]["kv"];
  a.d = whole.layout["heads"]["d_qk"];
  a.scale = whole.layout["scale"];
  a.q = whole.tensors.at("q");
  a.k = whole.tensors.at("k");
  a.v = whole.tensors.at("v");
  for (int64_t b = 0; b < a.batch; ++b)
    for (int32_t row = 0; row < a.tq; ++row) a.q_row.push_back(row);
  a.k_row = a.q_row;
  a.q_document = a.k_document = std::vector<int32_t>(a.q_row.size(), 0);
  const oracle::AttentionResult result = oracle::attention(a);
  const std::vector<double>& dout = whole.tensors.at("dout");
  const auto grad = oracle::attention_backward(a, dout, result.lse, oracle::attention_delta(result.o, dout, a.d));
  std::map<std::string, double> out;
  for (const auto& [name, want] :
       {std::pair{"out", &result.o}, {"lse", &result.lse}, {"dq", &grad.dq}, {"dk", &grad.dk}, {"dv", &grad.dv}})
    out[name] = error(whole.tensors.at(name), *want);
  return out;
}

void expect_oracle(const std::string& dir, double bound) {
  for (const auto& [name, distance] : errors(dir)) EXPECT_LT(distance, bound) << name;
}

void dump(const JobConfig& config, const std::string& dir) {
  TrainOptions options;
  options.dump_attention = AttentionPick{1, 1};
  const auto result = train(config, {}, options);
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->attention.size(), size_t(config.world()));
  const auto written = write_attention_dump(dir, config, result->attention);
  ASSERT_TRUE(written) << written.error().message;
}

TEST(AttentionDump, IsTheOraclesAttention) {
  for (const CpComm comm : {CpComm::kP2p, CpComm::kAllGather, CpComm::kGlobalSoftmax}) {
    const Folder folder;
    JobConfig config = job(1, 3, 1, DType::kF64);
    config.cp_comm = comm;
    dump(config, folder.path());
    expect_oracle(folder.path(), 1e-12);
  }
  const Folder folder;
  dump(job(1, 1, 1, DType::kF32), folder.path());
  expect_oracle(folder.path(), 5e-6);
}

TEST(AttentionDump, HasAFolderForEveryContextParallelGroup) {
  const Folder folder;
  dump(job(2, 2, 2, DType::kF32), folder.path());
  for (const char* group : {"/tp0_dp0", "/tp1_dp0", "/tp0_dp1", "/tp1_dp1"}) {
    SCOPED_TRACE(group);
    expect_oracle(folder.path() + group, 5e-6);
  }
}

TEST(AttentionDump, ShowsAWrongMerge) {
  const Folder folder;
  JobConfig config = job(1, 2, 1, DType::kF64);
  config.fault = *parse_fault("last-part-wins");
  dump(config, folder.path());
  EXPECT_GT(errors(folder.path()).at("out"), 1e-2);
}

TEST(AttentionDump, NamesWhatCannotBeDumped) {
  const JobConfig config = job(1, 2, 1, DType::kF32);
  EXPECT_NE(check({2, 0}, config).error().message.find("layer 2"), std::string::npos);
  EXPECT_NE(check({0, 2}, config).error().message.find("step 2"), std::string::npos);
  JobConfig dropout = config;
  dropout.model.attention_dropout = 0.1;
  EXPECT_FALSE(check({0, 0}, dropout));
  EXPECT_TRUE(check({1, 1}, config));
  const auto calls = std::vector<AttentionCall>(1);
  EXPECT_FALSE(write_attention_dump("/proc/nowhere", config, calls));
}

}  // namespace
}  // namespace ringscope
