// position.restart, layout, offset, overlap, rope_base and unexplained: the positions a kernel applied, against
// those the loader made for the same rows of the same sample; and rows that two members of a group both hold. All are
// observations of the run; where they agree nobody is accused. One root: the first explanation that covers every
// wrong shard of the trace, or none does and what disagrees is stated.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/position/explanations.h"

namespace ringscope {
namespace {

struct WrongShard {
  AppliedShard shard;
  int64_t row = 0, expected = 0, actual = 0;  // the first that differs
};

// The storage order is the same on both sides; a cut recording compares nothing.
bool comparable(const AppliedShard& shard) {
  return walk(*shard.runs, *shard.data, *shard.applied, [](const Stretch& s) { return s.row_a() == s.row_b(); });
}

class Positions {
 public:
  explicit Positions(const TraceIndex& index) : index_(index), collected_(collect_positions(index.view)) {}

  DataFindings run() {
    DataFindings out;
    for (const PositionSample& sample : collected_.samples) compare(sample);
    // Positions of rows that a rank should not hold say nothing more.
    if (auto shared = shared_rows()) out.findings.push_back(std::move(*shared));
    else if (!wrong_.empty()) out.findings.push_back(finding(best()));
    if (auto base = rope_base()) out.findings.push_back(std::move(*base));
    count_contradictions(out, "position.contradictory_blocks", collected_.contradictory,
                         "positions with runs that are empty or lie outside of the sequence");
    return out;
  }

 private:
  void compare(const PositionSample& sample) {
    std::shared_ptr<const std::vector<const PositionRunRow*>> global;
    for (const PositionBlock& applied : sample.blocks) {
      if (applied.role == PositionRole::kData || applied.role == PositionRole::kMask) continue;
      ++applied_;
      AppliedShard shard{&index_.view.position_runs, &sample, nullptr, sample.data_of(applied.rank), &applied};
      if (!shard.data || !comparable(shard)) continue;
      ++compared_;
      WrongShard wrong{shard};
      const bool right = walk(*shard.runs, *shard.data, applied, [&](const Stretch& s) {
        if (s.padding() || s.b_is(s.position_a(), s.a->stride)) return true;
        const bool first = s.position_a() != s.position_b();  // or only the stride differs
        wrong.row = s.row_a() + !first;
        wrong.expected = s.position_a() + (first ? 0 : s.a->stride);
        wrong.actual = s.position_b() + (first ? 0 : s.b->stride);
        return false;
      });
      if (right) continue;
      if (!global)
        global = std::make_shared<const std::vector<const PositionRunRow*>>(global_rows(*shard.runs, sample));
      wrong.shard.global = global;
      wrong_.push_back(std::move(wrong));  // in the order of steps
    }
  }

  PositionFault best() const {
    std::vector<AppliedShard> shards;
    for (const WrongShard& wrong : wrong_) shards.push_back(wrong.shard);
    return best_explanation(index_, shards);
  }

  Finding finding(PositionFault fault) const {
    Finding f = make_finding(id_of(fault));
    for (const WrongShard& w : wrong_) f.ranks.push_back(w.shard.applied->rank);
    sort_unique(f.ranks);
    const WrongShard& first = wrong_.front();
    const PositionBlock &data = *first.shard.data, &applied = *first.shard.applied;
    f.group = index_.cp_group(data.rank);
    f.where.step = first.shard.sample->step;
    f.first_ns = index_.step_ns(data.rank, f.where.step);
    f.confidence = confidence({.coverage = double(compared_) / double(applied_),
                               .agree = double(f.ranks.size()),
                               .observations = double(wrong_.size())});
    const std::string role = name(applied.role);
    const std::string shown = "rank " + std::to_string(data.rank) + ", row " + std::to_string(first.row) +
                              ": the loader made position " + std::to_string(first.expected) + ", the " + role +
                              " kernel was given " + std::to_string(first.actual);
    f.sentence = "positions applied on " + ranks_text(f.ranks) + text_of(index_, fault, first.shard) + " from step " +
                 std::to_string(f.where.step) + " on (" + shown + ")";
    f.evidence.push_back(cite(index_.view, "position_run", data.runs.front(), "made by the loader"));
    f.evidence.push_back(cite(index_.view, "position_run", applied.runs.front(), "applied (" + role + ")"));
    f.would_raise_confidence = kWouldChange;
    return f;
  }

