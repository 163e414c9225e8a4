// One job as many sources: every rank's rows as the trace of a process of its own, which numbers its operations,
// communicators, streams, buffers and events from 1, as all the others do. Merged, they are judged as the one trace was.
#include <gtest/gtest.h>

#include <algorithm>
#include <unordered_map>

#include "tests/sweep/sweep.h"
#include "tools/analyze/analyze.h"
#include "tracedb/import/merge.h"
#include "tracedb/store/op_rows.h"

namespace ringscope {
namespace {

using namespace testing;

template <class Id>
class FromOne {
 public:
  Id operator()(Id id) { return id == 0 ? 0 : ids_.try_emplace(id, Id(ids_.size() + 1)).first->second; }

 private:
  std::unordered_map<Id, Id> ids_;
};

template <class Row>
std::vector<Row> of_rank(const std::vector<Row>& rows, int rank) {
  std::vector<Row> kept;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(kept), [&](const Row& row) { return row.rank == rank; });
  return kept;
}

TraceView process_of(const TraceView& job, int rank) {
  TraceView v;
  v.sources = {{"rank" + std::to_string(rank), "test", rank}};
  v.meta = job.meta;
  v.strings = job.strings;
  v.ranks = of_rank(job.ranks, rank);
  v.rank_exits = of_rank(job.rank_exits, rank);
  v.streams = of_rank(job.streams, rank);
  v.ops = of_rank(job.ops, rank);
  v.colls = of_rank(job.colls, rank);
  v.p2ps = of_rank(job.p2ps, rank);
  v.accesses = of_rank(job.accesses, rank);
  v.syncs = of_rank(job.syncs, rank);
  v.buffers = of_rank(job.buffers, rank);
  v.ring_plans = of_rank(job.ring_plans, rank);
  v.position_runs = of_rank(job.position_runs, rank);
  v.softmax_rows = of_rank(job.softmax_rows, rank);
  v.softmax_stats = of_rank(job.softmax_stats, rank);
  v.attention_rows = of_rank(job.attention_rows, rank);
  v.label_runs = of_rank(job.label_runs, rank);
  v.tensor_stats = of_rank(job.tensor_stats, rank);
  v.memory_samples = of_rank(job.memory_samples, rank);
  v.train_steps = of_rank(job.train_steps, rank);
  for (const CommRow& comm : job.comms)
    if (std::find(comm.ranks.begin(), comm.ranks.end(), rank) != comm.ranks.end()) v.comms.push_back(comm);
  if (rank % 2) std::reverse(v.comms.begin(), v.comms.end());  // created in another order: other numbers

  FromOne<uint32_t> comm, stream;
  FromOne<uint64_t> op, buffer, event, key;
  for (CommRow& row : v.comms) row.comm = comm(row.comm);
  for (StreamRow& row : v.streams) row.stream = stream(row.stream);
  for (OpRow& row : v.ops) {
    row.op = op(row.op);
    row.group = op(row.group);
    row.stream = stream(row.stream);
    row.coll = row.p2p = kNoRow;
  }
  const auto call = [&](auto& rows) {
    for (auto& row : rows) {
      row.op_id = op(row.op_id);
      row.comm = comm(row.comm);
    }
  };
  call(v.colls);
  call(v.p2ps);
  for (AccessRow& row : v.accesses) {
    row.op_id = op(row.op_id);
    row.buffer = buffer(row.buffer);
  }
  for (BufferRow& row : v.buffers) {
    row.buffer = buffer(row.buffer);
    if (row.free_stream != kAnyStream) row.free_stream = stream(row.free_stream);
  }
  for (SyncRow& row : v.syncs) {
    row.stream = stream(row.stream);
    row.event = event(row.event);
    row.key = key(row.key);
  }
  for (RingPlanRow& row : v.ring_plans) row.comm = comm(row.comm);
  link_operations(v);
  return v;
}

// What a verdict says, without the rows it cites.
std::string words(const Report& report) {
  std::string text = name(report.verdict);
  for (const Finding& f : report.findings) {
    text += "\n" + f.id + (f.root ? " root" : "") + ":";
    for (int rank : f.ranks) text += " " + std::to_string(rank);
    if (f.group) text += " " + f.group->name;
    if (f.seq) text += " #" + std::to_string(*f.seq);
    text += " step " + std::to_string(f.where.step) + " layer " + std::to_string(f.where.layer) + " ring step " +
            std::to_string(f.where.ring_step);
  }
  return text;
}

TEST(Sources, OfEveryRankAloneWithCollidingIdsGiveTheVerdictOfTheWhole) {
  for (const Case& c : fault_cases(1)) {
    SCOPED_TRACE(c.name);
    const RecordedRun run = record_and_analyze(c.config);
    ASSERT_EQ(run.error, "");
    std::vector<TraceView> processes;
    for (int rank = c.config.world() - 1; rank >= 0; --rank) processes.push_back(process_of(run.view, rank));
    const TraceView merged = merge_views(std::move(processes));
    EXPECT_EQ(merged.comms.size(), run.view.comms.size());
    ASSERT_EQ(merged.ops.size(), run.view.ops.size());
    const Report report = analyze(merged);
    EXPECT_EQ(words(report), words(run.report));
    for (const Finding& f : report.findings)
      for (const Evidence& e : f.evidence) {
        ASSERT_LT(size_t(e.source), merged.sources.size());
        // "rank 2 ran ..." stands in the trace of rank 2.
        const std::string own = "rank " + std::to_string(merged.sources[size_t(e.source)].rank);
        EXPECT_TRUE(!e.text.starts_with("rank ") || e.text.starts_with(own)) << e.text << " in the source of " << own;
      }
  }
}

// TP called CP and CP called TP, in names and coordinates too.
TraceView swap_labels(TraceView view) {
  for (CommRow& comm : view.comms) {
    if (comm.axis != Axis::kTp && comm.axis != Axis::kCp) continue;
    comm.axis = comm.axis == Axis::kTp ? Axis::kCp : Axis::kTp;
    if (comm.name.size() > 2) comm.name[0] = comm.axis == Axis::kTp ? 't' : 'c';
  }
  for (RankRow& rank : view.ranks) {
    std::swap(rank.tp, rank.cp);
    std::swap(rank.tp_size, rank.cp_size);
  }
  return view;
}

std::string roots(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings) {
    if (!f.root) continue;
    text += f.id + " [";
    for (int rank : f.ranks) text += " " + std::to_string(rank);
    text += " ] ";
  }
  return text;
}

TEST(Labels, SwappedBetweenTwoAxesChangeNoVerdict) {
  for (const Case& c : fault_cases(4)) {
    if (c.config.tp < 2 || c.config.cp < 2) continue;
    SCOPED_TRACE(c.name);
    const RecordedRun run = record_and_analyze(c.config);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(roots(analyze(swap_labels(run.view))), roots(run.report));
  }
  for (int i : {5, 8, 15, 18, 25, 28, 35}) {  // ring, all-gather and three steps
    const JobConfig config = clean_config(i);
    if (config.tp < 2 || config.cp < 2) continue;
    SCOPED_TRACE(describe(config));
    const RecordedRun run = record_and_analyze(config);
    ASSERT_EQ(run.error, "");
    EXPECT_EQ(roots(analyze(swap_labels(run.view))), "");
  }
}

}  // namespace
}  // namespace ringscope
