// Every edge of every method, one at a time. A clean run is recorded once; then single rows of its syncs are changed the
// way a program with that mistake would have written them, and a second happens-before, quadratic and written down
// without a clock, says whether any two accesses are left without order. The rule must tell exactly those.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/view_filter.h"
#include "tests/sweep/recorded_run.h"
#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

using testing::record_and_analyze;
using testing::RecordedRun;

// ---- the second happens-before: a graph of what is done before what

class Reference {
 public:
  explicit Reference(const TraceView& view) : view_(view) {
    words_ = view.ops.size() / 64 + 1;
    begins_.resize(view.ops.size()), starts_ = ends_ = begins_;
    std::map<int, std::pair<size_t, size_t>> of_rank;
    for (size_t i = 0; i < view.ops.size(); ++i) {
      of_rank.try_emplace(view.ops[i].rank, i, i).first->second.second = i + 1;
    }
    for (const auto& [rank, rows] : of_rank) add_rank(rank, rows.first, rows.second);
    add_calls();
    propagate();
  }

  bool unordered(uint32_t a, uint32_t b) const { return !done_before(a, b) && !done_before(b, a); }

 private:
  using Nodes = std::vector<uint32_t>;

  uint32_t node(const Nodes& behind) {
    in_.push_back(behind);
    return uint32_t(in_.size() - 1);
  }

  void add_rank(int rank, size_t op, size_t last_op) {
    std::map<uint32_t, Nodes> tail;  // by stream
    Nodes host;
    std::map<uint64_t, uint32_t> records;
    size_t sync = 0;
    const auto with_host = [&](Nodes nodes) {
      nodes.insert(nodes.end(), host.begin(), host.end());
      return nodes;
    };
    const auto add_sync = [&](const SyncRow& row) {
      Nodes& stream = tail[row.stream];
      if (row.kind == SyncKind::kRecord) stream = {records[row.key] = node(with_host(stream))};
      else if (row.kind == SyncKind::kHostSync) host = {node(with_host(stream))};
      else if (records.contains(row.key)) stream.push_back(records[row.key]), stream = {node(stream)};
    };
    while (sync < view_.syncs.size() && view_.syncs[sync].rank != rank) ++sync;
    while (op < last_op) {
      size_t next = op + 1;
      while (next < last_op && view_.ops[op].group && view_.ops[next].group == view_.ops[op].group) ++next;
      while (sync < view_.syncs.size() && view_.syncs[sync].rank == rank &&
             view_.syncs[sync].issue < view_.ops[next - 1].issue)
        add_sync(view_.syncs[sync++]);
      const bool host_read = view_.ops[op].kind == OpKind::kHostRead;
      Nodes& stream = host_read ? host : tail[view_.ops[op].stream];
      const Nodes before = with_host(stream);
      stream.clear();
      for (; op < next; ++op) {
        starts_[op] = node(before);
        begins_[op] = node({starts_[op]});
        ends_[op] = node({begins_[op]});
        stream.push_back(ends_[op]);
      }
    }
    for (; sync < view_.syncs.size() && view_.syncs[sync].rank == rank; ++sync) add_sync(view_.syncs[sync]);
  }

  void add_calls() {
    std::map<std::pair<uint32_t, uint64_t>, Nodes> members;
    std::map<std::tuple<uint32_t, int, int, uint64_t>, uint32_t> sends;
    const auto self = [&](const OpRow& op, uint32_t comm) {
      for (const CommRow& row : view_.comms)
        if (row.comm == comm) return int(std::find(row.ranks.begin(), row.ranks.end(), op.rank) - row.ranks.begin());
      return -1;
    };
    for (size_t i = 0; i < view_.ops.size(); ++i) {
      const OpRow& op = view_.ops[i];
      if (op.coll != kNoRow) members[{view_.colls[op.coll].comm, view_.colls[op.coll].seq}].push_back(starts_[i]);
      if (op.p2p == kNoRow) continue;
      const P2pRow& p2p = view_.p2ps[op.p2p];
      if (p2p.direction == Direction::kSend) sends[{p2p.comm, self(op, p2p.comm), p2p.peer, p2p.seq}] = starts_[i];
    }
    for (size_t i = 0; i < view_.ops.size(); ++i) {
      const OpRow& op = view_.ops[i];
      if (op.coll != kNoRow)
        for (uint32_t start : members[{view_.colls[op.coll].comm, view_.colls[op.coll].seq}])
          in_[ends_[i]].push_back(start);
      if (op.p2p == kNoRow) continue;
      const P2pRow& p2p = view_.p2ps[op.p2p];
      if (p2p.direction == Direction::kRecv)
        in_[begins_[i]].push_back(sends.at({p2p.comm, p2p.peer, self(op, p2p.comm), p2p.seq}));
    }
  }

