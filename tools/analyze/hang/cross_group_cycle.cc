// hang.cross_group_cycle: ranks that block each other in a circle although every group's calls agree: they run
// the operations of two groups in different orders.
//
// The wait-for graph has one node per (rank, stream): the first operation there that did not complete. It waits
// for the members whose own call of the same number did not start (their stream stands at something else), and,
// while it has not started itself, for the streams that its event waits name. A cycle is a strongly connected
// component (Tarjan) that spans two ranks and two groups.
#include <algorithm>
#include <functional>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

struct Node {
  int rank = 0;
  uint32_t op = kNoRow;                    // row in ops
  std::vector<std::pair<int, int>> edges;  // (node, -1 or the comm index it waits in)
  int component = -1;
};

class WaitGraph {
 public:
  explicit WaitGraph(const TraceIndex& index) : index_(index) {
    find_frontier();
    for (Node& node : nodes_) add_edges(node);
    find_components();
  }
  const std::vector<Node>& nodes() const { return nodes_; }

 private:
  void find_frontier() {
    for (uint32_t row = 0; row < index_.view.ops.size(); ++row) {
      const OpRow& op = index_.view.ops[row];
      if (op.state == OpState::kCompleted) continue;
      const auto [it, fresh] = at_.try_emplace({op.rank, op.stream}, int(nodes_.size()));
      if (fresh) nodes_.push_back({op.rank, row, {}, -1});
    }
  }

  int node_of(int rank, uint32_t stream) const {
    const auto found = at_.find({rank, stream});
    return found == at_.end() ? -1 : found->second;
  }

  void add_edges(Node& node) {
    const OpRow& op = index_.view.ops[node.op];
    if (op.state == OpState::kScheduled) {
      add_event_edges(node, op);
    } else if (op.coll != kNoRow) {
      const CollRow& coll = index_.view.colls[op.coll];
      const CommCalls* calls = index_.calls(coll.comm);
      if (!calls) return;
      for (const MemberCalls& member : calls->members) {
        if (member.rank == op.rank || member.at(coll.seq) == kNoRow) continue;
        const OpRow& other = index_.view.ops[index_.view.colls[member.at(coll.seq)].op];
        if (other.state != OpState::kScheduled) continue;
        const int to = node_of(other.rank, other.stream);
        if (to >= 0) node.edges.emplace_back(to, int(calls - index_.comms.data()));
      }
    }
  }

  // The records that the waits in front of this operation bound.
  void add_event_edges(Node& node, const OpRow& op) {
    const auto& syncs = index_.view.syncs;
    if (records_.empty())
      for (size_t i = 0; i < syncs.size(); ++i)
        if (syncs[i].kind == SyncKind::kRecord) records_[{syncs[i].rank, syncs[i].key}] = i;
    auto wait = std::lower_bound(syncs.begin(), syncs.end(), op.rank,
                                 [](const SyncRow& row, int rank) { return row.rank < rank; });
    for (; wait != syncs.end() && wait->rank == op.rank && wait->issue < op.issue; ++wait) {
      if (wait->kind != SyncKind::kWait || wait->stream != op.stream || wait->key == 0) continue;
      const auto found = records_.find({op.rank, wait->key});
      if (found == records_.end()) continue;
      const SyncRow& record = syncs[found->second];
      const int to = node_of(op.rank, record.stream);
      if (to >= 0 && record.stream != op.stream && index_.view.ops[nodes_[to].op].issue < record.issue)
        node.edges.emplace_back(to, -1);
    }
  }

  void find_components() {
    std::vector<int> order(nodes_.size(), -1), low(nodes_.size(), 0), stack;
    std::vector<char> open(nodes_.size(), 0);
    int clock = 0, components = 0;
    const std::function<void(int)> visit = [&](int v) {
      order[v] = low[v] = clock++;
      stack.push_back(v);
      open[v] = 1;
      for (const auto& [to, comm] : nodes_[v].edges) {
        if (order[to] < 0) visit(to);
        if (open[to]) low[v] = std::min(low[v], order[to] < order[v] ? order[to] : low[to]);
      }
      if (low[v] != order[v]) return;
      for (int w = -1; w != v;) {
        w = stack.back();
        stack.pop_back();
        open[w] = 0;
        nodes_[w].component = components;
      }
      ++components;
    };
    for (size_t v = 0; v < nodes_.size(); ++v)
      if (order[v] < 0) visit(int(v));
  }