  // The base of the rotation, as every layer of every rank was given it: one number in a job. Without a majority nobody
  // is accused.
  std::optional<Finding> rope_base() const {
    std::map<float, std::map<std::pair<int, int>, size_t>> bases;  // -> (rank, layer) -> first row
    const auto& runs = index_.view.position_runs;
    for (size_t i = 0; i < runs.size(); ++i)
      if (runs[i].role == PositionRole::kRope)
        bases[runs[i].rope_base].try_emplace({runs[i].rank, runs[i].where.layer}, i);
    if (bases.size() < 2) return std::nullopt;
    size_t all = 0;
    const auto most = std::max_element(bases.begin(), bases.end(),
                                       [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    for (const auto& base : bases) all += base.second.size();
    const bool majority = most->second.size() * 2 > all;
    Finding f = make_finding("position.rope_base");
    std::optional<size_t> first;
    for (const auto& [base, places] : bases)
      if (!majority || base != most->first)
        for (const auto& [place, row] : places) {
          if (majority) f.ranks.push_back(place.first);
          if (!first || earlier(runs[row].where, runs[*first].where)) first = row;
        }
    sort_unique(f.ranks);
    f.where = runs[*first].where;
    f.first_ns = index_.step_ns(runs[*first].rank, f.where.step);
    f.confidence = confidence(
        {.agree = double(most->second.size()), .against = majority ? 0.0 : double(all - most->second.size())});
    f.sentence = (majority ? ranks_text(f.ranks) + " rotated" : std::string("layers or ranks rotated")) +
                 " queries and keys with another base from " + place_text(f.where) +
                 " on: " + number_text(runs[*first].rope_base) +
                 (majority ? ", the others with " : " in some, in others ") +
                 number_text(majority ? most->first
                                      : (most->first == runs[*first].rope_base ? bases.rbegin()->first : most->first));
    f.evidence.push_back(cite(index_.view, "position_run", *first, "rotated with this base"));
    f.evidence.push_back(cite(index_.view, "position_run", most->second.begin()->second, "rotated with that base"));
    f.would_raise_confidence = "the model's configuration on every rank: layers can be meant to differ in their base";
    return f;
  }

  // Two members of one context-parallel group hold the same row of a sample at the same place: the first such step.
  std::optional<Finding> shared_rows() const {
    struct Held {
      int group = 0;
      uint64_t place = 0;
      const PositionRunRow* run = nullptr;
      const PositionBlock* block = nullptr;
    };
    std::map<int, int> groups;  // rank -> first member of its group
    for (const PositionSample& sample : collected_.samples) {
      std::vector<Held> held;
      for (const PositionBlock& block : sample.blocks) {
        if (block.role != PositionRole::kData) continue;
        const auto [group, fresh] = groups.try_emplace(block.rank, -1);
        if (const auto members = fresh ? index_.cp_members(block.rank) : std::vector<int>(); members.size() > 1)
          group->second = members.front();
        if (group->second < 0) continue;
        for (const size_t i : block.runs)
          held.push_back({group->second, block.where.pack(), &index_.view.position_runs[i], &block});
      }
      std::stable_sort(held.begin(), held.end(), [](const Held& a, const Held& b) {
        return std::tuple(a.group, a.place, a.run->token_start) < std::tuple(b.group, b.place, b.run->token_start);
      });
      for (size_t i = 1; i < held.size(); ++i) {
        const Held &a = held[i - 1], &b = held[i];
        if (a.group == b.group && a.place == b.place && a.block->rank != b.block->rank &&
            b.run->token_start < uint64_t(a.run->token_start) + a.run->count)
          return shared_finding(sample, *a.block, *b.block, b.run->token_start);
      }
    }
    return std::nullopt;
  }

  // Of the two holders, those that are not dealt like most of the sample's shards; both if that does not tell.
  std::vector<int> out_of_layout(const PositionSample& sample, const PositionBlock& a, const PositionBlock& b) const {
    std::map<int, std::string> layouts;
    std::map<std::string, int> count;
    std::string most;
    for (const PositionBlock& block : sample.blocks) {
      if (block.role != PositionRole::kData) continue;
      const std::string layout = layout_of(index_, {&index_.view.position_runs, &sample, nullptr, &block, nullptr});
      layouts[block.rank] = layout;
      if (!layout.empty() && ++count[layout] > (most.empty() ? 0 : count[most])) most = layout;
    }
    std::vector<int> ranks;
    for (const PositionBlock* block : {&a, &b})
      if (layouts[block->rank] != most) ranks.push_back(block->rank);
    if (ranks.empty()) ranks = {a.rank, b.rank};
    sort_unique(ranks);
    return ranks;
  }

  Finding shared_finding(const PositionSample& sample, const PositionBlock& a, const PositionBlock& b,
                         uint32_t row) const {
    Finding f = make_finding("position.unexplained");
    f.ranks = out_of_layout(sample, a, b);
    f.group = index_.cp_group(a.rank);
    f.where.step = sample.step;
    f.first_ns = index_.step_ns(a.rank, sample.step);
    f.confidence = confidence({.agree = 1, .observations = 2});
    f.sentence = "ranks " + std::to_string(a.rank) + " and " + std::to_string(b.rank) + " both hold row " +
                 std::to_string(row) + " of sample " + std::to_string(sample.sample) + " from step " +
                 std::to_string(sample.step) +
                 " on, though they are members of one context-parallel group, where every row belongs to one member";
    f.would_raise_confidence = "the loader's table of which rank holds which rows";
    if (f.ranks.size() == 1) f.sentence += "; " + ranks_text(f.ranks) + " is not dealt its rows like the others";
    for (const PositionBlock* block : {&a, &b})
      f.evidence.push_back(
          cite(index_.view, "position_run", block->runs.front(), "rows of rank " + std::to_string(block->rank)));
    return f;
  }

  static constexpr const char* kWouldChange =
      "the position tensor of the kernel, read again: if it is what the loader made, the recording is wrong";

  const TraceIndex& index_;
  PositionSamples collected_;
  std::vector<WrongShard> wrong_;
  size_t applied_ = 0, compared_ = 0;
};

}  // namespace

DataFindings positions(const TraceIndex& index) { return Positions(index).run(); }

}  // namespace ringscope
