// Judge: what can be expected of the verdict on a mutant, decided from the mutation, the job's sites and its layout (and,
// for edges and unwritten memory, from the program that the twin recorded) before any finding is looked at.
#pragma once

#include <string>
#include <vector>

#include "runtime/config/job_config.h"
#include "runtime/fault/mutation.h"
#include "runtime/fault/site.h"
#include "tools/campaign/judge_table.h"
#include "tools/campaign/order.h"
#include "tracedb/model/finding.h"
#include "tracedb/model/trace_view.h"

namespace ringscope::campaign {

// What was measured on the values of mutant and twin.
struct Measured {
  Effect effect = Effect::kHarmless;  // kOrder comes from the judge, never from here
  bool copies_disagree = false;       // ranks that hold copies ended with other bits
  std::vector<int> odd;               // of them: those in the smaller part, where there is one
  bool nonfinite = false;             // a loss or gradient norm that was a number in the twin is none
};

struct Expected {
  Effect effect = Effect::kHarmless;
  std::vector<std::string> ids;  // any of them names it
  std::vector<int> ranks;        // who must be accused: the changed ones
  bool or_nobody = false;        // accusing nobody is right too
  std::vector<int> seen;         // of them, those of whom something is recorded: right as well
  std::vector<int> may;          // who may be accused at all
  std::vector<int> odd;          // who ended with other bits than the most: what numeric.replica may say as well
  // Is a verdict due? Of a hang: it can be decided. Of numbers: something recorded shows them. Otherwise silent.
  bool visible = false;
  bool told_anyhow = false;  // harmless: something is not what it should be, so that saying so is no false alarm
  bool edge = false;         // a record or wait was changed
  bool needed = false;       // and two conflicting accesses are unordered without it
};

// The ranks at which the mutation changes something, and the sites of each.
struct Change {
  std::vector<int> ranks;
  std::vector<std::vector<uint32_t>> sites;  // by rank
};
// Those of the runtime's plan, without columns that come out as they were. kUsage: it cannot be applied.
Result<Change> change_of(const Mutation& mutation, const JobConfig& config, const SiteTable& sites);

class Judge {
 public:
  // twin: the recording of the same job without the mutation.
  Judge(const Mutation& mutation, const JobConfig& config, const SiteTable& sites, Change change,
        const TraceView& twin);

  // kInternal: the twin's program is not that of the sites.
  Result<Expected> expect(const Measured& measured);

  bool is_edge() const { return edge_; }
  const std::vector<int>& changed() const { return change_.ranks; }

 private:
  struct Group {
    Axis axis;
    std::vector<int> ranks;
    bool operator==(const Group&) const = default;
  };
  bool holds(const TableRow& row, const Measured& measured);
  bool unlike_elsewhere(bool any_layer) const;
  bool swaps_one_group() const;
  Status read_program();
  bool hang_is_decidable() const;
  std::vector<Group> affected_groups() const;
  int first_step() const;
  std::vector<int> whoever_may(const Expected& expected) const;
  bool swallowed(const Measured&) const;
  std::vector<int> whose_rows_are_sampled() const;
  const Site& site(int rank, uint32_t index) const { return sites_[size_t(rank)][index]; }
  template <class Visit>
  void each_changed(Visit visit) const;

  const Mutation& mutation_;
  const JobConfig& config_;
  const SiteTable& sites_;
  Change change_;
  const TraceView& twin_;
  Mesh mesh_;
  bool edge_ = false;
  bool program_read_ = false, unwritten_ = false;
  std::vector<SiteClass> classes_;  // of the changed sites
  Unordered order_;                 // pairs that the changed edges leave without a path
};

enum class VerdictKind : uint8_t { kRight, kPartly, kCareful, kMissed, kWrong, kFalseAlarm, kSilent };
inline constexpr int kVerdicts = 7;
const char* name(VerdictKind);  // "right", ..., "false_alarm", "silent"

VerdictKind verdict(const Expected& expected, const Report& report);
// A report of a run without a bug: above a note, anything is a false alarm.
bool is_false_alarm(const Report& report);

}  // namespace ringscope::campaign
