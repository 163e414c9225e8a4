// kill -9 in the middle of a real, recorded training, at 50 random moments. The audited program counts every record
// it asks for, thread by thread, in memory of its own (audit.h). Afterwards, for every thread:
//   recovered + lost = what it counted, or one more (the record between its publication and the count)
// and `diagnose`, the real one, recovers the trace and finds nothing wrong with a run that was only killed.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <random>

#include <nlohmann/json.hpp>

#include "tests/tools/kill/audit.h"
#include "tests/tracedb/scratch.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

using testing::AuditPage;

constexpr int kKills = 50;

AuditPage* make_audit(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (fd < 0 || ftruncate(fd, sizeof(AuditPage)) != 0) return nullptr;
  void* at = mmap(nullptr, sizeof(AuditPage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  return at == MAP_FAILED ? nullptr : static_cast<AuditPage*>(at);
}

pid_t start(std::vector<std::string> args, const std::string& out) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
  dup2(open((out + ".log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
  std::vector<char*> argv;
  for (std::string& arg : args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  execv(argv[0], argv.data());
  _exit(127);
}

std::string read_all(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  std::string text;
  char block[4096];
  for (size_t n; file && (n = std::fread(block, 1, sizeof block, file)) > 0;) text.append(block, n);
  if (file) std::fclose(file);
  return text;
}

// The killed training, its audit and its files.
class Killed {
 public:
  explicit Killed(const Scratch& scratch) : scratch_(scratch), audit_(make_audit(scratch / "audit")) {}
  ~Killed() { munmap(audit_, sizeof(AuditPage)); }
  Killed(const Killed&) = delete;

  std::string db() const { return scratch_ / "run.db"; }
  std::string spool() const { return db() + ".spool"; }

  // A short run to its end: how long this machine and build take for it. Microseconds.
  int64_t whole_run() {
    const auto from = std::chrono::steady_clock::now();
    int status = 0;
    waitpid(start_training("4"), &status, 0);
    EXPECT_EQ(status, 0) << read_all(scratch_ / "train.log");
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - from).count();
  }

  void run(int64_t after_us) {
    ASSERT_NE(audit_, nullptr);
    const pid_t pid = start_training("1000000");
    ASSERT_GT(pid, 0) << "fork";
    usleep(useconds_t(after_us));
    kill(pid, SIGKILL);
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << read_all(scratch_ / "train.log");
  }

  uint64_t asked() const {
    uint64_t sum = 0;
    for (int i = 0; i < audit_->used; ++i) sum += audit_->slots[i].done;
    return sum;
  }

  // Exact, thread by thread.
  void expect_exact_counts() const {
    auto contents = read_spool(spool());
    ASSERT_TRUE(contents) << contents.error().message;
    std::map<int64_t, uint64_t> found;
    for (const RingReader& ring : contents->rings) {
      const RingLoss loss = ring.loss();
      found[ring.tid()] += loss.recovered + loss.lost + loss.torn;
    }
    EXPECT_TRUE(contents->unreadable.empty());
    uint64_t unringed = 0;
    for (const ProcessNames& process : contents->processes) unringed += process.unringed;
    EXPECT_EQ(unringed, 0u);
    for (int i = 0; i < audit_->used; ++i) {
      const testing::AuditSlot& slot = audit_->slots[i];
      EXPECT_LE(slot.begun, slot.done + 1);
      EXPECT_GE(found[slot.tid], slot.done) << "thread " << slot.tid;
      EXPECT_LE(found[slot.tid], slot.begun) << "thread " << slot.tid;
    }
  }

  std::string diagnose(int& code) const {
    const pid_t pid = start({RINGSCOPE_PROGRAM, "diagnose", db(), "--json"}, scratch_ / "report.json");
    int status = 0;
    waitpid(pid, &status, 0);
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return read_all(scratch_ / "report.json");
  }

 private:
  pid_t start_training(const std::string& steps) const {
    setenv(testing::kAuditVariable, (scratch_ / "audit").c_str(), 1);
    return start({RINGSCOPE_AUDITED_PROGRAM,
                  "train",
                  "--tp",
                  "2",
                  "--cp",
                  "2",
                  "--num-layers",
                  "2",
                  "--hidden-size",
                  "32",
                  "--num-attention-heads",
                  "4",
                  "--seq-length",
                  "32",
                  "--global-batch-size",
                  "2",
                  "--train-iters",
                  steps,
                  "--trace",
                  db()},
                 scratch_ / "train");
  }

  const Scratch& scratch_;
  AuditPage* audit_;
};

void expect_no_accusation(const std::string& report) {
  const auto json = nlohmann::json::parse(report, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << report;
  for (const auto& finding : json["findings"]) EXPECT_EQ(finding["id"], "hang.undecided") << report;
}

TEST(KillNine, FiftyTimesAtRandomMomentsOfATraining) {
  std::mt19937_64 random(20231);
  int64_t whole_us = 0;
  {
    const Scratch scratch;
    whole_us = Killed(scratch).whole_run();
  }
  uint64_t with_steps = 0, early = 0, records = 0;
  for (int i = 0; i < kKills; ++i) {
    SCOPED_TRACE("kill " + std::to_string(i));
    const Scratch scratch;
    Killed killed(scratch);
    killed.run(std::uniform_int_distribution<int64_t>(1'000, 2 * whole_us)(random));
    if (HasFatalFailure()) return;
    records += killed.asked();
    if (!is_spool(killed.spool())) {
      EXPECT_EQ(killed.asked(), 0u);  // before anything was recorded
      ++early;
      continue;
    }
    killed.expect_exact_counts();
    if (killed.asked() == 0) continue;  // an empty spool is no trace
    int code = -1;
    const std::string report = killed.diagnose(code);
    EXPECT_EQ(code, 4) << report << read_all(scratch / "report.json.log");
    expect_no_accusation(report);
    auto store = Store::open(killed.db());
    ASSERT_TRUE(store) << store.error().message;
    EXPECT_EQ(integrity(*store), "ok");
    with_steps += scalar(*store, "SELECT count(*) FROM train_step") > 0;
    EXPECT_EQ(scalar(*store, "SELECT coalesce(sum(records + torn), 0) FROM lost"),
              scalar(*store, "SELECT sum(lost) FROM source"));
    int again = -1;
    EXPECT_EQ(killed.diagnose(again), report);
    EXPECT_EQ(again, code);
  }
  std::printf("%d kills: %llu before the first record, %llu with finished steps; %llu records accounted for\n", kKills,
              static_cast<unsigned long long>(early), static_cast<unsigned long long>(with_steps),
              static_cast<unsigned long long>(records));
  EXPECT_GE(with_steps, uint64_t(kKills) / 4);
}

}  // namespace
}  // namespace ringscope
