// Several processes and several host threads in one job: ids that collide, order that nobody promised, files of an older
// version.
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "probes/recorder/emit.h"
#include "tests/tracedb/scratch.h"
#include "tracedb/import/merge.h"
#include "tracedb/import/registry.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/store/rows.h"

namespace ringscope {
namespace {

constexpr uint16_t kStream = 3;

void record_comm(uint32_t id, int rank, const char* name, std::vector<uint64_t> members, uint64_t creation) {
  CommRecord comm{};
  comm.comm = id;
  comm.size = uint32_t(members.size());
  comm.name = rs_intern(name);
  comm.axis = uint16_t(Axis::kUnknown);
  comm.creation = creation;
  for (uint32_t at = 0; at < members.size(); ++at) {
    if (members[at] == uint64_t(rank)) comm.group_rank = uint16_t(at);
    emit(RecordKind::kCommRank, CommRankRecord{id, at, members[at]});
  }
  emit(RecordKind::kComm, comm);
}

uint64_t record_call(uint32_t comm, uint64_t seq, CollFunc func) {
  OpEnqueueRecord op{};
  op.op = rs_next_op();
  op.kind = uint16_t(OpKind::kCollective);
  op.where = Where{}.pack();
  emit(RecordKind::kOpEnqueue, op, kStream);
  CollRecord coll{};
  coll.op = op.op;
  coll.comm = comm;
  coll.func = uint8_t(func);
  coll.seq = seq;
  coll.count = 8;
  coll.root = -1;
  emit(RecordKind::kColl, coll);
  return op.op;
}

// One rank as a process of its own: `flip` creates its two communicators in the other order, so that they get each
// other's number.
void record_rank(int rank, bool flip) {
  rs_thread_attach(rank, "host");
  emit(RecordKind::kStream, StreamRecord{rs_intern("compute")}, kStream);
  const uint32_t world = flip ? 2 : 1, alone = flip ? 1 : 2;
  if (!flip) record_comm(world, rank, "world", {0, 1}, 0);
  record_comm(alone, rank, "self", {uint64_t(rank)}, flip ? 0 : 1);
  if (flip) record_comm(world, rank, "world", {0, 1}, 1);
  BufferAllocRecord buffer{};
  buffer.buffer = 7;
  buffer.bytes = 64;
  buffer.name = rs_intern(rank == 0 ? "of zero" : "of one");
  emit(RecordKind::kBufferAlloc, buffer);
  const uint64_t op = record_call(world, 0, rank == 0 ? CollFunc::kAllReduce : CollFunc::kBroadcast);
  emit(RecordKind::kAccess, AccessRecord{op, 7, 0, 64, uint64_t(AccessMode::kWrite)});
  record_call(alone, 0, CollFunc::kBarrier);
  SyncRecord sync{};
  sync.event = 9;
  sync.key = 11;
  emit(RecordKind::kSync, sync, kStream);
  rs_thread_detach();
}

void open_spool(const std::string& dir) {
  rs_options options{};
  options.spool_dir = dir.c_str();
  options.mode = RS_MODE_STREAM;
  options.ring_bytes = 64 * 1024;
  ASSERT_EQ(rs_open(&options), 0) << rs_last_error();
}

void expect_two_processes(const TraceView& view) {
  ASSERT_EQ(view.ops.size(), 4u);
  ASSERT_EQ(view.colls.size(), 4u);
  std::map<std::string, std::vector<int32_t>> members;
  std::map<uint32_t, std::string> name_of;
  for (const CommRow& comm : view.comms) {
    members[comm.name + (comm.ranks.size() == 1 ? std::to_string(comm.ranks[0]) : "")] = comm.ranks;
    name_of[comm.comm] = comm.name;
  }
  EXPECT_EQ(view.comms.size(), 3u);  // one shared, and one of each
  EXPECT_EQ(members["world"], (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(members["self0"], std::vector<int32_t>{0});
  EXPECT_EQ(members["self1"], std::vector<int32_t>{1});
  std::set<uint64_t> ops, buffers, keys, streams;
  for (const OpRow& op : view.ops) {
    ops.insert(op.op);
    streams.insert(op.stream);
    ASSERT_NE(op.coll, kNoRow);
    const CollRow& coll = view.colls[op.coll];
    const bool world = coll.func != CollFunc::kBarrier;
    EXPECT_EQ(name_of[coll.comm], world ? "world" : "self");
    EXPECT_EQ(coll.op, uint32_t(&op - view.ops.data()));
  }
  for (const BufferRow& buffer : view.buffers) buffers.insert(buffer.buffer);
  for (const SyncRow& sync : view.syncs) keys.insert(sync.key);
  EXPECT_EQ(ops.size(), 4u);
  EXPECT_EQ(streams.size(), 2u);
  EXPECT_EQ(buffers.size(), 2u);
  EXPECT_EQ(keys.size(), 2u);
  ASSERT_EQ(view.accesses.size(), 2u);
  for (const AccessRow& access : view.accesses) {
    const auto buffer = std::find_if(view.buffers.begin(), view.buffers.end(),
                                     [&](const BufferRow& row) { return row.buffer == access.buffer; });
    ASSERT_NE(buffer, view.buffers.end());
    EXPECT_EQ(view.text(buffer->name), view.ops[access.op].rank == 0 ? "of zero" : "of one");
  }
}

// Both processes count streams, buffers, events and communicators from the same numbers, into one folder.
TEST(Processes, OfOneFolderGetIdsThatAreUniqueInTheJob) {
  const Scratch scratch;
  const std::string spool = scratch / "s";
  open_spool(spool);
  const pid_t child = fork();
  if (child == 0) {
    record_rank(1, true);
    rs_close();
    _exit(0);
  }
  record_rank(0, false);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_EQ(status, 0);
  rs_close();
  auto view = load_paths({spool});
  ASSERT_TRUE(view) << view.error().message;
  expect_two_processes(*view);
  // Again, in two goes: what the first import numbered stays.
  ASSERT_TRUE(build_database(spool, scratch / "t.db"));
  auto store = Store::open_writable(scratch / "t.db");
  ASSERT_TRUE(store);
  const std::string before = dump(*store);
  ASSERT_TRUE(import_spool(spool, *store));
  ASSERT_TRUE(store->finish());
  EXPECT_EQ(dump(*store), before);
}

TEST(Processes, OfTwoFoldersMergeAndAreCitedByTheirOwnRows) {
  const Scratch scratch;
  for (int rank : {0, 1}) {
    const std::string n = std::to_string(rank);
    open_spool(scratch / ("s" + n));
    std::thread([rank] { record_rank(rank, rank == 1); }).join();
    rs_close();
    ASSERT_TRUE(build_database(scratch / ("s" + n), scratch / (n + ".db")));
  }
  for (const bool swapped : {false, true}) {
    const std::string first = scratch / (swapped ? "1.db" : "0.db"), second = scratch / (swapped ? "0.db" : "1.db");
    auto view = load_paths({first, second});
    ASSERT_TRUE(view) << view.error().message;
    expect_two_processes(*view);
    ASSERT_EQ(view->sources.size(), 2u);
    for (size_t row = 0; row < view->colls.size(); ++row) {
      const Evidence evidence = cite(*view, "coll", row, "");
      const int rank = view->colls[row].rank;
      EXPECT_EQ(view->sources[size_t(evidence.source)].path, scratch / (std::to_string(rank) + ".db"));
      auto store = Store::open(view->sources[size_t(evidence.source)].path);
      ASSERT_TRUE(store);
      EXPECT_EQ(scalar(*store, "SELECT func FROM coll WHERE id = " + std::to_string(evidence.row)),
                int64_t(view->colls[row].func));
    }
  }
}

// A row that was deleted by hand moves nobody's id.
TEST(Processes, CitedIdsAreThoseOfTheFileWhateverIsMissing) {
  const Scratch scratch;
  open_spool(scratch / "s");
  std::thread([] {
    rs_thread_attach(0, "host");
    for (uint64_t i = 0; i < 10; ++i) record_call(1, i, CollFunc(i % 3));
  }).join();
  rs_close();
  ASSERT_TRUE(build_database(scratch / "s", scratch / "t.db"));
  sqlite3* raw = nullptr;
  ASSERT_EQ(sqlite3_open((scratch / "t.db").c_str(), &raw), SQLITE_OK);
  sqlite3_exec(raw, "DELETE FROM coll WHERE id IN (1, 4, 5)", nullptr, nullptr, nullptr);
  sqlite3_close(raw);
  auto view = load_paths({scratch / "t.db"});
  ASSERT_TRUE(view) << view.error().message;
  ASSERT_EQ(view->colls.size(), 7u);
  const int64_t ids[] = {2, 3, 6, 7, 8, 9, 10};
  for (size_t row = 0; row < 7; ++row) {
    EXPECT_EQ(cite(*view, "coll", row, "").row, ids[row]);
    EXPECT_EQ(view->colls[row].seq, uint64_t(ids[row] - 1));
  }
}

// PyTorch issues from the main and from the autograd thread of a rank: rows come in the clock's order and know whose
// program order they belong to.
TEST(Processes, ThreadsOfARankInterleaveByTheClock) {
  const Scratch scratch;
  open_spool(scratch / "s");
  std::atomic<int> turn{0};
  const auto speak = [&](int self) {
    rs_thread_attach(0, self == 0 ? "main" : "autograd");
    for (uint64_t i = 0; i < 20; ++i) {
      while (turn.load() % 2 != self) std::this_thread::yield();
      record_call(uint32_t(self + 1), i, CollFunc::kAllReduce);
      ++turn;
    }
    rs_thread_detach();
  };
  std::thread other(speak, 1);
  std::thread(speak, 0).join();
  other.join();
  rs_close();
  ASSERT_TRUE(build_database(scratch / "s", scratch / "t.db"));
  auto view = load_paths({scratch / "t.db"});
  ASSERT_TRUE(view) << view.error().message;
  ASSERT_EQ(view->ops.size(), 40u);
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(view->colls[i].comm, 1 + i % 2);
    EXPECT_EQ(view->colls[i].seq, i / 2);
    EXPECT_NE(view->ops[i].thread, view->ops[i ^ 1].thread);
    EXPECT_EQ(view->ops[i].thread, view->ops[i % 2].thread);
  }
}

std::string schema(const char* file) {
  std::ifstream in(std::string(RINGSCOPE_SOURCE_DIR "/tracedb/store/schema/") + file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// As version 1 wrote it: order is ring << 40 | sequence, and there are no threads, processes and comm_of.
void write_version_1(const std::string& path) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  const std::string sql =
      schema("0001_tables.sql") + schema("0002_views.sql") + "PRAGMA application_id=" + std::to_string(kApplicationId) +
      ";PRAGMA user_version=1;" +
      "INSERT INTO string VALUES(1,'grad');"
      "INSERT INTO source VALUES(1,'old.spool','ringscope.spool',-1,9,0);"
      "INSERT INTO rank VALUES(0,2,0,0,0,0,1,2,1,1,77,'node');"
      "INSERT INTO comm VALUES(5,0,1,'cp[0,1]',2);INSERT INTO comm_rank VALUES(5,0,0,0),(5,1,1,0);"
      "INSERT INTO thread VALUES(1,'00000000000000aa',0,77,78,'node','rank0.host','stream','tsc',1,1000);"
      "INSERT INTO op VALUES(1,0,3,1099511627779,2,1,1,2,0,10,20,30,64,0,1,0,NULL,1);"
      "INSERT INTO op VALUES(2,0,1099511627777,1099511627780,2,1,1,1,0,40,50,NULL,0,0,1,0,NULL,1);"
      "INSERT INTO coll VALUES(1,0,4,1099511627779,5,0,0,8,0,0,-1);"
      "INSERT INTO coll VALUES(2,0,1099511627778,1099511627780,5,1,0,8,0,0,-1);"
      "INSERT INTO buffer VALUES(1,0,1,3,4096,64,1,1,5,NULL,NULL,0,NULL,NULL,NULL,NULL);"
      "INSERT INTO sync VALUES(1,0,5,0,2,NULL,9,11,1,60,0,NULL,NULL,NULL,NULL);";
  char* why = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &why), SQLITE_OK) << (why ? why : "");
  sqlite3_close(db);
}

void expect_version_1(const TraceView& view) {
  ASSERT_EQ(view.ops.size(), 2u);
  EXPECT_EQ(view.ops[0].thread, 0);
  EXPECT_EQ(view.ops[1].thread, 1);
  EXPECT_EQ(view.ops[0].bytes_sent, 64u);
  EXPECT_EQ(view.ops[0].where.layer, 1);
  EXPECT_EQ(view.ops[0].where.ring_step, -1);
  EXPECT_EQ(view.ops[1].state, OpState::kStarted);
  EXPECT_EQ(view.ops[1].end_ns, 0);
  ASSERT_EQ(view.colls.size(), 2u);
  EXPECT_EQ(view.colls[1].op, 1u);
  EXPECT_EQ(view.colls[1].seq, 1u);
  EXPECT_EQ(view.text(view.buffers[0].name), "grad");
  EXPECT_EQ(view.buffers[0].free_stream, kAnyStream);
  EXPECT_EQ(view.ranks[0].cp_size, 2);
  EXPECT_EQ(view.syncs[0].key, 11u);
}

TEST(Versions, FilesOfVersion1AreReadAndBroughtUpToDate) {
  const Scratch scratch;
  const std::string path = scratch / "old.db";
  write_version_1(path);
  auto view = load_paths({path});
  ASSERT_TRUE(view) << view.error().message;
  expect_version_1(*view);
  {
    auto store = Store::open_writable(path);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ(scalar(*store, "SELECT thread FROM op WHERE id = 2"), 1);
    EXPECT_EQ(scalar(*store, "SELECT comm FROM comm_of WHERE process = '00000000000000aa' AND local = 5"), 5);
  }
  auto store = Store::open(path);
  ASSERT_TRUE(store);
  EXPECT_EQ(store->version(), kSchemaVersion);
  auto again = load_view(*store);
  ASSERT_TRUE(again);
  expect_version_1(*again);
}

}  // namespace
}  // namespace ringscope
