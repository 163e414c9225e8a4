// One finding a missing edge. Places that lack the same edge share the event that was meant for it, or the lanes and the
// operation that should wait; layers, steps and ranks do not tell them apart.
#include <algorithm>
#include <map>
#include <numeric>

#include "tools/analyze/confidence.h"
#include "tools/analyze/race/race.h"

namespace ringscope {
namespace {

std::string_view id_of(Hazard hazard) {
  switch (hazard) {
    case Hazard::kArrival: return "race.read_before_arrival";
    case Hazard::kNotReady: return "race.send_before_ready";
    case Hazard::kOverwrite: return "race.overwrite_before_read";
    case Hazard::kSendReused: return "race.send_buffer_reused";
    case Hazard::kWriteWrite: return "race.write_write";
    case Hazard::kFreed: return "race.freed_in_use";
    case Hazard::kUnwritten: break;
  }
  return "race.uninitialised_read";
}

// The operation whose place and call stand for the race.
uint32_t shown(const Race& race) {
  return race.hazard == Hazard::kArrival || race.hazard == Hazard::kFreed ? race.first : race.second;
}

// Who writes memory of these names first, where somebody does: by name of the buffer, the name of the operation that
// does so most often.
class FirstWriters {
 public:
  FirstWriters(const TraceIndex& index, const std::vector<Race>& races) {
    const TraceView& view = index.view;
    std::map<uint32_t, std::map<uint32_t, size_t>> counts;
    for (const Race& race : races)
      if (const BufferRow* buffer = index.buffer(race.buffer); buffer && race.hazard == Hazard::kUnwritten)
        counts[buffer->name];
    if (counts.empty()) return;
    std::set<uint64_t> seen;
    for (const AccessRow& access : view.accesses) {
      if (access.op >= view.ops.size() || access.mode == AccessMode::kRead) continue;
      const BufferRow* buffer = index.buffer(access.buffer);
      const auto count = buffer ? counts.find(buffer->name) : counts.end();
      if (count != counts.end() && seen.insert(access.buffer).second) ++count->second[view.ops[access.op].name];
    }
    for (const auto& [name, writers] : counts)
      for (const auto& [writer, times] : writers)
        if (!writer_.contains(name) || writers.at(writer_[name]) < times) writer_[name] = writer;
  }
  uint32_t of(uint32_t buffer_name) const {
    const auto found = writer_.find(buffer_name);
    return found == writer_.end() ? 0 : found->second;
  }

 private:
  std::map<uint32_t, uint32_t> writer_;
};

class RaceReport {
 public:
  RaceReport(const TraceIndex& index, const std::vector<Race>& races)
      : index_(index), view_(index.view), races_(races), writers_(index, races) {}

  std::vector<Finding> findings() {
    std::vector<Finding> found;
    for (const std::vector<size_t>& places : edges()) found.push_back(finding(places));
    return found;
  }

 private:
  // ---- which places are one

  std::vector<std::string> keys(const Race& race) const {
    const auto text = [&](uint32_t id) { return std::string(view_.text(id)); };
    if (race.hazard == Hazard::kUnwritten) {
      const BufferRow* buffer = index_.buffer(race.buffer);
      const uint32_t writer = buffer ? writers_.of(buffer->name) : 0;
      return {"writer " + text(writer)};  // of what nobody writes anywhere, nothing tells one mistake from two
    }
    if (race.hazard == Hazard::kFreed) {
      const BufferRow* buffer = index_.buffer(race.buffer);
      return {"free " + (buffer ? text(buffer->name) : "")};
    }
    if (race.shared) return {"shared " + text(view_.ops[race.second].name), "shared " + group_name(race)};
    const std::string lanes = lane_text(race.before) + " > " + lane_text(race.behind) + " ";
    std::vector<std::string> keys{lanes + "before " + text(view_.ops[race.entry].name)};
    // A helper that orders both ways around a call names both events alike: leaving it out is one mistake.
    for (uint32_t event : race.events)
      if (event) keys.push_back("event " + text(event));
    return keys;
  }
  // Calls of one group share what went wrong with one of them.
  std::string group_name(const Race& race) const { return std::string(view_.text(view_.ops[race.entry].name)); }

  std::vector<std::vector<size_t>> edges() const {
    std::vector<size_t> parent(races_.size());
    std::iota(parent.begin(), parent.end(), size_t(0));
    const auto root = [&](size_t i) {
      while (parent[i] != i) i = parent[i] = parent[parent[i]];
      return i;
    };
    std::map<std::string, size_t> first;
    for (size_t i = 0; i < races_.size(); ++i)
      for (const std::string& key : keys(races_[i])) {
        const auto [entry, fresh] = first.try_emplace(key, i);
        if (!fresh) parent[root(i)] = root(entry->second);
      }
    std::map<size_t, std::vector<size_t>> groups;
    for (size_t i = 0; i < races_.size(); ++i) groups[root(i)].push_back(i);
    std::vector<std::vector<size_t>> out;
    for (auto& [at, members] : groups) out.push_back(std::move(members));
    return out;
  }