  void propagate() {
    known_.assign(in_.size() * words_, 0);
    std::vector<std::vector<uint32_t>> out(in_.size());
    std::vector<size_t> left(in_.size());
    Nodes ready;
    for (uint32_t n = 0; n < in_.size(); ++n) {
      left[n] = in_[n].size();
      for (uint32_t from : in_[n]) out[from].push_back(n);
      if (left[n] == 0) ready.push_back(n);
    }
    std::vector<uint32_t> op_of(in_.size(), kNoRow);
    for (uint32_t op = 0; op < ends_.size(); ++op) op_of[ends_[op]] = op;
    while (!ready.empty()) {
      const uint32_t n = ready.back();
      ready.pop_back();
      uint64_t* own = &known_[n * words_];
      for (uint32_t from : in_[n])
        for (size_t w = 0; w < words_; ++w) own[w] |= known_[from * words_ + w];
      if (op_of[n] != kNoRow) own[op_of[n] / 64] |= uint64_t(1) << (op_of[n] % 64);
      for (uint32_t to : out[n])
        if (--left[to] == 0) ready.push_back(to);
    }
  }

  bool done_before(uint32_t a, uint32_t b) const { return known_[begins_[b] * words_ + a / 64] >> (a % 64) & 1; }

  const TraceView& view_;
  size_t words_ = 0;
  Nodes starts_, begins_, ends_;  // by op: it starts, its first byte moves, it is done
  std::vector<Nodes> in_;
  std::vector<uint64_t> known_;  // by node: which operations are done
};

// Pairs of operations of one rank that touch the same bytes, one of them writing.
std::vector<std::pair<uint32_t, uint32_t>> conflicts(const TraceView& view) {
  std::map<uint64_t, std::vector<const AccessRow*>> of_buffer;
  for (const AccessRow& access : view.accesses) of_buffer[access.buffer].push_back(&access);
  std::set<std::pair<uint32_t, uint32_t>> pairs;
  for (const auto& [buffer, accesses] : of_buffer)
    for (size_t i = 0; i < accesses.size(); ++i)
      for (size_t j = i + 1; j < accesses.size(); ++j) {
        const AccessRow &a = *accesses[i], &b = *accesses[j];
        const OpRow &x = view.ops[a.op], &y = view.ops[b.op];
        if (x.stream == y.stream && x.kind != OpKind::kHostRead && y.kind != OpKind::kHostRead) continue;
        if (a.begin < b.end && b.begin < a.end && (a.mode == AccessMode::kWrite || b.mode == AccessMode::kWrite))
          pairs.emplace(std::min(a.op, b.op), std::max(a.op, b.op));
      }
  return {pairs.begin(), pairs.end()};
}

// ---- what a program with one wrong edge would have written

enum class Change { kWaitDropped, kWaitStale, kWaitElsewhere, kNeverRecorded, kRecordedEarly, kRecordStale };
const char* name(Change change) {
  static const char* const names[] = {"wait dropped",           "wait on the previous record",
                                      "wait on another stream", "never recorded",
                                      "recorded early",         "previous record"};
  return names[int(change)];
}

uint64_t previous_record(const std::vector<SyncRow>& syncs, size_t at) {
  for (size_t i = at; i-- > 0 && syncs[i].rank == syncs[at].rank;)
    if (syncs[i].kind == SyncKind::kRecord && syncs[i].name == syncs[at].name) return syncs[i].key;
  return 0;
}

