// Queries, reports, and files that are not what they should be.
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "probes/recorder/emit.h"
#include "tests/tracedb/scratch.h"
#include "tracedb/import/registry.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

void make_spool(const std::string& dir) {
  rs_options options{};
  options.spool_dir = dir.c_str();
  options.ring_bytes = 4096;
  ASSERT_EQ(rs_open(&options), 0) << rs_last_error();
  emit(RecordKind::kMeta, MetaRecord{rs_intern("k"), rs_intern("v")});
  rs_close();
}

std::string make_database(const Scratch& scratch) {
  make_spool(scratch / "s");
  auto built = build_database(scratch / "s", scratch / "t.db");
  EXPECT_TRUE(built) << (built ? "" : built.error().message);
  return scratch / "t.db";
}

std::string ring_file(const Scratch& scratch) { return scratch / "s/ring-000001.ring"; }

template <class T>
std::string refusal(const Result<T>& result) {
  EXPECT_FALSE(result);
  if (result) return "";
  EXPECT_EQ(result.error().kind, ErrorKind::kData);
  return result.error().message;
}

// A transfer is hidden while any kernel of its rank runs, whichever ring step that belongs to.
TEST(Store, ExposedTransferIsWhatNoKernelOfTheRankCovers) {
  const Scratch scratch;
  auto store = Store::create(scratch / "t.db");
  ASSERT_TRUE(store) << store.error().message;
  const auto op = [&](int rank, int id, OpKind kind, int ring_step, int64_t start, int64_t end) {
    const std::string values = std::to_string(rank) + "," + std::to_string(id) + "," + std::to_string(id) + ",1,0," +
                               std::to_string(int(kind)) + ",2,0," + std::to_string(start) + "," +
                               std::to_string(start) + "," + std::to_string(end) + ",0,0,0,0," +
                               std::to_string(ring_step) + ",0";
    const auto done = store->exec(
        "INSERT INTO op(rank,issue,op_id,stream,name,kind,state,group_op,enqueue_ns,start_ns,end_ns,bytes_sent,step,"
        "layer,microbatch,ring_step,pass) VALUES(" +
        values + ")");
    ASSERT_TRUE(done) << done.error().message;
  };
  op(0, 1, OpKind::kKernel, 0, 100, 110);
  op(0, 2, OpKind::kKernel, 1, 120, 130);
  op(0, 3, OpKind::kKernel, 1, 140, 150);
  op(0, 4, OpKind::kP2p, 0, 105, 125);     // covered: 105-110 and 120-125
  op(1, 5, OpKind::kKernel, 0, 100, 200);  // another rank's kernel hides nothing of rank 0
  op(1, 6, OpKind::kP2p, 0, 110, 190);
  ASSERT_TRUE(store->finish());
  EXPECT_EQ(scalar(*store, "SELECT transfer_ns FROM ring_step WHERE rank = 0 AND ring_step = 0"), 20);
  EXPECT_EQ(scalar(*store, "SELECT exposed_ns FROM ring_step WHERE rank = 0 AND ring_step = 0"), 10);
  EXPECT_EQ(scalar(*store, "SELECT exposed_ns FROM ring_step WHERE rank = 1 AND ring_step = 0"), 0);
  EXPECT_EQ(scalar(*store, "SELECT blocking_ns FROM ring_step WHERE rank = 0 AND ring_step = 0"), 10);
}

TEST(Store, QueriesOnlyRead) {
  const Scratch scratch;
  auto store = Store::open(make_database(scratch));
  ASSERT_TRUE(store) << store.error().message;
  auto result = store->query("SELECT key, value, 1.5 AS d, NULL AS n FROM meta;");
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->columns, (std::vector<std::string>{"key", "value", "d", "n"}));
  ASSERT_EQ(result->rows.size(), 1u);
  EXPECT_EQ(to_text(result->rows[0][1]), "v");
  EXPECT_EQ(to_text(result->rows[0][2]), "1.5");
  EXPECT_EQ(to_text(result->rows[0][3]), "");
  for (const char* sql : {"DELETE FROM meta", "ATTACH 'x' AS y", "PRAGMA user_version=9", "SELECT nothing FROM meta",
                          "SELECT 1; SELECT 2", "", "SELEC", "SELECT load_extension('x')"}) {
    auto refused = store->query(sql);
    ASSERT_FALSE(refused) << sql;
    EXPECT_EQ(refused.error().kind, ErrorKind::kUsage) << sql;
  }
}