  const TraceIndex& index_;
  std::vector<Node> nodes_;
  std::map<std::pair<int, uint32_t>, int> at_;
  std::map<std::pair<int, uint64_t>, size_t> records_;  // (rank, key), built when first needed
};

// Place of an axis in the declared order of end-of-step communication.
int axis_place(Axis axis) {
  switch (axis) {
    case Axis::kTp: return 0;
    case Axis::kCp: return 1;
    case Axis::kDp: return 2;
    case Axis::kPp: return 3;
    default: return 4;
  }
}

class CycleText {
 public:
  CycleText(const TraceIndex& index, const WaitGraph& graph, int component)
      : index_(index), graph_(graph), component_(component) {}

  std::optional<Finding> finding() {
    collect();
    if (ranks_.size() < 2 || comms_.size() < 2) return std::nullopt;
    Finding f = make_finding("hang.cross_group_cycle");
    for (int node : accused_) f.ranks.push_back(graph_.nodes()[node].rank);
    sort_unique(f.ranks);
    const int shown = accused_.empty() ? inside_[0] : accused_[0];
    const OpRow& op = index_.view.ops[graph_.nodes()[shown].op];
    describe(f, op);
    f.sentence = "deadlock cycle: " + walk(shown);
    if (!f.ranks.empty())
      f.sentence += ". " + ranks_text(f.ranks) + (f.ranks.size() == 1 ? " departs" : " depart") +
                    " from the order TP, CP, DP: " + (f.ranks.size() == 1 ? "it is" : "they are") +
                    " in an operation of a later axis while an earlier one waits for " +
                    (f.ranks.size() == 1 ? "it" : "them");
    f.confidence = f.ranks.empty() ? 0.8 : 0.97;
    for (int node : inside_) {
      const OpRow& row = index_.view.ops[graph_.nodes()[node].op];
      f.evidence.push_back(cite(index_.view, "op", size_t(graph_.nodes()[node].op),
                                "rank " + std::to_string(row.rank) + " is blocked in " + call(row)));
    }
    return f;
  }

  std::vector<int> members() const { return {ranks_.begin(), ranks_.end()}; }  // after finding()

 private:
  void collect() {
    const auto& nodes = graph_.nodes();
    for (size_t i = 0; i < nodes.size(); ++i)
      if (nodes[i].component == component_) inside_.push_back(int(i));
    for (int i : inside_) {
      ranks_.insert(nodes[i].rank);
      for (const auto& [to, comm] : nodes[i].edges)
        if (comm >= 0 && nodes[to].component == component_) comms_.insert(comm);
    }
    for (int i : inside_)
      if (departs(i)) accused_.push_back(i);
    std::sort(accused_.begin(), accused_.end(), [&](int a, int b) { return nodes[a].rank < nodes[b].rank; });
  }

  // Its blocking operation belongs to a later axis than an operation that waits for it.
  bool departs(int node) const {
    const auto& nodes = graph_.nodes();
    const CommRow* own = comm_of(nodes[node].op);
    if (!own) return false;
    for (int other : inside_)
      for (const auto& [to, comm] : nodes[other].edges)
        if (to == node && comm >= 0 && axis_place(own->axis) > axis_place(index_.comms[comm].comm->axis)) return true;
    return false;
  }

  const CommRow* comm_of(uint32_t op_row) const {
    const OpRow& op = index_.view.ops[op_row];
    return op.coll == kNoRow ? nullptr : index_.comm(index_.view.colls[op.coll].comm);
  }

