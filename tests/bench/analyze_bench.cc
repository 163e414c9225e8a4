// analyze() at the size of a job: rows a second over 1,024 ranks x 2,000 calls (TP 8 x CP 8 x DP 16; collectives of
// three axes and a ring), finished and stalled in several ways. Rows are operations and their calls. Prints; asserts
// only that the verdict is the planted one.
#include <benchmark/benchmark.h>

#include "tools/analyze/analyze.h"

namespace ringscope {
namespace {

constexpr int kTp = 8, kCp = 8, kDp = 16, kWorld = kTp * kCp * kDp;

enum class Plan { kClean, kSkip, kShortRing, kNeverCalled, kCircle };

// The recording of a job in which rank 77 does something else in its step 10: what it left out, what it ran first. What
// nobody could run any more stays scheduled.
class JobTrace {
 public:
  JobTrace(int calls, Plan plan) : calls_(calls), plan_(plan) {
    view_.strings = {"", "call"};
    for (int axis = 0; axis < 3; ++axis)
      for (int rank = 0; rank < kWorld; ++rank)
        if (group_rank(axis, rank) == 0) {
          CommRow comm{uint32_t(view_.comms.size()), Axis(axis), std::string(name(Axis(axis))), {}};
          for (int i = 0; i < size(axis); ++i) comm.ranks.push_back(rank + i * stride(axis));
          for (int member : comm.ranks) comm_[axis][member] = comm.comm;
          view_.comms.push_back(std::move(comm));
        }
    for (int rank = 0; rank < kWorld; ++rank) run(rank);
    view_.meta[meta_key::kOutcome] = plan == Plan::kClean ? "completed" : "stalled";
    if (plan != Plan::kClean)
      for (int rank = 0; rank < kWorld; ++rank) view_.rank_exits.push_back({rank, -2, 0, "", {}});
  }

  const TraceView& view() const { return view_; }

 private:
  static int size(int axis) { return axis == 0 ? kTp : axis == 1 ? kCp : kDp; }
  static int stride(int axis) { return axis == 0 ? 1 : axis == 1 ? kTp : kTp * kCp; }
  static int group_rank(int axis, int rank) { return rank / stride(axis) % size(axis); }

  void run(int rank) {
    issue_ = 0;
    std::fill(std::begin(seq_), std::end(seq_), 0);
    sent_ = received_ = 0;
    const bool odd = rank == 77 || (plan_ == Plan::kCircle && rank == 77 + kTp + 1);
    for (int step = 0; issue_ < uint64_t(calls_); ++step) {
      const bool here = odd && step == 10 && plan_ != Plan::kClean;
      open_ = plan_ != Plan::kClean && step >= 10;
      for (int layer = 0; layer < 4; ++layer) {
        coll(rank, 0, CollFunc::kAllGather, 512);
        const int hops = here && layer == 2 && plan_ == Plan::kShortRing ? kCp - 2 : kCp - 1;
        for (int hop = 0; hop < hops; ++hop) transfers(rank);
        if (!(here && layer == 2 && plan_ == Plan::kSkip)) coll(rank, 0, CollFunc::kReduceScatter, 512);
      }
      if (here && plan_ == Plan::kNeverCalled) return;
      const bool swapped = here && plan_ == Plan::kCircle;
      coll(rank, swapped ? 1 : 0, CollFunc::kAllReduce, swapped ? 4096 : 32);
      coll(rank, swapped ? 0 : 1, CollFunc::kAllReduce, swapped ? 32 : 4096);
      coll(rank, 2, CollFunc::kAllReduce, 4096);
    }
  }

  OpRow& op(int rank, OpKind kind) {
    OpRow row;
    row.rank = rank;
    row.issue = ++issue_;
    row.op = uint64_t(rank + 1) << 40 | issue_;
    row.stream = uint32_t(rank);
    row.name = 1;
    row.kind = kind;
    row.enqueue_ns = int64_t(issue_) * 1000 + rank;
    row.state = open_ ? OpState::kScheduled : OpState::kCompleted;
    view_.ops.push_back(row);
    return view_.ops.back();
  }
  void coll(int rank, int axis, CollFunc func, uint64_t count) {
    op(rank, OpKind::kCollective).coll = uint32_t(view_.colls.size());
    view_.colls.push_back({uint32_t(view_.ops.size() - 1), comm_[axis][rank], func, DType::kBF16,
                           func == CollFunc::kAllGather ? RedOp::kNone : RedOp::kSum, -1, seq_[axis]++, count});
  }
  void transfers(int rank) {
    const int self = group_rank(1, rank);
    for (Direction direction : {Direction::kRecv, Direction::kSend}) {
      const bool send = direction == Direction::kSend;
      OpRow& row = op(rank, OpKind::kP2p);
      row.p2p = uint32_t(view_.p2ps.size());
      row.group = send ? row.op - 1 : row.op;
      view_.p2ps.push_back({uint32_t(view_.ops.size() - 1), comm_[1][rank], (self + (send ? 1 : kCp - 1)) % kCp,
                            direction, DType::kBF16, send ? sent_++ : received_++, 4096, 2048});
    }
  }

  int calls_;
  Plan plan_;
  TraceView view_;
  uint32_t comm_[3][kWorld] = {};
  uint64_t issue_ = 0, seq_[3] = {}, sent_ = 0, received_ = 0;
  bool open_ = false;
};

void run(benchmark::State& state, Plan plan, const char* expected) {
  const JobTrace job(int(state.range(0)), plan);
  for (auto _ : state) {
    const Report report = analyze(job.view());
    const std::string id = report.findings.empty() ? "" : report.findings[0].id;
    if (id != expected) state.SkipWithError(("verdict: " + id).c_str());
  }
  const int64_t rows = int64_t(job.view().ops.size() + job.view().colls.size() + job.view().p2ps.size());
  state.SetItemsProcessed(state.iterations() * rows);
  state.counters["rows"] = double(rows);
}

void BM_Finished(benchmark::State& state) { run(state, Plan::kClean, ""); }
void BM_SkippedCall(benchmark::State& state) { run(state, Plan::kSkip, "hang.missing_rank"); }
void BM_ShortRing(benchmark::State& state) { run(state, Plan::kShortRing, "hang.ring_break"); }
void BM_NeverCalled(benchmark::State& state) { run(state, Plan::kNeverCalled, "hang.missing_rank"); }
void BM_Circle(benchmark::State& state) { run(state, Plan::kCircle, "hang.cross_group_cycle"); }
BENCHMARK(BM_Finished)->Arg(2000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_SkippedCall)->Arg(2000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_ShortRing)->Arg(2000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_NeverCalled)->Arg(2000)->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Circle)->Arg(2000)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ringscope

BENCHMARK_MAIN();