size_t record_of(const std::vector<SyncRow>& syncs, size_t wait) {
  for (size_t i = wait; i-- > 0;)
    if (syncs[i].kind == SyncKind::kRecord && syncs[i].key == syncs[wait].key) return i;
  return syncs.size();
}

bool is_of(Change change, SyncKind kind) { return (change < Change::kNeverRecorded) == (kind == SyncKind::kWait); }

// The row's stream as another one of the rank.
uint32_t other_stream(const TraceView& view, const SyncRow& row, uint32_t recorded_on) {
  for (const StreamRow& stream : view.streams)
    if (stream.rank == row.rank && stream.stream != row.stream && stream.stream != recorded_on) return stream.stream;
  return row.stream;
}

void move_before_last_op(TraceView& view, std::vector<SyncRow>& syncs, size_t at) {
  SyncRow row = syncs[at];
  uint64_t issue = 0, group = 0;
  for (const OpRow& op : view.ops)
    if (op.rank == row.rank && op.stream == row.stream && op.issue < row.issue && op.kind != OpKind::kHostRead) {
      if (op.group == 0 || op.group != group) issue = op.issue;
      group = op.group;
    }
  if (issue == 0) return;
  syncs.erase(syncs.begin() + ptrdiff_t(at));
  row.issue = issue - 1;
  const auto place = std::find_if(syncs.begin(), syncs.end(), [&](const SyncRow& other) {
    return other.rank == row.rank && other.issue >= row.issue;
  });
  syncs.insert(place, row);
}

void change(TraceView& view, size_t at, Change how) {
  std::vector<SyncRow>& syncs = view.syncs;
  const auto rebind = [&](uint64_t from, uint64_t to) {
    for (SyncRow& row : syncs)
      if (row.kind == SyncKind::kWait && row.key == from) row.key = to;
  };
  switch (how) {
    case Change::kWaitDropped: syncs.erase(syncs.begin() + ptrdiff_t(at)); break;
    case Change::kWaitStale: {
      const size_t record = record_of(syncs, at);
      if (record < syncs.size()) syncs[at].key = previous_record(syncs, record);
      break;
    }
    case Change::kWaitElsewhere: {
      const size_t record = record_of(syncs, at);
      if (record < syncs.size()) syncs[at].stream = other_stream(view, syncs[at], syncs[record].stream);
      break;
    }
    case Change::kNeverRecorded:
      rebind(syncs[at].key, 0);
      syncs.erase(syncs.begin() + ptrdiff_t(at));
      break;
    case Change::kRecordStale: rebind(syncs[at].key, previous_record(syncs, at)); break;
    case Change::kRecordedEarly: move_before_last_op(view, syncs, at); break;
  }
}

// Ranks on which an operation reads bytes of memory whose whole life is recorded before anything wrote them. What the
// recording looks at for itself is left out.
std::set<int> unwritten_reads(const TraceView& view) {
  std::map<uint64_t, const BufferRow*> rows;
  for (const BufferRow& row : view.buffers) rows[row.buffer] = &row;
  const auto statistics = [&](const AccessRow& access) {
    return rows.at(access.buffer)->category == MemCategory::kStatistics;
  };
  std::map<uint64_t, std::vector<bool>> written;
  std::set<int> ranks;
  for (size_t i = 0; i < view.accesses.size();) {
    size_t next = i;
    bool program = false, writes = false;
    for (; next < view.accesses.size() && view.accesses[next].op == view.accesses[i].op; ++next) {
      const bool write = view.accesses[next].mode == AccessMode::kWrite;
      writes = writes || write;
      program = program || (write && !statistics(view.accesses[next]));
    }
    program = program || !writes;
    for (bool write : {false, true})
      for (size_t j = i; j < next; ++j) {
        const AccessRow& access = view.accesses[j];
        std::vector<bool>& bytes = written[access.buffer];
        bytes.resize(rows.at(access.buffer)->bytes);
        if ((access.mode == AccessMode::kWrite) != write) continue;
        const auto begin = bytes.begin() + ptrdiff_t(access.begin), end = bytes.begin() + ptrdiff_t(access.end);
        if (write) std::fill(begin, end, true);
        else if (program && !statistics(access) && std::find(begin, end, false) != end)
          ranks.insert(view.ops[access.op].rank);
      }
    i = next;
  }
  return ranks;
}