TEST(Store, KeepsReportsAndReplacesThem) {
  const Scratch scratch;
  const std::string db = make_database(scratch);
  auto store = Store::open_writable(db);
  ASSERT_TRUE(store);
  Report report;
  Finding finding;
  finding.id = "hang.missing_rank";
  finding.ranks = {2, 0, 1};
  finding.group = GroupRef{"cp", {0, 1, 2, 3}};
  finding.seq = 7;
  finding.sentence = "it's rank 2";
  finding.evidence = {{0, "op", 12, "never started"}, {0, "coll", 3, ""}};
  report.findings = {finding, finding};
  report.findings[1].caused_by = 0;
  for (int round = 0; round < 2; ++round) {
    auto saved = store->save_report(report);
    ASSERT_TRUE(saved) << saved.error().message;
  }
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM finding"), 2);
  EXPECT_EQ(scalar(*store, "SELECT count(*) FROM evidence WHERE table_name = 'op' AND row = 12"), 2);
  EXPECT_EQ(scalar(*store, "SELECT seq FROM finding WHERE ranks = '0-2' AND group_ranks = '0-3' AND step IS NULL"), 7);
  EXPECT_EQ(scalar(*store, "SELECT caused_by FROM finding WHERE id = 1"), 0);
}

TEST(Store, RefusesForeignTruncatedAndNewerFiles) {
  const Scratch scratch;
  const std::string db = make_database(scratch);
  EXPECT_NE(refusal(Store::open(scratch / "missing.db")).find("cannot open"), std::string::npos);
  std::ofstream(scratch / "empty.db").flush();
  EXPECT_NE(refusal(Store::open(scratch / "empty.db")).find("empty file"), std::string::npos);
  std::ofstream(scratch / "text.db") << std::string(500, 'x');
  EXPECT_NE(refusal(Store::open(scratch / "text.db")).find("not a ringscope database"), std::string::npos);
  EXPECT_NE(refusal(Store::create(db)).find("exists already"), std::string::npos);

  std::filesystem::copy(db, scratch / "cut.db");
  std::filesystem::resize_file(scratch / "cut.db", std::filesystem::file_size(db) / 3);
  auto cut = Store::open(scratch / "cut.db");
  if (cut) refusal(load_view(*cut));

  std::filesystem::copy(db, scratch / "foreign.db");
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open((scratch / "foreign.db").c_str(), &raw), SQLITE_OK);
  sqlite3_exec(raw, "PRAGMA application_id=5", nullptr, nullptr, nullptr);
  sqlite3_close(raw);
  EXPECT_NE(refusal(Store::open(scratch / "foreign.db")).find("an SQLite file, but not"), std::string::npos);
  ASSERT_EQ(sqlite3_open(db.c_str(), &raw), SQLITE_OK);
  sqlite3_exec(raw, "PRAGMA user_version=99", nullptr, nullptr, nullptr);
  sqlite3_close(raw);
  EXPECT_NE(refusal(Store::open(db)).find("newer than this version"), std::string::npos);
  EXPECT_NE(refusal(load_paths({db})).find("newer than this version"), std::string::npos);
}

TEST(Spool, RefusesWhatIsNoSpool) {
  const Scratch scratch;
  EXPECT_NE(refusal(read_spool(scratch / "missing")).find("no such spool"), std::string::npos);
  ASSERT_EQ(mkdir((scratch / "empty").c_str(), 0755), 0);
  EXPECT_NE(refusal(read_spool(scratch / "empty")).find("no ring files"), std::string::npos);
  EXPECT_NE(refusal(load_paths({scratch / "empty"})).find("format not recognised"), std::string::npos);
  EXPECT_NE(refusal(load_paths({scratch / "missing"})).find("no such file"), std::string::npos);
  std::ofstream(scratch / "zero").flush();
  EXPECT_NE(refusal(load_paths({scratch / "zero"})).find("empty"), std::string::npos);
}

