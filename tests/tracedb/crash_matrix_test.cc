// {SIGKILL, abort, segfault, full disk, read-only folder, fork, clean exit} x {flight, stream}. The traced
// program counts what it wrote in shared memory of its own; recovered + lost must be that, or one more: the
// record between its publication and the count. Every fifth record is a definition, of which none may be lost as
// long as the disk has room, however often the ring wrapped.
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>

#include "probes/recorder/emit.h"
#include "tests/tracedb/scratch.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

#if defined(__SANITIZE_THREAD__)
// The forked program starts a drainer of its own, which ThreadSanitizer refuses unless told otherwise.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace ringscope {
namespace {

enum class End { kSigkill, kAbort, kSegfault, kFullDisk, kReadOnly, kFork, kClean };
const char* const kEndNames[] = {"sigkill", "abort", "segfault", "full_disk", "read_only", "fork", "clean"};

struct Shared {
  std::atomic<uint64_t> written, defined, open_error;
};

Shared* shared_page() {
  void* page = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return page == MAP_FAILED ? nullptr : new (page) Shared{};
}

void write_one(Shared& shared, uint64_t i) {
  if (i % 5 == 4) emit(RecordKind::kStream, StreamRecord{0}, uint16_t(shared.defined++));
  else if (i % 3 == 0) emit(RecordKind::kTrainStep, TrainStepRecord{0, 0, i});  // two records
  else emit(RecordKind::kMemorySample, MemorySampleRecord{0, 0, 0, i, i});
  shared.written.fetch_add(1);
}

void reset_signals() {  // sanitizers catch them to print; here they must kill
  for (int s : {SIGSEGV, SIGABRT, SIGBUS}) signal(s, SIG_DFL);
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);
}

