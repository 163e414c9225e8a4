// What a person names, sorted into jobs.
#include <fstream>
#include <thread>

#include "probes/recorder/emit.h"
#include "tests/tracedb/scratch.h"
#include "tracedb/import/jobs.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

// A process that records one rank of a job, with its group of two along CP.
void record(const std::string& spool, uint32_t rank, uint32_t world, std::vector<uint32_t> group) {
  rs_options options{};
  options.spool_dir = spool.c_str();
  options.ring_bytes = 4096;
  ASSERT_EQ(rs_open(&options), 0) << rs_last_error();
  std::thread([&] {
    rs_thread_attach(int(rank), "host");
    RankRecord identity{};
    identity.rank = rank;
    identity.world = world;
    emit(RecordKind::kRank, identity);
    CommRecord comm{};
    comm.comm = 1;
    comm.size = uint32_t(group.size());
    comm.axis = uint16_t(Axis::kCp);
    emit(RecordKind::kComm, comm);
    for (uint32_t member = 0; member < group.size(); ++member)
      emit(RecordKind::kCommRank, CommRankRecord{1, member, group[member]});
  }).join();
  rs_close();
}

std::vector<std::vector<std::string>> jobs_of(const std::vector<std::string>& paths) {
  auto found = discover(paths);
  EXPECT_TRUE(found) << found.error().message;
  std::vector<std::vector<std::string>> jobs;
  if (found)
    for (const Job& job : found->jobs) jobs.push_back(job.sources);
  return jobs;
}
using Jobs = std::vector<std::vector<std::string>>;

TEST(Jobs, RanksOfOneWorldAreOneJob) {
  const Scratch scratch;
  const std::string a = scratch / "a", b = scratch / "b";
  record(a, 0, 2, {0, 1});
  record(b, 1, 2, {0, 1});
  EXPECT_EQ(jobs_of({b, a}), (Jobs{{a, b}}));
  EXPECT_EQ(jobs_of({scratch.dir()}), (Jobs{{a, b}}));
}

TEST(Jobs, AnotherWorldOrOtherGroupsAreAnotherJob) {
  const Scratch scratch;
  const std::string a = scratch / "a", b = scratch / "b", c = scratch / "c";
  record(a, 0, 4, {0, 1});
  record(b, 1, 8, {0, 1});
  record(c, 2, 4, {1, 2});
  EXPECT_EQ(jobs_of({a, b, c}), (Jobs{{a}, {b}, {c}}));
}

TEST(Jobs, AttemptsAreApart) {
  const Scratch scratch;
  const std::string a0 = scratch / "a0", a1 = scratch / "a1", b0 = scratch / "b0", b1 = scratch / "b1";
  record(a0, 0, 2, {0, 1});
  record(a1, 1, 2, {0, 1});
  record(b0, 0, 2, {0, 1});
  record(b1, 1, 2, {0, 1});
  EXPECT_EQ(jobs_of({b1, a1, b0, a0}), (Jobs{{a0, a1}, {b0, b1}}));
}

TEST(Jobs, OneRecordingInTwoFormsIsReadOnce) {
  const Scratch scratch;
  const std::string spool = scratch / "a.spool", db = scratch / "a.db", copy = scratch / "copy.db";
  record(spool, 0, 2, {0, 1});
  ASSERT_TRUE(build_database(spool, db));
  std::filesystem::copy(db, copy);
  std::filesystem::create_symlink(db, scratch / "link.db");
  const auto found = discover({spool, copy, db, scratch / "link.db", db});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->jobs.size(), 1u);
  EXPECT_EQ(found->jobs[0].sources, std::vector<std::string>{copy});
  EXPECT_EQ(found->doubles.size(), 2u);
  const auto view = load_job(*found, 0);
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->sources.size(), 1u);
}

TEST(Jobs, LeftoversAreListed) {
  const Scratch scratch;
  const std::string spool = scratch / "a";
  record(spool, 0, 2, {0, 1});
  std::filesystem::create_directories(scratch / "deep/er");
  std::ofstream(scratch / "deep/er/notes.txt") << "text";
  std::ofstream(scratch / "deep/empty").flush();
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", scratch / "broken");
  std::filesystem::create_symlink(".", scratch / "loop");
  const Scratch elsewhere;
  std::filesystem::create_symlink(elsewhere.dir(), scratch / "out");
  std::filesystem::create_symlink("deep", scratch / "within");
  std::ofstream(scratch / "verdict.json") << "{\n  \"schema\": \"ringscope.report/1\"}";
  const auto found = discover({scratch.dir()});
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->jobs.size(), 1u);
  std::vector<std::string> unused;
  for (const Unused& file : found->unused) unused.push_back(file.path.substr(scratch.dir().size() + 1));
  EXPECT_EQ(unused, (std::vector<std::string>{"broken", "deep/empty", "deep/er/notes.txt", "pipe", "out"}));
  const auto view = load_job(*found, 0);
  ASSERT_TRUE(view);
  int64_t listed = 0;
  for (const ImportStat& stat : view->import_stats)
    if (stat.name.starts_with("input.")) listed += stat.count;
  EXPECT_EQ(listed, 5);
}

TEST(Jobs, ARingThatIsGoneIsALoss) {
  const Scratch scratch;
  for (const char* name : {"ring-000001.ring", "ring-000002.ring"}) {  // the last one leaves no gap
    const std::string spool = scratch / ("without-" + std::string(name));
    rs_options options{};
    options.spool_dir = spool.c_str();
    options.ring_bytes = 4096;
    ASSERT_EQ(rs_open(&options), 0) << rs_last_error();
    for (int thread = 0; thread < 2; ++thread) std::thread([] { rs_thread_attach(0, "host"); }).join();
    rs_close();
    std::filesystem::remove(spool + "/" + name);
    const auto contents = read_spool(spool);
    ASSERT_TRUE(contents) << contents.error().message;
    EXPECT_EQ(contents->absent, std::vector<std::string>{spool + "/" + name});
    const auto found = discover({spool});
    ASSERT_TRUE(found);
    const auto view = load_job(*found, 0);
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_FALSE(view->lossless(0));
  }
}

}  // namespace
}  // namespace ringscope
