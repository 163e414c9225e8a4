// Numbers of steps by rank and stage, the groups that reduce them, and what the rules over them share.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tools/analyze/index.h"

namespace ringscope {

inline constexpr size_t kNoStepValue = SIZE_MAX;
struct StepNumber {
  double value = 0;
  size_t row = 0;  // in view.step_values; kNoStepValue: from the step's row in train_step
};

class StepNumbers {
 public:
  explicit StepNumbers(const TraceIndex& index);

  bool empty() const { return numbers_.empty(); }
  const std::vector<int>& steps() const { return steps_; }                // sorted
  const std::vector<int>& microbatches() const { return microbatches_; }  // of all steps, sorted
  // axis kUnknown = the rank's own. Null: not recorded, or more than once.
  const StepNumber* find(int step, int rank, StepQuantity, Axis axis = Axis::kUnknown, int microbatch = -1) const;
  // Does the job reduce this quantity over this axis?
  bool reduced_over(StepQuantity quantity, Axis axis) const { return reduced_.contains({quantity, axis}); }
  // As the job's last reduction left it; its own where it reduces nothing.
  const StepNumber* last(int step, int rank, StepQuantity) const;
  // Of the last microbatch of the step that the job has.
  const StepNumber* of_step(int step, int rank, StepQuantity) const;

 private:
  using Key = std::tuple<int, int, StepQuantity, Axis, int>;
  struct Entry {
    StepNumber number;
    bool twice = false;
  };
  std::map<Key, Entry> numbers_;
  std::set<std::pair<StepQuantity, Axis>> reduced_;
  std::vector<int> steps_, microbatches_;
};

// Groups by the labels of their communicators. Where rows that ranks were dealt contradict a label, there is none.
class Groups {
 public:
  explicit Groups(const TraceIndex& index);
  // The members of the rank's group along an axis, by group rank. Null: it has none. The same group, the same address.
  const std::vector<int>* along(int rank, Axis axis) const;
  std::vector<const std::vector<int>*> all(Axis axis) const;  // in creation order

 private:
  std::map<std::pair<Axis, int>, const std::vector<int>*> of_;
  std::map<Axis, std::vector<const std::vector<int>*>> all_;
};
// Ranks of the job that the trace knows, sorted.
std::vector<int> known_ranks(const TraceIndex& index);

// What calls the trace has of this rank on its communicator along an axis in one place of a step: "no call is
// recorded", "2 calls are recorded", "the recorded call is all_reduce max of 64 fp32 values"; "" where it is one sum.
std::string calls_text(const TraceIndex& index, int rank, Axis axis, const Where& where, std::string_view name);
// Those calls, as rows in view.colls.
std::vector<size_t> calls_at(const TraceIndex& index, int rank, Axis axis, const Where& where, std::string_view name);

// A number of the job's configuration, as the run recorded it.
std::optional<double> config_number(const TraceView& view, const std::string& key);

// "2, the size of cp", "1/8, 1 / (cp x dp)": a ratio that sizes of axes or the number of microbatches make, `first`
// being tried first. "" = none, or 1.
std::string factor_text(const TraceIndex& index, double ratio, double tolerance, Axis first = Axis::kUnknown,
                        int microbatches = 1);

}  // namespace ringscope
