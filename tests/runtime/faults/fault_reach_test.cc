// Every fault at every place that its keys can name: it shows (the run stalls, its numbers are others than the clean
// twin's, or the recorded order holds the race), or it is refused with a sentence. And no record says that it is there.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "probes/recorder/recorder.h"
#include "tests/sweep/recorded_run.h"

namespace ringscope {
namespace {

using testing::record_and_analyze;
using testing::RecordedRun;
using Flags = std::vector<std::pair<std::string, std::string>>;

JobConfig small_job(const Flags& flags) {
  JobConfig c;
  c.model.num_layers = 2;
  c.model.hidden_size = 16;
  c.model.num_attention_heads = 2;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 16;
  c.seq_length = 16;
  c.global_batch_size = 2;
  c.train_iters = 3;
  c.dtype = DType::kF64;
  c.turns = true;  // the same interleaving with and without the fault
  for (const auto& [flag, value] : flags) EXPECT_TRUE(apply_flag(c, flag, value)) << flag;
  return c;
}

// "--a 1 --b" as flags.
Flags layout_of(const FaultRow& row) {
  Flags flags;
  std::istringstream words{std::string(row.layout)};
  for (std::string word; words >> word;)
    if (word.starts_with("--")) flags.emplace_back(word.substr(2), "");
    else flags.back().second = word;
  if (row.id == FaultId::kPerRankMean) flags.back().second = "13";  // 61, for a small job: odd
  return flags;
}

// The fault without keys, every legal value of each key alone, and all keys at their first and at their last value.
std::vector<std::string> places(const FaultRow& row, const JobConfig& job) {
  const std::string name(row.name);
  std::vector<std::string> texts{name};
  std::string first, last;
  std::istringstream keys{std::string(row.keys)};
  for (std::string key; std::getline(keys, key, ',');) {
    const std::map<std::string, int> values = {
        {"rank", job.world()}, {"layer", job.model.num_layers}, {"step", job.train_iters}, {"ring_step", job.cp - 1}};
    for (int value = 0; value < values.at(key); ++value)
      texts.push_back(name + ":" + key + "=" + std::to_string(value));
    first += (first.empty() ? ":" : ",") + key + "=0";
    last += (last.empty() ? ":" : ",") + key + "=" + std::to_string(values.at(key) - 1);
  }
  texts.push_back(name + first);
  texts.push_back(name + last);
  return texts;
}

// What a user would look at. Only where the trace or its silence counts is there a recording.
RecordedRun run_job(const JobConfig& job, bool recorded) {
  if (recorded) return record_and_analyze(job);
  RecordedRun run;
  auto result = train(job, {});
  if (result) run.result = std::move(*result);
  else run.error = result.error().message;
  return run;
}
std::vector<double> numbers(const RecordedRun& run) {
  std::vector<double> out;
  for (const StepReport& step : run.result.steps) out.insert(out.end(), {step.loss, step.grad_norm});
  return out;
}

bool shows(const FaultRow& row, const RecordedRun& run, const std::vector<double>& clean) {
  if (row.outcome == "hang") return run.result.end == RunEnd::kStalled;
  if (run.result.end != RunEnd::kCompleted) return false;
  if (row.outcome == "none") return numbers(run) == clean && run.report.findings.empty();
  if (!row.finding.starts_with("race.")) return numbers(run) != clean;
  return std::any_of(run.report.findings.begin(), run.report.findings.end(),
                     [&](const Finding& f) { return f.id == row.finding; });
}

// Returns the texts that were refused.
std::vector<std::string> try_everywhere(const FaultRow& row, const Flags& flags) {
  const JobConfig job = small_job(flags);
  const std::vector<double> clean = numbers(run_job(job, false));
  EXPECT_EQ(clean.size(), 2 * size_t(job.train_iters));
  std::vector<std::string> refused;
  for (const std::string& text : places(row, job)) {
    JobConfig with = job;
    with.fault = *parse_fault(text);
    if (const Status status = validate(with); !status) {
      EXPECT_EQ(status.error().kind, ErrorKind::kUsage);
      EXPECT_NE(status.error().message.find("use "), std::string::npos) << status.error().message;
      refused.push_back(text.substr(row.name.size()));
      continue;
    }
    const RecordedRun run = run_job(with, row.outcome == "none" || row.finding.starts_with("race."));
    EXPECT_EQ(run.error, "") << text;
    EXPECT_TRUE(shows(row, run, clean)) << text << " does not show";
  }
  return refused;
}

class Reach : public ::testing::TestWithParam<int> {};

TEST_P(Reach, EveryPlaceShowsOrIsRefused) {
  const FaultRow& row = fault_rows()[size_t(GetParam())];
  const std::vector<std::string> refused = try_everywhere(row, layout_of(row));
  for (const std::string& text : refused)
    EXPECT_TRUE(row.id == FaultId::kRingBufferReuse &&
                (text.find("ring_step=0") != std::string::npos || text.find("ring_step=1") != std::string::npos))
        << row.name << text;
  EXPECT_EQ(refused.empty(), row.id != FaultId::kRingBufferReuse);
}
INSTANTIATE_TEST_SUITE_P(Faults, Reach, ::testing::Range(0, int(fault_rows().size())), [](const auto& info) {
  std::string text(fault_rows()[size_t(info.param)].name);
  std::replace(text.begin(), text.end(), '-', '_');
  return text;
});

// Other layouts than the row's own: groups along other axes, and shards in which the wrong program is right.
TEST(Reach, UnderOtherLayouts) {
  const Flags contiguous = {{"cp", "2"}, {"cp-layout", "contiguous"}}, replicas = {{"dp", "2"}};
  const std::vector<std::tuple<const char*, Flags, std::vector<std::string>>> cases = {
      {"op-mismatch", replicas, {}},
      {"skip-all-reduce", replicas, {}},
      {"rank-exit", {{"tp", "2"}}, {}},
      {"rank-exit", replicas, {}},
      {"ring-early-exit", {{"cp", "2"}}, {}},
      {"ring-use-before-arrival", {{"cp", "2"}}, {}},
      {"cross-group-order", {{"tp", "2"}, {"cp", "4"}, {"sp", ""}}, {}},
      {"sum-for-max", {{"cp", "4"}, {"cp-comm-type", "global_softmax"}}, {}},
      {"per-rank-mean", {{"dp", "2"}, {"labels-kept", "5,16,2"}}, {}},
      {"per-rank-mean", {{"cp", "2"}, {"labels-kept", "2"}, {"cp-layout", "contiguous"}}, {}},
      {"position-restart", contiguous, {":rank=0", ":rank=0,step=0"}},
      {"zigzag-on-contiguous", {{"cp", "2"}, {"cp-layout", "contiguous"}, {"seq-length", "13"}}, {}},
  };
  for (const auto& [name, flags, refused] : cases) {
    SCOPED_TRACE(name);
    std::vector<std::string> got = try_everywhere(*find_fault(name), flags);
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, refused);
  }
  // The first shard of a contiguous layout merges nothing.
  for (const std::string& text : try_everywhere(*find_fault("last-part-wins"), contiguous))
    EXPECT_EQ(text.find(":rank=0"), 0u) << text;
}

TEST(Reach, RefusalsSayWhatToUse) {
  const auto refused = [](const char* fault, const Flags& flags) {
    JobConfig job = small_job(flags);
    job.fault = *parse_fault(fault);
    const Status status = validate(job);
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(
      refused("ring-buffer-reuse:ring_step=1", {{"cp", "4"}}),
      "fault ring-buffer-reuse at ring_step=1: the first two hops of a layer overwrite nothing that is still read; "
      "use ring_step=2");
  EXPECT_NE(refused("ring-buffer-reuse", {{"cp", "4"}, {"no-overlap", ""}}).find("no --no-overlap"), std::string::npos);
  EXPECT_NE(refused("ring-use-before-arrival", {{"cp", "2"}, {"no-overlap", ""}}).find("no --no-overlap"),
            std::string::npos);
  EXPECT_NE(refused("per-rank-mean", {{"dp", "2"}}).find("use --labels-kept"), std::string::npos);
  EXPECT_NE(refused("per-rank-mean", {{"cp", "2"}}).find("use --labels-kept"), std::string::npos);
  EXPECT_NE(refused("per-rank-mean:step=2", {{"dp", "2"}, {"labels-kept", "4,4,4,4,5,5,5"}}), "");  // equal from there
  EXPECT_NE(refused("no-global-max", {{"cp", "2"}, {"cp-comm-type", "global_softmax"}, {"seq-length", "1"}})
                .find("longer --seq-length"),
            std::string::npos);
  EXPECT_NE(refused("position-restart:rank=0", {{"cp", "2"}, {"cp-layout", "contiguous"}}).find("use another rank"),
            std::string::npos);
}

// What a person sees in a trace, and what its bytes hold: nothing tells that a bug was planted, or which.
TEST(Trace, HoldsNothingOfTheFault) {
  namespace fs = std::filesystem;
  for (const FaultRow& row : fault_rows()) {
    SCOPED_TRACE(row.name);
    const fs::path dir = fs::temp_directory_path() / ("ringscope-unnamed-" + std::to_string(getpid()));
    fs::create_directories(dir);
    const std::string spool = dir.string();
    rs_options options{};
    options.spool_dir = spool.c_str();
    options.mode = RS_MODE_STREAM;
    options.ring_bytes = 1 << 20;
    ASSERT_EQ(rs_open(&options), 0) << rs_last_error();
    JobConfig job = small_job(layout_of(row));
    job.fault = *parse_fault(row.name);
    const auto result = train(job, {});
    rs_close();
    ASSERT_TRUE(result) << result.error().message;
    for (const auto& file : fs::recursive_directory_iterator(dir)) {
      std::ifstream stream(file.path(), std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(stream)), {});
      std::transform(bytes.begin(), bytes.end(), bytes.begin(), [](unsigned char ch) { return std::tolower(ch); });
      for (const std::string& word : {std::string(row.name), std::string("fault"), std::string("planted")})
        EXPECT_EQ(bytes.find(word), std::string::npos) << word << " in " << file.path();
    }
    fs::remove_all(dir);
  }
}

}  // namespace
}  // namespace ringscope