  std::string call(const OpRow& op) const {
    std::string text = op_name(index_, uint32_t(&op - index_.view.ops.data()));
    if (op.coll != kNoRow) {
      const CollRow& coll = index_.view.colls[op.coll];
      text += " #" + std::to_string(coll.seq);
      if (const CommRow* comm = index_.comm(coll.comm)) text += " of " + group_text(group_ref(*comm));
    }
    return text;
  }

  void describe(Finding& f, const OpRow& op) const {
    f.where = op.where;
    f.first_ns = op.start_ns ? op.start_ns : op.enqueue_ns;
    f.op = op_name(index_, uint32_t(&op - index_.view.ops.data()));
    if (op.coll == kNoRow) return;
    f.seq = int64_t(index_.view.colls[op.coll].seq);
    if (const CommRow* comm = index_.comm(index_.view.colls[op.coll].comm)) f.group = group_ref(*comm);
  }

  // The shortest way from the node back to itself, in words.
  std::string walk(int start) const {
    const auto& nodes = graph_.nodes();
    std::vector<int> from(nodes.size(), -1), queue{start};
    int last = -1;
    for (size_t head = 0; head < queue.size() && last < 0; ++head)
      for (const auto& [to, comm] : nodes[queue[head]].edges) {
        if (nodes[to].component != component_) continue;
        if (to == start) {
          last = queue[head];
          break;
        }
        if (from[to] >= 0) continue;
        from[to] = queue[head];
        queue.push_back(to);
      }
    std::vector<int> way;
    for (int v = last; v >= 0 && v != start; v = from[v]) way.push_back(v);
    way.push_back(start);
    std::reverse(way.begin(), way.end());
    std::string text;
    for (size_t i = 0; i < way.size(); ++i) {
      const OpRow& op = index_.view.ops[nodes[way[i]].op];
      const int next = nodes[way[(i + 1) % way.size()]].rank;
      text += (i ? "; " : "") + std::string("rank ") + std::to_string(op.rank) + " waits in " + call(op) + " for " +
              (next == op.rank ? "another of its streams" : "rank " + std::to_string(next));
    }
    return text;
  }

  const TraceIndex& index_;
  const WaitGraph& graph_;
  int component_;
  std::vector<int> inside_, accused_;
  std::set<int> ranks_, comms_;
};

struct Cycle {
  Finding finding;
  std::vector<int> members;
};

bool same_mistake(const Finding& a, const Finding& b) {
  return a.where == b.where && a.op == b.op && a.group && b.group && a.group->name == b.group->name;
}

// Replicas of one program close the same circle each (one per data-parallel coordinate): that is one mistake, told
// by the cycle that can accuse somebody.
void add(std::vector<Cycle>& found, Cycle cycle) {
  for (Cycle& known : found) {
    if (!same_mistake(known.finding, cycle.finding)) continue;
    const auto rank_of = [](const Cycle& c) { return std::pair(c.finding.ranks.empty(), c.members); };
    if (rank_of(cycle) < rank_of(known)) std::swap(known, cycle);
    Finding &kept = known.finding, &other = cycle.finding;
    kept.sentence += "; the same cycle stands around " + ranks_text(cycle.members);
    kept.ranks.insert(kept.ranks.end(), other.ranks.begin(), other.ranks.end());
    sort_unique(kept.ranks);
    kept.first_ns = std::min(kept.first_ns, other.first_ns);
    kept.evidence.insert(kept.evidence.end(), other.evidence.begin(), other.evidence.end());
    return;
  }
  found.push_back(std::move(cycle));
}

}  // namespace

std::vector<Finding> cross_group_cycles(const TraceIndex& index) {
  if (!index.stalled) return {};
  const WaitGraph graph(index);
  std::set<int> components;
  for (const Node& node : graph.nodes()) components.insert(node.component);
  std::vector<Cycle> cycles;
  for (int component : components) {
    CycleText text(index, graph, component);
    if (auto finding = text.finding()) add(cycles, {std::move(*finding), text.members()});
  }
  std::vector<Finding> found;
  for (Cycle& cycle : cycles) found.push_back(std::move(cycle.finding));
  return found;
}

}  // namespace ringscope