// ---- the comparison

struct Count {
  size_t needed = 0, redundant = 0;
};

class Edges {
 public:
  explicit Edges(const RecordedRun& run) : view_(run.view), syncs_(run.view.syncs), pairs_(conflicts(run.view)) {}

  void expect_clean() {
    EXPECT_TRUE(lacking(Reference(view_)).empty());
    EXPECT_TRUE(races(TraceIndex(view_)).empty());
  }

  // Every kind of row once a pass, with the ranks taken in turn; and all rows of a name, on half of the ranks.
  void one_by_one(Count& count) {
    std::map<std::tuple<std::string, int, int, int>, std::vector<size_t>> kinds;
    std::map<std::string, std::vector<size_t>> names;
    for (size_t i = 0; i < syncs_.size(); ++i) {
      const SyncRow& row = syncs_[i];
      if (row.kind == SyncKind::kHostSync) continue;
      const std::string event(view_.text(row.name));
      kinds[{event, int(row.kind), int(row.where.pass), row.where.ring_step}].push_back(i);
      names[event].push_back(i);
    }
    size_t turn = 0;
    for (int how = 0; how <= int(Change::kRecordStale); ++how) {
      for (const auto& [kind, rows] : kinds)
        if (is_of(Change(how), SyncKind(std::get<1>(kind))))
          judge({rows[turn++ * 7 % rows.size()]}, Change(how), count);
      for (const auto& [event, rows] : names) {
        std::vector<size_t> chosen;
        for (size_t i : rows)
          if (is_of(Change(how), syncs_[i].kind) && (view_.syncs[i].rank % 2 == 1 || view_.ranks.size() == 1))
            chosen.push_back(i);
        if (!chosen.empty()) judge(chosen, Change(how), count);
      }
    }
  }

 private:
  std::set<int> lacking(const Reference& order) const {
    std::set<int> ranks;
    for (const auto& [a, b] : pairs_)
      if (!ranks.contains(view_.ops[a].rank) && order.unordered(a, b)) ranks.insert(view_.ops[a].rank);
    return ranks;
  }

  void judge(std::vector<size_t> rows, Change how, Count& count) {
    std::sort(rows.rbegin(), rows.rend());
    const SyncRow first = syncs_[rows.back()];
    for (size_t row : rows) change(view_, row, how);
    const std::set<int> ranks = lacking(Reference(view_));
    const std::vector<Finding> found = races(TraceIndex(view_));
    ++(ranks.empty() ? count.redundant : count.needed);
    std::string said;
    for (const Finding& f : found) said += f.id + ": " + f.sentence + "\n";
    const std::string what = std::string(name(how)) + " of " + std::string(view_.text(first.name)) + " (" +
                             std::to_string(rows.size()) + "), rank " + std::to_string(first.rank) + " " +
                             place_text(first.where);
    if (ranks.empty()) {
      EXPECT_TRUE(found.empty()) << "redundant: " << what << "\n" << said;
    } else {
      EXPECT_EQ(found.size(), 1u) << "needed: " << what << "\n" << said;
      if (!found.empty()) {
        EXPECT_EQ(std::set<int>(found[0].ranks.begin(), found[0].ranks.end()), ranks) << what << "\n" << said;
        EXPECT_FALSE(found[0].would_raise_confidence.empty());
      }
    }
    view_.syncs = syncs_;
  }

  TraceView view_;
  const std::vector<SyncRow> syncs_;
  std::vector<std::pair<uint32_t, uint32_t>> pairs_;
};

