#include "tests/sweep/sweep.h"

#include <algorithm>
#include <set>
#include <sstream>

#include "tracedb/base/rank_range.h"

namespace ringscope::testing {
namespace {

JobConfig small_job() {
  JobConfig c;
  c.model.num_layers = 2;
  c.model.hidden_size = 32;
  c.model.num_attention_heads = 4;
  c.model.num_query_groups = 2;
  c.model.ffn_hidden_size = 48;
  c.seq_length = 64;
  c.micro_batch_size = 1;
  c.global_batch_size = 2;
  c.train_iters = 4;
  c.hang_timeout_s = 5;
  return c;
}

// A bug of one rank; the others sit in the code of every rank.
bool accuses_one(FaultId id) {
  return id == FaultId::kRingEarlyExit || id == FaultId::kCrossGroupOrderOne || id == FaultId::kOpMismatch ||
         id == FaultId::kSkipAllReduce || id == FaultId::kRankExit || id == FaultId::kRingBufferReuse ||
         id == FaultId::kRingUseBeforeArrival;
}

std::string fault_text(const FaultRow& row, int rank, int layer, int step) {
  std::string text(row.name);
  char separator = ':';
  const auto add = [&](const char* key, int value) {
    if (row.keys.find(key) == std::string_view::npos) return;
    text += separator + std::string(key) + "=" + std::to_string(value);
    separator = ',';
  };
  if (accuses_one(row.id)) add("rank", rank);
  add("layer", layer);
  add("step", step);
  return text;
}

std::vector<int> all_ranks(const JobConfig& c) {
  std::vector<int> ranks;
  for (int r = 0; r < c.world(); ++r) ranks.push_back(r);
  return ranks;
}

std::vector<int> ranks_where(const JobConfig& c, bool (*wanted)(const Coord&)) {
  const Mesh mesh = *Mesh::make(c.tp, c.cp, c.dp, c.pp, c.order);
  std::vector<int> ranks;
  for (int r = 0; r < c.world(); ++r)
    if (wanted(mesh.coord(r))) ranks.push_back(r);
  return ranks;
}

void shape(JobConfig& c, FaultId id, int v) {
  switch (id) {
    case FaultId::kRingEarlyExit:
    case FaultId::kRingBufferReuse:
    case FaultId::kRingUseBeforeArrival:
      c.cp = 4;
      if (v % 4 == 3) c.dp = 2;
      if (v % 4 == 2) c.tp = 2, c.sequence_parallel = true;
      break;
    case FaultId::kCrossGroupOrder:
    case FaultId::kCrossGroupOrderOne:
      c.tp = c.cp = 2;
      c.sequence_parallel = true;
      if (v % 4 >= 2) c.dp = 2;  // every replica closes the same circle: still one root
      break;
    case FaultId::kOpMismatch:
    case FaultId::kSkipAllReduce:
    case FaultId::kRankExit:
      if (v % 3 == 0) c.cp = 4;
      if (v % 3 == 1) c.tp = 2, c.cp = 2, c.dp = 2, c.sequence_parallel = true;
      if (v % 3 == 2) c.dp = 4, c.global_batch_size = 4;
      break;
    case FaultId::kNoGlobalMax:
    case FaultId::kNoGlobalSum:
    case FaultId::kSumForMax:
      c.cp = v % 2 ? 4 : 2;
      c.cp_comm = CpComm::kGlobalSoftmax;
      if (v % 4 == 2) c.tp = 2;
      break;
    case FaultId::kLastPartWins:
      c.cp = v % 2 ? 4 : 2;
      if (v % 4 == 2) c.dp = 2;
      break;
    case FaultId::kPositionRestart:
      c.cp = v % 2 ? 4 : 2;
      if (v % 4 >= 2) c.cp_layout = CpLayout::kContiguous;
      if (v % 3 == 2) c.model.arch = Arch::kGpt;
      break;
    case FaultId::kZigzagOnContiguous:
      c.cp = v % 2 ? 4 : 2;
      c.cp_layout = CpLayout::kContiguous;
      if (v % 3 == 2) c.model.arch = Arch::kGpt;
      break;
    default:  // per-rank mean: unequal counts
      c.cp = v % 2 ? 4 : 2;
      c.cp_layout = CpLayout::kContiguous;
      c.seq_length = 61 - 2 * v;  // odd: never divides
      if (v % 4 == 2) c.cp = 1, c.dp = 2, c.labels_kept = {20, 60, 7};
  }
  if (c.model.arch == Arch::kGpt) {
    c.model.num_query_groups = c.model.num_attention_heads;
    c.model.linear_bias = c.model.tie_embeddings = true;
  }
}

std::vector<int> accused(const JobConfig& c, FaultId id, int rank) {
  switch (id) {
    case FaultId::kCrossGroupOrderOne: return {};
    case FaultId::kCrossGroupOrder: return ranks_where(c, [](const Coord& at) { return at.tp == at.cp; });
    case FaultId::kNoGlobalMax:
    case FaultId::kNoGlobalSum:
    case FaultId::kSumForMax:
    case FaultId::kLastPartWins:
    case FaultId::kPerRankMean:
    case FaultId::kZigzagOnContiguous: return all_ranks(c);
    case FaultId::kPositionRestart:
      return c.cp_layout == CpLayout::kZigzag ? all_ranks(c)
                                              : ranks_where(c, [](const Coord& at) { return at.cp > 0; });
    default: return {rank};
  }
}

// The axis along which the fault acts.
std::string group_of(const JobConfig& c, FaultId id) {
  switch (id) {
    case FaultId::kOpMismatch:
    case FaultId::kSkipAllReduce: return c.cp > 1 ? "cp" : "dp";
    case FaultId::kRankExit: return "*";  // whichever of its groups was the first to wait
    case FaultId::kCrossGroupOrderOne: return "";
    case FaultId::kPerRankMean: return "";  // CP x DP together: no communicator of its own
    default: return "cp";
  }
}

// The first ring step at which it shows, of a fault that sits in a hop.
int hop_of(const JobConfig& c, FaultId id) {
  switch (id) {
    case FaultId::kRingEarlyExit: return c.cp - 2;  // the last hop of the forward pass is left out
    case FaultId::kRingBufferReuse: return 2;       // the first to come over a buffer of the same pass
    case FaultId::kRingUseBeforeArrival: return 0;
    default: return -1;
  }
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> out;
  std::istringstream stream{std::string(text)};
  for (std::string word; std::getline(stream, word, ',');) out.push_back(word);
  return out;
}

}  // namespace

std::vector<Case> fault_cases(int variants) {
  std::vector<Case> cases;
  for (const FaultRow& row : fault_rows())
    for (int v = 0; v < variants; ++v) {
      Case c;
      c.name = std::string(row.name) + " #" + std::to_string(v);
      c.config = small_job();
      shape(c.config, row.id, v);
      c.config.seed = 100 + uint64_t(v);
      c.config.comm.p2p_slots = v % 2 ? 0 : 8;
      const int rank = (1 + v) % c.config.world(), layer = v / 2 % 2, step = 1 + v % 2;
      // A race in shared memory is real: under turns its two sides never run at the same instant.
      const bool race = row.finding.starts_with("race.");
      c.config.turns = race || v % 4 == 1;
      c.config.turns_seed = uint64_t(v) + 7;
      c.config.fault = *parse_fault(fault_text(row, rank, layer, step));
      c.finding = std::string(row.finding);
      c.implied = split(row.implied);
      c.ranks = accused(c.config, row.id, rank);
      if (row.keys.find("layer") != std::string_view::npos) c.layer = layer;
      // A dead rank's place is its last operation, which lies in front of the layer that it did not begin.
      if (row.id == FaultId::kRankExit) c.layer = layer - 1;
      c.step = row.finding.empty() ? -1 : step;
      c.group = group_of(c.config, row.id);
      c.hop = hop_of(c.config, row.id);
      cases.push_back(std::move(c));
    }
  return cases;
}

JobConfig clean_config(int i) {
  JobConfig c = small_job();
  c.seed = 1000 + uint64_t(i);
  static constexpr int kShapes[][3] = {{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 4, 1}, {1, 1, 2},
                                       {2, 2, 1}, {1, 3, 1}, {1, 2, 2}, {2, 2, 2}, {1, 1, 4}};
  const auto& s = kShapes[i % 10];
  c.tp = s[0], c.cp = s[1], c.dp = s[2];
  if (c.dp == 4) c.global_batch_size = 4;
  c.sequence_parallel = c.tp > 1 && i % 3 != 0;
  c.cp_comm = i / 10 % 4 == 1 ? CpComm::kAllGather : i / 10 % 4 == 2 ? CpComm::kGlobalSoftmax : CpComm::kP2p;
  c.cp_layout = i / 3 % 2 ? CpLayout::kContiguous : CpLayout::kZigzag;
  c.overlap = i % 7 != 3;
  c.comm.p2p_slots = i % 4 == 1 ? 0 : i % 4 == 2 ? 1 : 8;
  c.seq_length = i % 5 == 4 ? 61 : 64;  // padding
  if (i % 6 == 5) c.micro_batch_size = c.global_batch_size = 2 * c.dp, c.global_batch_size *= 1;
  if (c.global_batch_size % (c.micro_batch_size * c.dp)) c.micro_batch_size = 1;
  c.turns = i % 3 == 1;
  c.turns_seed = uint64_t(i) * 31 + 5;
  if (i % 8 == 6) c.comm.link = {5, 1.0, 10, uint64_t(i)};
  if (i % 9 == 7) {
    c.model.arch = Arch::kGpt;
    c.model.num_query_groups = c.model.num_attention_heads;
    c.model.linear_bias = c.model.tie_embeddings = true;
    c.model.hidden_dropout = c.model.attention_dropout = 0.1;
  }
  if (i % 11 == 8) c.labels_kept = {64, 20, 3};
  return c;
}

std::string describe(const JobConfig& c) {
  std::ostringstream out;
  out << "tp" << c.tp << " cp" << c.cp << " dp" << c.dp << (c.sequence_parallel ? " sp" : "") << " k"
      << c.comm.p2p_slots << (c.turns ? " turns" + std::to_string(c.turns_seed) : " free") << " " << name(c.cp_layout)
      << " seq" << c.seq_length;
  return out.str();
}

namespace {
std::string list(const Report& report) {
  std::string text;
  for (const Finding& f : report.findings)
    text += (text.empty() ? "" : " ") + f.id + (f.root ? "" : "(follows)") + "[" + format_rank_range(f.ranks) + "]";
  return text.empty() ? "nothing" : text;
}

// The group is of the expected axis, and what it accuses is in it (copies of one mistake accuse members of others too).
std::string judge_group(const Case& c, const Finding& f) {
  if (c.group.empty()) return "";
  if (!f.group) return "no group, expected " + c.group;
  if (c.group != "*" && f.group->name.substr(0, c.group.size()) != c.group)
    return "group " + f.group->name + ", expected " + c.group;
  const auto& members = f.group->ranks;
  const bool inside = std::any_of(f.ranks.begin(), f.ranks.end(), [&](int rank) {
    return std::find(members.begin(), members.end(), rank) != members.end();
  });
  return f.ranks.empty() || inside ? "" : "nobody whom it accuses is a member of its group";
}
}  // namespace

std::string judge(const Case& c, const RecordedRun& run) {
  if (!run.error.empty()) return run.error;
  std::vector<const Finding*> roots;
  for (const Finding& f : run.report.findings)
    if (f.root) roots.push_back(&f);
  if (c.finding.empty()) return run.report.findings.empty() ? "" : "expected nothing, got " + list(run.report);
  if (roots.size() != 1 || roots[0]->id != c.finding)
    return "expected " + c.finding + " alone, got " + list(run.report);
  if (run.result.end == RunEnd::kStalled && run.stall_seconds > c.config.hang_timeout_s + 2)
    return "the stall was reported after " + std::to_string(run.stall_seconds) + " s";
  const Finding& f = *roots[0];
  std::vector<int> ranks = f.ranks;
  std::sort(ranks.begin(), ranks.end());
  if (ranks != c.ranks) return "accused " + format_rank_range(ranks) + ", expected " + format_rank_range(c.ranks);
  if (c.step >= 0 && f.where.step != c.step)
    return "step " + std::to_string(f.where.step) + ", expected " + std::to_string(c.step);
  if (c.layer >= 0 && f.where.layer != c.layer)
    return "layer " + std::to_string(f.where.layer) + ", expected " + std::to_string(c.layer);
  if (c.hop >= 0 && f.where.ring_step != c.hop)
    return "hop " + std::to_string(f.where.ring_step) + ", expected " + std::to_string(c.hop);
  if (const std::string wrong = judge_group(c, f); !wrong.empty()) return wrong;
  for (const std::string& id : c.implied)
    if (std::none_of(run.report.findings.begin(), run.report.findings.end(),
                     [&](const Finding& other) { return !other.root && other.id == id; }))
      return "no " + id + " beside it";
  return "";
}

std::string judge_clean(const RecordedRun& run) {
  if (!run.error.empty()) return run.error;
  if (run.result.end != RunEnd::kCompleted) return "did not complete; " + list(run.report);
  for (const LostRow& lost : run.view.lost)
    if (lost.records || lost.torn) return "lost " + std::to_string(lost.records) + " records of " + lost.ring;
  return run.report.findings.empty() ? "" : list(run.report);
}

}  // namespace ringscope::testing
