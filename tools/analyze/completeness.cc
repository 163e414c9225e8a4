#include "tools/analyze/completeness.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "tools/analyze/index.h"

namespace ringscope {
namespace {

using Sentences = std::vector<std::string>;

constexpr size_t kNamed = 3;  // of many: enough to see a pattern, few enough for one line

bool is_loss(const LostRow& row) { return row.records > 0 || row.torn > 0; }
// A row of `lost` that stands for a file: its name is a path, not a thread's.
bool is_file(const LostRow& row) { return row.ring.find('/') != std::string::npos; }

std::string counted(uint64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string meta(const TraceView& view, const char* key) {
  const auto found = view.meta.find(key);
  return found == view.meta.end() ? "" : found->second;
}

// Our recorder wrote it: without the launcher's ring only its files say so.
bool recorded_by_us(const TraceView& view) {
  return view.meta.contains(meta_key::kToolVersion) || view.meta.contains(meta_key::kOutcome) ||
         std::any_of(view.sources.begin(), view.sources.end(),
                     [](const SourceRow& source) { return source.format.starts_with("ringscope."); });
}

std::set<int> ranks_with_operations(const TraceView& view) {
  std::set<int> ranks;
  int last = -1;  // ops come sorted by rank
  for (const OpRow& op : view.ops)
    if (op.rank != last) ranks.insert(last = op.rank);
  return ranks;
}

// Ranks of the job that the trace holds nothing of, and ranks that only said that they exist.
void add_absent_ranks(const TraceView& view, Sentences& missing) {
  const std::set<int> active = ranks_with_operations(view);
  std::set<int> known, job;
  for (const RankRow& row : view.ranks) known.insert(row.rank);
  const int world = std::atoi(meta(view, meta_key::kWorldSize).c_str());
  for (int rank = 0; rank < world; ++rank) job.insert(rank);
  for (const CommRow& comm : view.comms) job.insert(comm.ranks.begin(), comm.ranks.end());
  job.insert(known.begin(), known.end());
  std::vector<int> absent, idle;
  for (const int rank : job)
    if (!active.contains(rank)) (known.contains(rank) ? idle : absent).push_back(rank);
  if (!absent.empty()) missing.push_back("the trace of " + ranks_text(absent));
  if (view.ops.empty()) missing.push_back("any operation: nothing was recorded that a rank did");
  else if (!idle.empty()) missing.push_back("the operations of " + ranks_text(idle) + ": none was recorded");
}

// A run of ours that did not come to its end by itself, or of which nobody wrote how it ended.
void add_end(const TraceView& view, Sentences& missing) {
  const std::string outcome = meta(view, meta_key::kOutcome);
  if (outcome.empty() || outcome == "interrupted") {
    int last = -1;
    for (const TrainStepRow& row : view.train_steps) last = std::max(last, int(row.where.step));
    const bool launched = view.meta.contains(meta_key::kToolVersion);
    missing.push_back(std::string("the end of the run: it was ") +
                      (outcome.empty() ? launched ? "killed or still runs" : "killed, still runs, or its ring is gone"
                                       : "interrupted") +
                      (last >= 0 ? " after step " + std::to_string(last) : " before its first step ended"));
    return;
  }
  std::set<int> ended;
  for (const RankExitRow& row : view.rank_exits) ended.insert(row.rank);
  std::vector<int> open;
  for (const RankRow& row : view.ranks)
    if (!ended.contains(row.rank)) open.push_back(row.rank);
  if (!open.empty()) missing.push_back("how " + ranks_text(open) + " ended");
}

uint64_t lane_of(const OpRow& op) { return uint64_t(uint32_t(op.rank)) << 32 | op.stream; }
uint64_t place_of(const CollRow& coll) { return uint64_t(coll.comm) << 40 ^ coll.seq; }

// Of these nobody's call can end before everybody's has begun.
bool ends_together(CollFunc func) {
  return func == CollFunc::kAllReduce || func == CollFunc::kAllGather || func == CollFunc::kReduceScatter ||
         func == CollFunc::kAllToAll || func == CollFunc::kBarrier;
}

// Collectives that ended somewhere.
std::unordered_set<uint64_t> ended_places(const TraceView& view) {
  std::unordered_set<uint64_t> ended;
  for (const OpRow& op : view.ops)
    if (op.coll != kNoRow && op.state == OpState::kCompleted && ends_together(view.colls[op.coll].func))
      ended.insert(place_of(view.colls[op.coll]));
  return ended;
}

// Operations that must have run, because the run came to its end or their group did, and whose start nobody wrote:
// the ring of a stream's worker is gone.
void add_unseen_work(const TraceView& view, Sentences& missing) {
  std::unordered_map<int, int64_t> status;
  for (const RankExitRow& row : view.rank_exits) status[row.rank] = row.status;
  const bool completed = meta(view, meta_key::kOutcome) == "completed";
  // In a run that stalled a host may have come to its end before what it had enqueued.
  const auto came_to_its_end = [&](int rank) {
    const auto found = status.find(rank);
    return completed && (found == status.end() || found->second == 0);
  };
  std::vector<const OpRow*> pending;
  std::unordered_set<uint64_t> seen;  // streams whose worker wrote anything
  for (const OpRow& op : view.ops) {
    if (op.state != OpState::kScheduled && op.kind != OpKind::kHostRead) seen.insert(lane_of(op));  // the host's own
    if (op.state != OpState::kCompleted && op.kind != OpKind::kEventRecord && op.kind != OpKind::kEventWait)
      pending.push_back(&op);
  }
  if (pending.empty()) return;
  const std::unordered_set<uint64_t> ended = ended_places(view);
  std::map<std::pair<int, uint32_t>, uint64_t> unseen;  // (rank, stream) -> operations
  for (const OpRow* op : pending) {
    // A worker that wrote something wrote everything: there the group's call ended by what another call had sent.
    const bool group_ended =
        !seen.contains(lane_of(*op)) && op->coll != kNoRow && ended.contains(place_of(view.colls[op->coll]));
    if (came_to_its_end(op->rank) || group_ended) ++unseen[{op->rank, op->stream}];
  }
  std::unordered_map<uint32_t, const std::string*> names;
  for (const StreamRow& row : view.streams) names.emplace(row.stream, &row.name);
  for (const auto& [lane, count] : unseen) {
    const auto name = names.find(lane.second);
    missing.push_back("the end of " + counted(count, "operation") + " of rank " + std::to_string(lane.first) +
                      " on stream " + (name == names.end() ? std::to_string(lane.second) : *name->second) +
                      ", which ran");
  }
}

// When the windows of a foreign snapshot begin and end, by rank.
class Windows {
 public:
  explicit Windows(const TraceView& view) {
    for (const OpRow& op : view.ops) {
      int64_t& end = end_[op.rank];
      end = std::max({end, op.enqueue_ns, op.start_ns, op.end_ns});
    }
    for (const LostRow& row : view.lost) {
      if (!is_loss(row) || row.from_ns != 0 || row.to_ns == 0) continue;
      int64_t& begin = row.rank < 0 ? begin_of_all_ : begin_[row.rank];
      begin = std::max(begin, row.to_ns);
    }
    for (const CommRow& comm : view.comms) {
      const int64_t all = common_begin(comm);
      for (const int rank : comm.ranks) {
        const auto [known, fresh] = counts_from_.try_emplace(rank, all);
        if (!fresh) known->second = std::min(known->second, all);
      }
    }
  }

  // From here on all members' rows are there.
  int64_t common_begin(const CommRow& comm) const {
    int64_t begin = 0;
    for (const int rank : comm.ranks) begin = std::max(begin, begin_of(rank));
    return begin;
  }
  int64_t begin_of(int rank) const {
    const auto found = begin_.find(rank);
    return std::max(begin_of_all_, found == begin_.end() ? 0 : found->second);
  }
  int64_t end_of(int rank) const {  // 0 = the rank has no rows with a time
    const auto found = end_.find(rank);
    return found == end_.end() ? 0 : found->second;
  }
  // A loss before every common window of its rank is behind nobody's verdict.
  bool counts(const LostRow& row) const {
    if (row.to_ns == 0) return true;
    if (row.rank < 0) return row.to_ns > begin_of_all_;
    const auto from = counts_from_.find(row.rank);
    return row.to_ns > (from == counts_from_.end() ? begin_of(row.rank) : from->second);
  }

 private:
  int64_t begin_of_all_ = 0;
  std::unordered_map<int, int64_t> begin_, end_, counts_from_;
};

void add_windows_apart(const TraceView& view, const Windows& windows, Sentences& missing) {
  for (const CommRow& comm : view.comms) {
    const int64_t begin = windows.common_begin(comm);
    std::vector<int> early;
    for (const int rank : comm.ranks)
      if (windows.end_of(rank) > 0 && windows.end_of(rank) < begin) early.push_back(rank);
    if (!early.empty())
      missing.push_back("a time that all of " + group_text(group_ref(comm)) + " recorded: the rows of " +
                        ranks_text(early) + " end before those of others begin");
  }
}

void add_losses(const std::vector<const LostRow*>& lost, Sentences& missing) {
  uint64_t records = 0, torn = 0, rings = 0;
  std::string last_ring;
  std::vector<int> ranks;
  Sentences files;
  for (const LostRow* row : lost) {
    if (is_file(*row)) {
      files.push_back(row->ring);
      continue;
    }
    records += row->records;
    torn += row->torn;
    ++rings;
    last_ring = row->ring;
    if (row->rank >= 0) ranks.push_back(row->rank);
  }
  if (rings > 0) {
    sort_unique(ranks);
    missing.push_back(counted(records, "lost record") + " and " + std::to_string(torn) + " torn in " +
                      (rings == 1 ? last_ring : counted(rings, "ring")) +
                      (ranks.empty() ? "" : " of " + ranks_text(ranks)));
  }
  if (files.empty()) return;
  std::string named;
  for (size_t i = 0; i < files.size() && i < kNamed; ++i) named += (i ? ", " : "") + files[i];
  if (files.size() > kNamed) named += " and " + std::to_string(files.size() - kNamed) + " more";
  missing.push_back("everything in " + named + ": " + (files.size() == 1 ? "it is" : "they are") +
                    " gone or cannot be read");
}

// Communications of which only the operation was recorded: who was called is not known.
void add_lost_calls(const TraceView& view, Sentences& missing) {
  std::vector<int> ranks;
  int64_t count = 0;
  for (const OpRow& op : view.ops) {
    if ((op.kind != OpKind::kCollective && op.kind != OpKind::kP2p) || op.coll != kNoRow || op.p2p != kNoRow) continue;
    ++count;
    if (ranks.empty() || ranks.back() != op.rank) ranks.push_back(op.rank);
  }
  if (count > 0)
    missing.push_back("the calls behind " + std::to_string(count) + " communications of " + ranks_text(ranks));
}

// Ranks whose streams share memory and of which no event at all was recorded: nothing tells what they order.
void add_lost_order(const TraceView& view, Sentences& missing) {
  std::set<int> synced, shared;
  for (const SyncRow& sync : view.syncs) synced.insert(sync.rank);
  std::map<int, uint32_t> stream;
  for (const AccessRow& access : view.accesses) {
    if (access.op == kNoRow || synced.contains(view.ops[access.op].rank)) continue;
    const OpRow& op = view.ops[access.op];
    if (stream.try_emplace(op.rank, op.stream).first->second != op.stream) shared.insert(op.rank);
  }
  if (!shared.empty())
    missing.push_back("the events between the streams of " + ranks_text({shared.begin(), shared.end()}) +
                      ": without them races cannot be told");
}

// What importers counted and no row of `lost` says already.
void add_import_stats(const TraceView& view, bool whole, Sentences& missing) {
  static constexpr std::string_view kSaidByLost[] = {"spool.records_lost", "spool.records_torn",
                                                     "spool.records_without_ring", "spool.unreadable_files",
                                                     "spool.absent_files"};
  for (const ImportStat& stat : view.import_stats) {
    const bool counts = stat.severity == "error" || (whole && stat.severity == "data_loss");
    const bool said = std::find(std::begin(kSaidByLost), std::end(kSaidByLost), stat.name) != std::end(kSaidByLost);
    if (counts && !said && stat.count > 0)
      missing.push_back(stat.help + " (" + std::to_string(stat.count) + " x " + stat.name + ")");
  }
}

}  // namespace

std::vector<std::string> missing_evidence(const TraceView& view) {
  Sentences missing;
  const bool whole = recorded_by_us(view);
  add_absent_ranks(view, missing);
  std::vector<const LostRow*> lost;
  if (whole) {
    add_end(view, missing);
    add_unseen_work(view, missing);
    for (const LostRow& row : view.lost)
      if (is_loss(row)) lost.push_back(&row);
  } else {
    const Windows windows(view);
    add_windows_apart(view, windows, missing);
    for (const LostRow& row : view.lost)
      if (is_loss(row) && windows.counts(row)) lost.push_back(&row);
  }
  add_losses(lost, missing);
  add_lost_calls(view, missing);
  add_lost_order(view, missing);
  add_import_stats(view, whole, missing);
  return missing;
}

bool nothing_read(const TraceView& view) {
  if (!view.ops.empty() || !view.ranks.empty() || !view.rank_exits.empty() || !view.meta.empty()) return false;
  return std::any_of(view.lost.begin(), view.lost.end(), is_loss) ||
         std::any_of(view.import_stats.begin(), view.import_stats.end(),
                     [](const ImportStat& stat) { return stat.severity == "error" && stat.count > 0; });
}

}  // namespace ringscope