// The traced program. Never returns.
[[noreturn]] void traced(End how, int mode, const std::string& spool, Shared& shared, bool limit_files) {
  reset_signals();
  if (limit_files) {
    const rlimit limit{96 * 1024, 96 * 1024};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  if (how == End::kReadOnly && geteuid() == 0 && setuid(65534) != 0) _exit(3);
  rs_options options{};
  options.spool_dir = spool.c_str();
  options.mode = mode;
  options.ring_bytes = 64 * 1024;
  shared.open_error = uint64_t(rs_open(&options));
  rs_thread_attach(0, "rank0.host");
  const uint64_t records = 5000;
  for (uint64_t i = 0; i < records || how == End::kSigkill; ++i) {
    write_one(shared, i);
    if (i == 3000 && how == End::kAbort) abort();
    if (i == 3000 && how == End::kSegfault) raise(SIGSEGV);
    if (i == 3000 && how == End::kFork && fork() == 0) {
      for (uint64_t k = 0; k < 100; ++k) write_one(shared, k);
      rs_close();
      _exit(0);
    }
  }
  if (how == End::kFork) wait(nullptr);
  if (how == End::kFullDisk) {  // a thread that finds no room for a ring
    rs_thread_attach(1, "rank1.host");
    for (uint64_t i = 0; i < 10; ++i) write_one(shared, i);
  }
  rs_close();
  _exit(0);
}

int run_traced(End how, int mode, const std::string& spool, Shared& shared, bool limit_files) {
  const pid_t pid = fork();
  if (pid == 0) traced(how, mode, spool, shared, limit_files);
  if (how == End::kSigkill) {
    for (int i = 0; i < 20000 && shared.written < 20000; ++i) usleep(200);
    kill(pid, SIGKILL);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return status;
}

void expect_end(End how, int status) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  EXPECT_EQ(signal, how == End::kSigkill    ? SIGKILL
                    : how == End::kAbort    ? SIGABRT
                    : how == End::kSegfault ? SIGSEGV
                                            : 0);
  if (!signal) {
    EXPECT_EQ(WEXITSTATUS(status), 0);
  }
}

class CrashMatrix : public testing::TestWithParam<std::tuple<End, int>> {};

TEST_P(CrashMatrix, CountsExactly) {
  const auto [how, mode] = GetParam();
  const Scratch scratch;
  const std::string folder = scratch / "disk", db = scratch / "t.db";
  ASSERT_EQ(mkdir(folder.c_str(), how == End::kReadOnly ? 0555 : 0755), 0);
  bool mounted = false;
  if (how == End::kFullDisk) mounted = mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=128k") == 0;
  const std::string spool = folder + "/s";
  Shared* shared = shared_page();
  ASSERT_TRUE(shared);
  ASSERT_EQ(chmod(scratch.dir().c_str(), 0755), 0);
  expect_end(how, run_traced(how, mode, spool, *shared, how == End::kFullDisk && !mounted));
  const int64_t written = int64_t(shared->written.load());
  if (how == End::kReadOnly) {
    EXPECT_EQ(shared->open_error.load(), uint64_t(EACCES));
    EXPECT_EQ(written, 5000);  // the program ran on
    EXPECT_FALSE(build_database(spool, db));
    EXPECT_FALSE(std::filesystem::exists(db));
    return;
  }
  EXPECT_EQ(shared->open_error.load(), 0u);

  auto built = build_database(spool, db);
  ASSERT_TRUE(built) << built.error().message;
  std::string once;
  {
    auto store = Store::open(db);
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ(integrity(*store), "ok");
    const int64_t recovered = scalar(*store, "SELECT rows FROM source");
    const int64_t lost = scalar(*store, "SELECT lost FROM source");
    EXPECT_GE(recovered + lost, written);
    EXPECT_LE(recovered + lost, written + (how == End::kSigkill ? 1 : 0));
    const int64_t definitions = scalar(*store, "SELECT count(*) FROM stream");
    EXPECT_EQ(scalar(*store, "SELECT (SELECT count(*) FROM memory_sample) + (SELECT count(*) FROM train_step)"),
              recovered - definitions);
    if (how != End::kFullDisk) {  // counted before they are written
      EXPECT_LE(definitions, int64_t(shared->defined));
      EXPECT_GE(definitions, int64_t(shared->defined) - (how == End::kSigkill ? 1 : 0));
    }
    EXPECT_EQ(scalar(*store, "SELECT coalesce(sum(records + torn), 0) FROM lost"), lost);
    EXPECT_GT(recovered, 500);
    if (how == End::kFork) {
      EXPECT_EQ(scalar(*store, "SELECT count(DISTINCT pid) FROM thread"), 2);
    }
    if (how == End::kFullDisk && mode == RS_MODE_STREAM) {
      EXPECT_GT(lost, 0);
    }
    if (how == End::kFullDisk && mounted) {
      EXPECT_EQ(scalar(*store, "SELECT records FROM lost WHERE rank = -1"), 10);
    }
    if (how == End::kClean) {
      EXPECT_EQ(scalar(*store, "SELECT min(clean) FROM thread"), 1);
    }
    if (how == End::kSigkill) {
      EXPECT_EQ(scalar(*store, "SELECT max(clean) FROM thread"), 0);
    }
    once = dump(*store);
  }
  ASSERT_TRUE(build_database(spool, db));
  auto again = Store::open(db);
  ASSERT_TRUE(again);
  EXPECT_EQ(dump(*again), once);
  if (mounted) {
    EXPECT_EQ(umount(folder.c_str()), 0);
  }
  munmap(shared, sizeof(Shared));
}

INSTANTIATE_TEST_SUITE_P(All, CrashMatrix,
                         testing::Combine(testing::Values(End::kSigkill, End::kAbort, End::kSegfault, End::kFullDisk,
                                                          End::kReadOnly, End::kFork, End::kClean),
                                          testing::Values(int(RS_MODE_FLIGHT), int(RS_MODE_STREAM))),
                         [](const auto& info) {
                           return std::string(kEndNames[int(std::get<0>(info.param))]) +
                                  (std::get<1>(info.param) == RS_MODE_STREAM ? "_stream" : "_flight");
                         });

TEST(CrashMatrix, LeftoverIsRecoveredNextToItsDatabase) {
  const Scratch scratch;
  const std::string db = scratch / "t.db";
  Shared* shared = shared_page();
  ASSERT_TRUE(shared);
  run_traced(End::kAbort, RS_MODE_STREAM, db + ".spool", *shared, false);
  std::ofstream(db + ".tmp") << "an ingest that was killed";
  auto recovered = recover_leftover(db);
  ASSERT_TRUE(recovered) << recovered.error().message;
  EXPECT_TRUE(*recovered);
  EXPECT_TRUE(Store::open(db));
  EXPECT_FALSE(std::filesystem::exists(db + ".tmp"));
  ASSERT_TRUE(remove_spool(db + ".spool"));
  recovered = recover_leftover(db);
  EXPECT_TRUE(recovered && !*recovered);
}

}  // namespace
}  // namespace ringscope
