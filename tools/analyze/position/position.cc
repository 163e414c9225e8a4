// position.restart and position.layout: the positions a kernel applied, against those the loader made for the
// same rows of the same sample. Both are observations of the run; where they agree nobody is accused.
#include <algorithm>

#include "tools/analyze/rules.h"

namespace ringscope {
namespace {

constexpr uint32_t kPadding = 0xFFFFFFFF;

// A rank's part of one sample, in storage order.
struct Shard {
  std::vector<uint32_t> rows, position;
  std::vector<char> padding;
  size_t first_row = SIZE_MAX;  // in position_runs
};

struct Sample {
  std::map<int, Shard> data, applied;   // by rank
  std::map<uint32_t, uint32_t> global;  // row -> position, from the data of all ranks
};

enum Kind { kRestart = 0, kLayout = 1, kKinds = 2 };

struct Tally {
  std::vector<int> ranks;
  size_t shards = 0;
  int step = -1, rank = -1;
  std::string what;  // "zigzag" for layout
  size_t data_row = 0, applied_row = 0;
  uint32_t row = 0, expected = 0, actual = 0;
};

// Rows of CP rank r when `length` rows are dealt in another layout.
std::vector<uint32_t> dealt(const std::string& layout, uint32_t length, uint32_t cp, uint32_t r) {
  std::vector<uint32_t> rows;
  const auto chunk = [&](uint32_t index, uint32_t size) {
    for (uint32_t i = 0; i < size; ++i) rows.push_back(index * size + i);
  };
  if (layout == "contiguous" && length % cp == 0) {
    chunk(r, length / cp);
  } else if (layout == "zigzag" && length % (2 * cp) == 0) {
    chunk(r, length / (2 * cp));
    chunk(2 * cp - 1 - r, length / (2 * cp));
  } else if (layout == "striped" && length % cp == 0) {
    for (uint32_t i = 0; i < length / cp; ++i) rows.push_back(r + i * cp);
  }
  return rows;
}

class Positions {
 public:
  explicit Positions(const TraceIndex& index) : index_(index) {}

  std::vector<Finding> run() {
    collect();
    for (auto& [key, sample] : samples_)
      for (const auto& [rank, applied] : sample.applied) {
        const auto data = sample.data.find(rank);
        if (data != sample.data.end()) check(key.first, rank, sample, data->second, applied);
      }
    std::vector<Finding> found;
    for (int kind = 0; kind < kKinds; ++kind)
      if (tallies_[kind].shards) found.push_back(finding(Kind(kind)));
    return found;
  }

 private:
  void collect() {
    const auto& runs = index_.view.position_runs;
    for (size_t i = 0; i < runs.size(); ++i) {
      const PositionRunRow& run = runs[i];
      if (run.role == PositionRole::kMask) continue;
      Sample& sample = samples_[{run.where.step, run.sample}];
      Shard& shard = run.role == PositionRole::kData ? sample.data[run.rank] : sample.applied[run.rank];
      if (shard.first_row == SIZE_MAX) shard.first_row = i;
      for (uint32_t k = 0; k < run.count; ++k) {
        const uint32_t position = uint32_t(int64_t(run.pos_start) + int64_t(k) * run.stride);
        shard.rows.push_back(run.token_start + k);
        shard.position.push_back(position);
        shard.padding.push_back(run.document == kPadding);
        if (run.role == PositionRole::kData && run.document != kPadding) sample.global[run.token_start + k] = position;
      }
    }
  }

  // The storage order is the same on both sides; a cut recording compares nothing.
  void check(int step, int rank, const Sample& sample, const Shard& data, const Shard& applied) {
    if (data.rows != applied.rows || data.rows.empty()) return;
    size_t wrong = SIZE_MAX;
    for (size_t i = 0; i < data.rows.size() && wrong == SIZE_MAX; ++i)
      if (!data.padding[i] && data.position[i] != applied.position[i]) wrong = i;
    if (wrong == SIZE_MAX) return;
    if (restarts(data, applied)) return note(kRestart, "", step, rank, data, applied, wrong);
    for (const char* layout : {"contiguous", "zigzag", "striped"})
      if (layout_name() != layout && matches(layout, rank, sample, data, applied))
        return note(kLayout, layout, step, rank, data, applied, wrong);
  }