TEST(Spool, ABrokenRingIsNamedAndBarsAbsence) {
  const Scratch scratch;
  make_spool(scratch / "s");
  for (const size_t size : {size_t(5000), size_t(100), size_t(0)}) {
    std::filesystem::resize_file(ring_file(scratch), size);
    EXPECT_NE(refusal(RingReader::open(ring_file(scratch))).find("truncated"), std::string::npos);
    auto view = load_paths({scratch / "s"});
    ASSERT_TRUE(view) << view.error().message;
    EXPECT_FALSE(view->lossless(0));
    bool told = false;
    for (const ImportStat& s : view->import_stats) told |= s.name == "spool.unreadable_files" && s.severity == "error";
    EXPECT_TRUE(told);
  }
  std::ofstream(ring_file(scratch), std::ios::trunc) << std::string(10000, 'x');
  EXPECT_NE(refusal(RingReader::open(ring_file(scratch))).find("not a ring file"), std::string::npos);
}

TEST(Spool, ANewerVersionIsRefusedWhole) {
  const Scratch scratch;
  make_spool(scratch / "s");
  std::fstream file(ring_file(scratch), std::ios::in | std::ios::out | std::ios::binary);
  const uint32_t version = kSpoolVersion + 1;
  file.seekp(offsetof(RingHeader, version));
  file.write(reinterpret_cast<const char*>(&version), sizeof version);
  file.close();
  EXPECT_NE(refusal(read_spool(scratch / "s")).find("newer than this version"), std::string::npos);
}

TEST(Spool, ATornNameIsToleratedAndCounted) {
  const Scratch scratch;
  make_spool(scratch / "s");
  for (const auto& entry : std::filesystem::directory_iterator(scratch / "s"))
    if (entry.path().extension() == ".names")
      std::filesystem::resize_file(entry.path(), std::filesystem::file_size(entry.path()) - 3);
  auto view = load_paths({scratch / "s"});
  ASSERT_TRUE(view) << view.error().message;
  bool torn = false;
  for (const ImportStat& s : view->import_stats) torn |= s.name == "spool.names_torn";
  EXPECT_TRUE(torn);
}

TEST(Spool, ATornGroupCountsOnce) {
  const Scratch scratch;
  rs_options options{};
  const std::string spool = scratch / "s";
  options.spool_dir = spool.c_str();
  options.ring_bytes = 4096;
  ASSERT_EQ(rs_open(&options), 0);
  for (int i = 0; i < 5; ++i) emit(RecordKind::kTrainStep, TrainStepRecord{});
  rs_close();
  const uint64_t torn = 0;  // first record of the third group
  std::fstream file(ring_file(scratch), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(kSpoolHeaderBytes + 4 * kRecordBytes);
  file.write(reinterpret_cast<const char*>(&torn), sizeof torn);
  file.close();
  auto ring = RingReader::open(ring_file(scratch));
  ASSERT_TRUE(ring);
  EXPECT_EQ(ring->loss().recovered, 4u);
  EXPECT_EQ(ring->loss().torn, 1u);
  EXPECT_EQ(ring->loss().lost, 0u);
}

TEST(Registry, GuessesFromContent) {
  const Scratch scratch;
  const std::string db = make_database(scratch);
  std::filesystem::copy(db, scratch / "renamed.json");
  const Importer* importer = guess_importer(scratch / "renamed.json");
  ASSERT_TRUE(importer);
  EXPECT_STREQ(importer->format(), "ringscope.db");
  importer = guess_importer(scratch / "s");
  ASSERT_TRUE(importer);
  EXPECT_STREQ(importer->format(), "ringscope.spool");
  EXPECT_EQ(guess_importer("/dev/null"), nullptr);
}

}  // namespace
}  // namespace ringscope