JobConfig job(int tp, int cp, int dp, CpComm method) {
  JobConfig c;
  c.model.num_layers = 2;
  c.model.hidden_size = 16;
  c.model.num_attention_heads = 2;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 16;
  c.seq_length = 32;
  c.micro_batch_size = 1;
  c.global_batch_size = dp;
  c.train_iters = 2;
  c.tp = tp, c.cp = cp, c.dp = dp;
  c.sequence_parallel = tp > 1;
  c.cp_comm = method;
  return c;
}

std::vector<JobConfig> jobs() {
  std::vector<JobConfig> all;
  for (CpComm method : {CpComm::kP2p, CpComm::kAllGather, CpComm::kGlobalSoftmax}) {
    all.push_back(job(1, 4, 1, method));
    all.push_back(job(2, 2, 1, method));
    JobConfig mixed = job(1, 2, 2, method);
    mixed.global_batch_size = 4;  // two microbatches
    all.push_back(mixed);
    if (method == CpComm::kP2p) {
      all.push_back(job(1, 3, 1, method));
      all.back().seq_length = 29;  // padded
    }
    JobConfig plain = job(2, 2, 2, method);
    plain.overlap = false;
    plain.sequence_parallel = false;
    all.push_back(plain);
  }
  all.push_back(job(2, 1, 2, CpComm::kP2p));
  JobConfig gpt = job(1, 4, 1, CpComm::kP2p);
  gpt.model.arch = Arch::kGpt;
  gpt.model.linear_bias = gpt.model.tie_embeddings = true;
  gpt.cp_layout = CpLayout::kContiguous;
  all.push_back(gpt);
  return all;
}

// A kernel that was never launched leaves no row. Its readers find memory that nothing wrote, or older contents, which no
// order can tell.
TEST(Order, AKernelThatWasLeftOut) {
  size_t unwritten = 0, stale = 0;
  for (const JobConfig& config : jobs()) {
    if (config.dp == 2 && config.cp != 2) continue;
    const RecordedRun run = record_and_analyze(config);
    ASSERT_EQ(run.error, "");
    EXPECT_TRUE(unwritten_reads(run.view).empty());
    std::map<std::pair<uint32_t, int>, std::vector<uint64_t>> kernels;
    for (const OpRow& op : run.view.ops)
      if (op.kind == OpKind::kKernel && !run.view.text(op.name).starts_with("statistics."))
        kernels[{op.name, int(op.where.pass)}].push_back(op.op);
    size_t turn = 0;
    for (const auto& [name, ops] : kernels) {
      TraceView view = run.view;
      const uint64_t gone = ops[turn++ * 5 % ops.size()];
      testing::keep_ops(view, [&](const OpRow& op) { return op.op != gone; });
      const std::set<int> ranks = unwritten_reads(view);
      const std::vector<Finding> found = races(TraceIndex(view));
      ++(ranks.empty() ? stale : unwritten);
      std::string said;
      for (const Finding& f : found) said += f.id + ": " + f.sentence + "\n";
      ASSERT_EQ(found.size(), ranks.empty() ? 0u : 1u) << run.view.text(name.first) << "\n" << said;
      if (found.empty()) continue;
      EXPECT_EQ(found[0].id, "race.uninitialised_read") << said;
      EXPECT_EQ(std::set<int>(found[0].ranks.begin(), found[0].ranks.end()), ranks) << said;
    }
  }
  EXPECT_GT(unwritten, 100u);
  EXPECT_GT(stale, 20u);
}

TEST(Order, EveryNeededEdgeIsToldAndNoOther) {
  Count count;
  for (const JobConfig& config : jobs()) {
    SCOPED_TRACE("tp" + std::to_string(config.tp) + " cp" + std::to_string(config.cp) + " dp" +
                 std::to_string(config.dp) + " method " + std::to_string(int(config.cp_comm)) +
                 (config.overlap ? "" : " no overlap"));
    const RecordedRun run = record_and_analyze(config);
    ASSERT_EQ(run.error, "");
    Edges edges(run);
    edges.expect_clean();
    edges.one_by_one(count);
  }
  std::printf("%zu needed, %zu redundant\n", count.needed, count.redundant);
  EXPECT_GT(count.needed, 500u);
  EXPECT_GT(count.redundant, 100u);
}

}  // namespace
}  // namespace ringscope
