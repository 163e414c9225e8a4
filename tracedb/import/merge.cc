#include "tracedb/import/merge.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

#include "tracedb/model/comm_identity.h"
#include "tracedb/store/op_rows.h"

namespace ringscope {
namespace {

// Gives the ids of one source their place in the job. 0 means none and stays.
class Renumber {
 public:
  Renumber(uint64_t base, bool first) : base_(base), first_(first) {}
  uint64_t operator()(uint64_t id) const { return id == 0 || first_ ? id : id + base_; }

 private:
  uint64_t base_;
  bool first_;
};

template <class Row, class Field>
uint64_t most(const std::vector<Row>& rows, Field field) {
  uint64_t most = 0;
  for (const Row& row : rows) most = std::max<uint64_t>(most, row.*field);
  return most;
}

class Merger {
 public:
  explicit Merger(std::vector<TraceView> views) : views_(std::move(views)) { out_.strings.emplace_back(); }

  TraceView run() {
    for (size_t i = 0; i < views_.size(); ++i) add_facts(i);
    merge_outcome();
    for (size_t i = 0; i < views_.size(); ++i) renumber(i);
    take_tables();
    for (OpRow& op : out_.ops) op.coll = op.p2p = kNoRow;
    link_operations(out_);
    return std::move(out_);
  }

 private:
  TraceView& view(size_t i) { return views_[i]; }

  void add_facts(size_t i) {
    TraceView& v = view(i);
    first_source_.push_back(int32_t(out_.sources.size()));
    out_.sources.insert(out_.sources.end(), v.sources.begin(), v.sources.end());
    for (RankRow& rank : v.ranks)
      if (std::none_of(out_.ranks.begin(), out_.ranks.end(), [&](const RankRow& r) { return r.rank == rank.rank; }))
        out_.ranks.push_back(std::move(rank));
    out_.lost.insert(out_.lost.end(), v.lost.begin(), v.lost.end());
    for (ImportStat& stat : v.import_stats) add_stat(std::move(stat));
    for (auto& [key, value] : v.meta) out_.meta.emplace(key, value);
    std::sort(out_.ranks.begin(), out_.ranks.end(), [](const RankRow& a, const RankRow& b) { return a.rank < b.rank; });
  }

  void add_stat(ImportStat stat) {
    for (ImportStat& known : out_.import_stats)
      if (known.name == stat.name && known.severity == stat.severity) {
        known.count += stat.count;
        return;
      }
    out_.import_stats.push_back(std::move(stat));
  }

  void merge_outcome() {
    bool stalled = false, all = true;
    std::string outcome;
    for (const TraceView& v : views_) {
      const auto found = v.meta.find(meta_key::kOutcome);
      if (found == v.meta.end()) {
        all = all && v.ops.empty();
        continue;
      }
      stalled = stalled || found->second == "stalled";
      if (outcome.empty() || found->second != "completed") outcome = found->second;
    }
    out_.meta.erase(meta_key::kOutcome);
    if (stalled) out_.meta[meta_key::kOutcome] = "stalled";
    else if (all && !outcome.empty()) out_.meta[meta_key::kOutcome] = outcome;
  }

  void renumber(size_t i) {
    renumber_texts(view(i));
    renumber_comms(view(i), int(i));
    renumber_streams(view(i), i == 0);
    renumber_events(view(i), i == 0);
    renumber_ops(view(i), i == 0);
  }

  void renumber_texts(TraceView& v) {
    std::vector<uint32_t> text(v.strings.size(), 0);
    for (size_t id = 1; id < v.strings.size(); ++id) {
      const auto [it, fresh] = texts_.try_emplace(v.strings[id], uint32_t(out_.strings.size()));
      if (fresh) out_.strings.push_back(v.strings[id]);
      text[id] = it->second;
    }
    const auto apply = [&](auto& rows) {
      for (auto& row : rows) row.name = row.name < text.size() ? text[row.name] : 0;
    };
    apply(v.ops);
    apply(v.syncs);
    apply(v.buffers);
    apply(v.tensor_stats);
    apply(v.update_samples);
  }