  // ---- what is said of them

  std::string lane_text(uint32_t stream) const {
    return stream == kNoRow ? "the host" : stream == kAnyStream ? "every stream" : index_.stream_name(stream);
  }
  std::string site(uint32_t row) const {
    const OpRow& op = view_.ops[row];
    const std::string name = "'" + std::string(view_.text(op.name)) + "'";
    const std::string place = place_text(op.where);
    return (op.kind == OpKind::kHostRead ? "the host's read " + name + " behind " + index_.stream_name(op.stream)
                                         : name + " on " + index_.stream_name(op.stream)) +
           (place.empty() ? "" : " (" + place + ")");
  }
  std::string memory(const Race& race) const {
    const BufferRow* buffer = index_.buffer(race.buffer);
    return "bytes " + std::to_string(race.begin) + "-" + std::to_string(race.end - 1) + " of buffer " +
           (buffer && buffer->name ? "'" + std::string(view_.text(buffer->name)) + "'" : std::to_string(race.buffer));
  }

  std::string sentence(const Race& race) const {
    if (race.hazard == Hazard::kUnwritten) return unwritten_sentence(race);
    if (race.hazard == Hazard::kFreed)
      return memory(race) + " went back while " + site(race.first) + " may still use them";
    const char *does = " writes ", *other = " may still be writing it";
    switch (race.hazard) {
      case Hazard::kArrival: does = " reads "; break;
      case Hazard::kNotReady: does = " sends "; break;
      case Hazard::kOverwrite: does = " overwrites ", other = " may still be reading it"; break;
      case Hazard::kSendReused: does = " overwrites ", other = " may still be sending it"; break;
      default: break;
    }
    return site(race.second) + does + memory(race) + " while " + site(race.first) + other + ": " +
           (race.shared ? "one buffer serves both" : "nothing orders the two");
  }
  std::string unwritten_sentence(const Race& race) const {
    const BufferRow* buffer = index_.buffer(race.buffer);
    const uint32_t writer = buffer ? writers_.of(buffer->name) : 0;
    return site(race.second) + " reads " + memory(race) + ", which nothing has written since they were allocated" +
           (writer ? "; elsewhere '" + std::string(view_.text(writer)) + "' is the first to write them" : "");
  }

  // The smallest change that orders the two.
  std::string fix(const Race& race, const Finding& f) const {
    if (race.hazard == Hazard::kUnwritten || race.hazard == Hazard::kFreed) return f.fix;
    const std::string second = std::string(view_.text(view_.ops[race.second].name));
    if (race.shared)
      return "give the block that " + second +
             " brings a buffer of its own, apart from the one that is still in use; an "
             "event cannot help, as the block that is needed arrives in the same place";
    const std::string from = "record an event on " + lane_text(race.before) + " after " +
                             std::string(view_.text(view_.ops[race.first].name));
    const std::string entry = std::string(view_.text(view_.ops[race.entry].name));
    const std::string to = race.behind == kNoRow
                               ? ", wait for it on the stream that the host synchronises before it reads " + entry
                               : ", wait for it on " + lane_text(race.behind) + " before " + entry;
    return from + to + nearby_event(race);
  }

  static constexpr const char* kNoHelp = "' stands there and does not order them)";
  std::string nearby_event(const Race& race) const {
    const auto& [waited, no_help, first, last] = race.events;
    uint32_t event = 0;
    for (uint32_t other : {no_help, first, last}) {
      if (event && other && other != event) return "";  // which of them was meant is not known
      event = event ? event : other;
    }
    event = event ? event : waited;
    return event ? " (the event '" + std::string(view_.text(event)) + kNoHelp : "";
  }

  // What would raise the confidence, and what would take it all back.
  std::string other_evidence(const Race& race) const {
    if (race.hazard == Hazard::kUnwritten)
      return "a run whose memory is filled with NaN at each allocation; a writer that declares no access (a kernel, "
             "the "
             "host, another device) would withdraw the finding";
    if (race.hazard == Hazard::kFreed)
      return "the allocator's own log of what it handed out again; an edge to the freeing stream that the trace does "
             "not "
             "hold would withdraw the finding";
    return "a run with a delay in front of " + std::string(view_.text(view_.ops[race.first].name)) +
           "; an edge that the trace does not hold, made by a library or a host thread that was not recorded, would "
           "withdraw the finding";
  }