  // Position = index within the shard, or within each of its contiguous chunks.
  static bool restarts(const Shard& data, const Shard& applied) {
    bool shard = true, chunk = true;
    uint32_t in_chunk = 0;
    for (size_t i = 0; i < data.rows.size(); ++i) {
      in_chunk = i > 0 && data.rows[i] == data.rows[i - 1] + 1 ? in_chunk + 1 : 0;
      if (data.padding[i]) continue;
      shard = shard && applied.position[i] == i;
      chunk = chunk && applied.position[i] == in_chunk;
    }
    return shard || chunk;
  }

  std::string meta(const char* key) const {
    const auto found = index_.view.meta.find(key);
    return found == index_.view.meta.end() ? "" : found->second;
  }

  std::string layout_name() const { return meta(meta_key::kCpLayout); }

  bool matches(const std::string& layout, int rank, const Sample& sample, const Shard& data,
               const Shard& applied) const {
    const std::vector<int> group = index_.cp_members(rank);
    const auto self = std::find(group.begin(), group.end(), rank);
    if (self == group.end()) return false;
    const uint32_t cp = uint32_t(group.size());
    const std::vector<uint32_t> rows =
        dealt(layout, uint32_t(data.rows.size()) * cp, cp, uint32_t(self - group.begin()));
    if (rows.size() != data.rows.size() || rows == data.rows) return false;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (data.padding[i]) continue;
      const auto position = sample.global.find(rows[i]);
      // A row nobody recorded is padding (position 0), or its rank's record is missing.
      const uint32_t expected = position == sample.global.end() ? 0 : position->second;
      if (applied.position[i] != expected && !(position == sample.global.end() && applied.position[i] == rows[i]))
        return false;
    }
    return true;
  }

  void note(Kind kind, const std::string& what, int step, int rank, const Shard& data, const Shard& applied,
            size_t at) {
    Tally& tally = tallies_[kind];
    ++tally.shards;
    tally.ranks.push_back(rank);
    if (tally.rank >= 0) return;  // samples come in the order of steps
    tally.step = step;
    tally.rank = rank;
    tally.what = what;
    tally.data_row = data.first_row;
    tally.applied_row = applied.first_row;
    tally.row = data.rows[at];
    tally.expected = data.position[at];
    tally.actual = applied.position[at];
  }

  Finding finding(Kind kind) {
    Tally& tally = tallies_[kind];
    const PositionRunRow& applied = index_.view.position_runs[tally.applied_row];
    Finding f = make_finding(kind == kRestart ? "position.restart" : "position.layout");
    sort_unique(tally.ranks);
    f.ranks = tally.ranks;
    f.group = index_.cp_group(tally.rank);
    f.where.step = tally.step;
    f.first_ns = index_.step_ns(tally.rank, tally.step);
    f.confidence = 0.98;
    const std::string role = name(applied.role);
    const std::string shown = "rank " + std::to_string(tally.rank) + ", row " + std::to_string(tally.row) +
                              ": the loader made position " + std::to_string(tally.expected) + ", the " + role +
                              " kernel was given " + std::to_string(tally.actual);
    const std::string from = " from step " + std::to_string(tally.step) + " on (" + shown + ")";
    if (kind == kRestart) {
      f.sentence = "positions applied on " + ranks_text(f.ranks) + " restart at 0 in the shard" + from;
    } else {
      const std::string own = layout_name();
      f.sentence = "positions applied on " + ranks_text(f.ranks) + " are those of the " + tally.what +
                   " layout, but the data is laid out " + (own.empty() ? "otherwise" : own) + from;
    }
    f.evidence.push_back(cite(index_.view, "position_run", size_t(tally.data_row), "made by the loader"));
    f.evidence.push_back(cite(index_.view, "position_run", size_t(tally.applied_row), "applied (" + role + ")"));
    return f;
  }

  const TraceIndex& index_;
  std::map<std::pair<int, uint32_t>, Sample> samples_;  // (step, sample)
  Tally tallies_[kKinds];
};

}  // namespace

std::vector<Finding> positions(const TraceIndex& index) { return Positions(index).run(); }

}  // namespace ringscope