  void renumber_comms(TraceView& v, int process) {
    std::unordered_map<uint32_t, uint32_t> job_id;
    for (CommRow& comm : v.comms) {  // in creation order
      const uint32_t local = comm.comm;
      comm.comm = job_id[local] = identity_.identify(process, comm);
      add_comm(std::move(comm));
    }
    const auto apply = [&](auto& rows) {
      for (auto& row : rows)
        if (const auto found = job_id.find(row.comm); found != job_id.end()) row.comm = found->second;
    };
    apply(v.colls);
    apply(v.p2ps);
    apply(v.ring_plans);
  }

  // Each source may know other members.
  void add_comm(CommRow comm) {
    const auto [it, fresh] = comm_row_.try_emplace(comm.comm, out_.comms.size());
    if (fresh) {
      out_.comms.push_back(std::move(comm));
      return;
    }
    CommRow& known = out_.comms[it->second];
    for (size_t at = 0; at < known.ranks.size() && at < comm.ranks.size(); ++at)
      if (known.ranks[at] < 0) known.ranks[at] = comm.ranks[at];
    if (known.axis == Axis::kUnknown) known.axis = comm.axis;
    if (known.name.empty()) known.name = comm.name;
  }

  void renumber_streams(TraceView& v, bool first) {
    std::unordered_map<uint32_t, uint32_t> job_id;
    const auto id = [&](uint32_t local) {
      if (first) {
        next_stream_ = std::max(next_stream_, local + 1);
        return local;
      }
      const auto [it, fresh] = job_id.try_emplace(local, next_stream_);
      if (fresh) ++next_stream_;
      return it->second;
    };
    for (StreamRow& row : v.streams) row.stream = id(row.stream);
    for (OpRow& row : v.ops) row.stream = id(row.stream);
    for (SyncRow& row : v.syncs) row.stream = id(row.stream);
    for (BufferRow& row : v.buffers)
      if (row.free_stream != kAnyStream) row.free_stream = id(row.free_stream);
    out_.streams.insert(out_.streams.end(), v.streams.begin(), v.streams.end());
  }

  void renumber_events(TraceView& v, bool first) {
    const Renumber buffer(next_buffer_, first), event(next_event_, first), key(next_key_, first);
    for (BufferRow& row : v.buffers) row.buffer = buffer(row.buffer);
    for (AccessRow& row : v.accesses) row.buffer = buffer(row.buffer);
    for (SyncRow& row : v.syncs) {
      row.event = event(row.event);
      row.key = key(row.key);
    }
    next_buffer_ = std::max({next_buffer_, most(v.buffers, &BufferRow::buffer), most(v.accesses, &AccessRow::buffer)});
    next_event_ = std::max(next_event_, most(v.syncs, &SyncRow::event));
    next_key_ = std::max(next_key_, most(v.syncs, &SyncRow::key));
  }

  // Operations are numbered by their rows; only the first of a group is ever named by another row.
  void renumber_ops(TraceView& v, bool first) {
    if (first) {
      next_op_ = std::max({most(v.ops, &OpRow::op), most(v.colls, &CollRow::op_id), most(v.p2ps, &P2pRow::op_id),
                           most(v.accesses, &AccessRow::op_id)});
      return;
    }
    std::unordered_map<uint64_t, uint64_t> leaders;
    for (const OpRow& op : v.ops)
      if (op.group) leaders.emplace(op.group, 0);
    for (OpRow& op : v.ops) {
      const uint64_t local = op.op;
      op.op = ++next_op_;
      if (const auto leader = leaders.find(local); leader != leaders.end()) leader->second = op.op;
    }
    for (OpRow& op : v.ops)
      if (op.group) op.group = leaders[op.group];
    for (CollRow& row : v.colls) row.op_id = row.op == kNoRow ? 0 : v.ops[row.op].op;
    for (P2pRow& row : v.p2ps) row.op_id = row.op == kNoRow ? 0 : v.ops[row.op].op;
    for (AccessRow& row : v.accesses) row.op_id = row.op == kNoRow ? 0 : v.ops[row.op].op;
  }