  Finding finding(const std::vector<size_t>& places) const {
    size_t best = places[0];
    for (size_t i : places) {
      const Where &a = view_.ops[shown(races_[i])].where, &b = view_.ops[shown(races_[best])].where;
      if (earlier(a, b) || (!earlier(b, a) && races_[i].hazard < races_[best].hazard)) best = i;
    }
    const Race& race = races_[best];
    Finding f = make_finding(id_of(race.hazard));
    for (size_t i : places) f.ranks.push_back(races_[i].rank);
    sort_unique(f.ranks);
    const OpRow& op = view_.ops[shown(race)];
    f.where = op.where;
    f.first_ns = view_.ops[race.second == kNoRow ? race.first : race.second].enqueue_ns;
    // Order is observed: each rank is its own witness, every further place an observation.
    f.confidence = confidence({1, double(f.ranks.size()), 0, double(places.size())});
    f.op = op_name(index_, shown(race));
    add_call(f, op);
    f.sentence = "on " + ranks_text(f.ranks) + " " + sentence(race) + " (first seen on rank " +
                 std::to_string(race.rank) + ", " + std::to_string(places.size()) +
                 (places.size() == 1 ? " such place)" : " such places)");
    f.fix = fix(race, f);
    f.would_raise_confidence = other_evidence(race);
    if (race.first != kNoRow) f.evidence.push_back(cite(view_, "op", race.first, "first: " + site(race.first)));
    if (race.second != kNoRow)
      f.evidence.push_back(cite(view_, "op", race.second,
                                (race.first == kNoRow ? "reads: " : "second, unordered: ") + site(race.second)));
    return f;
  }

  void add_call(Finding& f, const OpRow& op) const {
    const CommRow* comm = nullptr;
    if (op.p2p != kNoRow) {
      comm = index_.comm(view_.p2ps[op.p2p].comm);
      f.seq = int64_t(view_.p2ps[op.p2p].seq);
    } else if (op.coll != kNoRow) {
      comm = index_.comm(view_.colls[op.coll].comm);
      f.seq = int64_t(view_.colls[op.coll].seq);
    }
    if (comm) f.group = group_ref(*comm);
  }

  const TraceIndex& index_;
  const TraceView& view_;
  const std::vector<Race>& races_;
  FirstWriters writers_;
};

}  // namespace

namespace {

// Can what is seen at `at` come from what happened at `from`? What has no layer or hop of its own lies anywhere in its
// pass: the head's backward pass is the first of all, the joining of what a ring brought comes after its last hop.
bool may_come_from(Where at, Where from) {
  if (at.pass == Pass::kNone) return at.step >= from.step;  // the host's reads: anywhere in the step
  if (at.ring_step < 0) at.ring_step = INT16_MAX;
  if (at.layer < 0 && at.pass == Pass::kForward) at.layer = INT16_MAX;
  if (from.layer < 0 && from.pass == Pass::kBackward) from.layer = INT16_MAX;
  return !earlier(at, from);
}

// All ranks of the race are accused already. Memory that nothing wrote, on one of them, is enough: others may have left out
// a call that nobody misses.
bool accounts_for(const Finding& cause, const Finding& race) {
  if (race.id != "race.uninitialised_read")
    return std::includes(cause.ranks.begin(), cause.ranks.end(), race.ranks.begin(), race.ranks.end());
  return std::any_of(cause.ranks.begin(), cause.ranks.end(), [&](int rank) {
    return std::find(race.ranks.begin(), race.ranks.end(), rank) != race.ranks.end();
  });
}

}  // namespace

// Whoever leaves out a part of a step leaves several buffers unwritten.
bool left_out_with(const Finding& first, const Finding& f) {
  return first.root && first.id == "race.uninitialised_read" && f.id == first.id && f.ranks == first.ranks &&
         f.where.step == first.where.step && may_come_from(f.where, first.where);
}

void add_races(std::vector<Finding>& found, std::vector<Finding> races) {
  const size_t others = found.size();
  for (Finding& f : races) {
    for (size_t i = 0; i < others && f.root; ++i) {
      const Finding& cause = found[i];
      // Who leaves a call out has nothing in the memory that it would have filled, and who makes another one writes
      // where it should only have read.
      if (!cause.root || !may_come_from(f.where, cause.where) || !accounts_for(cause, f)) continue;
      f.root = false;
      f.caused_by = int(i);
    }
    for (size_t i = others; i < found.size() && f.root; ++i)
      if (left_out_with(found[i], f)) f.root = false, f.caused_by = int(i);
    found.push_back(std::move(f));
  }
}

std::vector<Finding> races(const TraceIndex& index) {
  std::vector<Race> found = walk_ranks(index);
  if (found.empty()) return {};
  drop_ordered_elsewhere(index, found);
  return RaceReport(index, found).findings();
}

}  // namespace ringscope