  void take_tables() {
    take(TableId::kRankExit, &TraceView::rank_exits);
    take(TableId::kOp, &TraceView::ops);
    take(TableId::kColl, &TraceView::colls);
    take(TableId::kP2p, &TraceView::p2ps);
    take(TableId::kAccess, &TraceView::accesses);
    take(TableId::kSync, &TraceView::syncs);
    take(TableId::kBuffer, &TraceView::buffers);
    take(TableId::kRingPlan, &TraceView::ring_plans);
    take(TableId::kPositionRun, &TraceView::position_runs);
    take(TableId::kSoftmaxRow, &TraceView::softmax_rows);
    take(TableId::kSoftmaxStat, &TraceView::softmax_stats);
    take(TableId::kTensorStat, &TraceView::tensor_stats);
    take(TableId::kAttentionRow, &TraceView::attention_rows);
    take(TableId::kLabelRun, &TraceView::label_runs);
    take(TableId::kStepValue, &TraceView::step_values);
    take(TableId::kUpdateSample, &TraceView::update_samples);
    take(TableId::kMemorySample, &TraceView::memory_samples);
    take(TableId::kTrainStep, &TraceView::train_steps);
  }

  // Sources of one job mostly hold other ranks: whole ranks are moved, rows are merged only where two hold the same one.
  template <class Row>
  void take(TableId id, std::vector<Row> TraceView::*table) {
    struct Segment {
      int32_t rank;
      size_t view, begin, end;
    };
    std::vector<Segment> segments;
    size_t rows = 0;
    for (size_t i = 0; i < views_.size(); ++i) {
      const std::vector<Row>& from = views_[i].*table;
      rows += from.size();
      for (size_t row = 0; row < from.size(); ++row)
        if (row == 0 || from[row].rank != from[row - 1].rank) segments.push_back({from[row].rank, i, row, row + 1});
        else segments.back().end = row + 1;
    }
    std::stable_sort(segments.begin(), segments.end(),
                     [](const Segment& x, const Segment& y) { return x.rank < y.rank; });
    (out_.*table).reserve(rows);
    for (size_t first = 0; first < segments.size();) {
      size_t last = first + 1;
      while (last < segments.size() && segments[last].rank == segments[first].rank) ++last;
      std::vector<std::pair<size_t, size_t>> order;  // (view, row)
      for (size_t s = first; s < last; ++s)
        for (size_t row = segments[s].begin; row < segments[s].end; ++row) order.emplace_back(segments[s].view, row);
      if constexpr (requires(Row row) { row.issue; }) {
        const auto issue = [&](const auto& at) { return (views_[at.first].*table)[at.second].issue; };
        if (last - first > 1)
          std::stable_sort(order.begin(), order.end(),
                           [&](const auto& x, const auto& y) { return issue(x) < issue(y); });
      }
      for (const auto& [from, row] : order) {
        note_origin(id, (out_.*table).size(), from, row);
        (out_.*table).push_back(std::move((views_[from].*table)[row]));
      }
      first = last;
    }
    for (TraceView& v : views_) std::vector<Row>().swap(v.*table);
  }

  // Row `at` of the result was row `row` of view `from`.
  void note_origin(TableId id, size_t at, size_t from, size_t row) {
    const RowRun was = run_of(views_[from].origins[size_t(id)], row);
    const RowRun here{uint32_t(at), first_source_[from] + was.source, was.first_id + int64_t(row - was.first)};
    auto& runs = out_.origins[size_t(id)];
    const RowRun last = run_of(runs, at);
    if (last.source != here.source || last.first_id + int64_t(at - last.first) != here.first_id) runs.push_back(here);
  }

  std::vector<TraceView> views_;
  TraceView out_;
  std::vector<int32_t> first_source_;  // of each view, in out_.sources
  std::unordered_map<std::string, uint32_t> texts_;
  CommIdentity identity_;
  std::unordered_map<uint32_t, size_t> comm_row_;
  uint32_t next_stream_ = 0;
  uint64_t next_buffer_ = 0, next_event_ = 0, next_key_ = 0, next_op_ = 0;
};

}  // namespace

TraceView merge_views(std::vector<TraceView> views) {
  if (views.size() == 1) return std::move(views[0]);
  return Merger(std::move(views)).run();
}

}  // namespace ringscope
