#include "tools/analyze/numeric/step_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

namespace ringscope {

StepNumbers::StepNumbers(const TraceIndex& index) {
  const auto& rows = index.view.step_values;
  for (size_t i = 0; i < rows.size(); ++i) {
    const StepValueRow& r = rows[i];
    if (r.where.step < 0) continue;
    const auto [it, fresh] =
        numbers_.try_emplace({r.where.step, r.rank, r.quantity, r.axis, r.where.microbatch}, Entry{{r.value, i}});
    it->second.twice = !fresh;
    reduced_.insert({r.quantity, r.axis});
    steps_.push_back(r.where.step);
    if (r.where.microbatch >= 0) microbatches_.push_back(r.where.microbatch);
  }
  sort_unique(steps_);
  sort_unique(microbatches_);
  if (microbatches_.empty()) return;
  // The end of a step says some of it once more, where what was recorded on the way is gone.
  for (const TrainStepRow& r : index.view.train_steps)
    for (const auto& [quantity, value] :
         {std::pair(StepQuantity::kLossSum, r.loss_sum), std::pair(StepQuantity::kCounted, double(r.valid_tokens))})
      if (std::binary_search(steps_.begin(), steps_.end(), r.where.step))
        numbers_.try_emplace({r.where.step, r.rank, quantity, Axis::kUnknown, microbatches_.back()},
                             Entry{{value, kNoStepValue}});
}

const StepNumber* StepNumbers::find(int step, int rank, StepQuantity quantity, Axis axis, int microbatch) const {
  const auto found = numbers_.find({step, rank, quantity, axis, microbatch});
  return found == numbers_.end() || found->second.twice ? nullptr : &found->second.number;
}

const StepNumber* StepNumbers::last(int step, int rank, StepQuantity quantity) const {
  for (const Axis axis : {Axis::kDp, Axis::kCp, Axis::kTp})
    if (reduced_over(quantity, axis)) return find(step, rank, quantity, axis);
  return find(step, rank, quantity);
}

const StepNumber* StepNumbers::of_step(int step, int rank, StepQuantity quantity) const {
  return microbatches_.empty() ? nullptr : find(step, rank, quantity, Axis::kUnknown, microbatches_.back());
}

namespace {

// Do the rows that the members were dealt bear the label of their group? TP ranks hold the same rows, CP ranks parts of
// the same samples, DP ranks other samples. Without rows the label is believed.
bool bears_label(const TraceIndex& index, const CommRow& comm) {
  std::set<std::vector<DealtRun>> rows;
  std::set<std::set<uint32_t>> samples;
  for (const int rank : comm.ranks) {
    const auto dealt = index.dealt.find(rank);
    if (dealt == index.dealt.end()) return true;
    rows.insert(dealt->second);
    std::set<uint32_t> of;
    for (const DealtRun& run : dealt->second) of.insert(run.sample);
    samples.insert(std::move(of));
  }
  switch (comm.axis) {
    case Axis::kTp: return rows.size() == 1;
    case Axis::kCp: return samples.size() == 1 && rows.size() == comm.ranks.size();
    case Axis::kDp: return samples.size() == comm.ranks.size();
    default: return true;
  }
}

}  // namespace

Groups::Groups(const TraceIndex& index) {
  for (const CommRow& comm : index.view.comms)
    if (!bears_label(index, comm)) return;  // whose values went into what is not known then
  for (const CommRow& comm : index.view.comms) {
    if (comm.ranks.size() < 2 || std::find(comm.ranks.begin(), comm.ranks.end(), -1) != comm.ranks.end()) continue;
    bool fresh = true;  // a communicator that was made anew holds the same members
    for (const int rank : comm.ranks) fresh = of_.try_emplace({comm.axis, rank}, &comm.ranks).second && fresh;
    if (fresh) all_[comm.axis].push_back(&comm.ranks);
  }
}

const std::vector<int>* Groups::along(int rank, Axis axis) const {
  const auto found = of_.find({axis, rank});
  return found == of_.end() ? nullptr : found->second;
}

std::vector<const std::vector<int>*> Groups::all(Axis axis) const {
  const auto found = all_.find(axis);
  return found == all_.end() ? std::vector<const std::vector<int>*>() : found->second;
}

std::optional<double> config_number(const TraceView& view, const std::string& key) {
  const auto config = view.meta.find(meta_key::kConfig);
  if (config == view.meta.end()) return std::nullopt;
  const std::string quoted = "\"" + key + "\":";
  const size_t at = config->second.find(quoted);
  if (at == std::string::npos) return std::nullopt;
  const char* text = config->second.c_str() + at + quoted.size();
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  return end == text ? std::nullopt : std::optional(value);
}

std::vector<int> known_ranks(const TraceIndex& index) {
  std::vector<int> ranks;
  for (const RankRow& r : index.view.ranks) ranks.push_back(r.rank);
  for (const CommRow& comm : index.view.comms)
    for (const int rank : comm.ranks)
      if (rank >= 0) ranks.push_back(rank);
  sort_unique(ranks);
  return ranks;
}

std::vector<size_t> calls_at(const TraceIndex& index, int rank, Axis axis, const Where& where, std::string_view name) {
  std::vector<size_t> rows;
  const auto [first, last] = index.ops_of(rank);
  for (uint32_t i = first; i < last; ++i) {
    const OpRow& op = index.view.ops[i];
    if (op.coll == kNoRow || op.where.step != where.step || op.where.layer != where.layer) continue;
    const CommRow* comm = index.comm(index.view.colls[op.coll].comm);
    if (comm && comm->axis == axis && index.view.text(op.name).starts_with(name)) rows.push_back(op.coll);
  }
  return rows;
}

std::string calls_text(const TraceIndex& index, int rank, Axis axis, const Where& where, std::string_view name) {
  const std::vector<size_t> rows = calls_at(index, rank, axis, where, name);
  const std::string of = "of rank " + std::to_string(rank) + " over " + ringscope::name(axis);
  if (rows.empty()) return index.seen(rank) && index.lossless(rank) ? "no such call " + of + " is recorded" : "";
  if (rows.size() > 1) return std::to_string(rows.size()) + " such calls " + of + " are recorded";
  const CollRow& call = index.view.colls[rows[0]];
  if (call.func == CollFunc::kAllReduce && call.redop == RedOp::kSum) return "";
  return "the recorded call " + of + " is " + ringscope::name(call.func) +
         (call.redop == RedOp::kNone ? "" : std::string(" ") + ringscope::name(call.redop)) + " of " +
         std::to_string(call.count) + " " + ringscope::name(call.dtype) + " values";
}

std::string factor_text(const TraceIndex& index, double ratio, double tolerance, Axis first, int microbatches) {
  struct Size {
    std::string name;
    double value;
    Axis axis;
  };
  std::vector<Size> sizes;
  for (const Axis axis : {Axis::kCp, Axis::kDp, Axis::kTp}) {
    size_t size = 1;
    for (const CommRow& comm : index.view.comms)
      if (comm.axis == axis) size = std::max(size, comm.ranks.size());
    if (size > 1) sizes.push_back({name(axis), double(size), axis});
  }
  if (microbatches > 1) sizes.push_back({"microbatches", double(microbatches), Axis::kUnknown});
  std::stable_sort(sizes.begin(), sizes.end(),
                   [&](const Size& a, const Size& b) { return (a.axis == first) > (b.axis == first); });
  std::string best;
  int fewest = 0;
  for (unsigned set = 1; set < 1u << sizes.size(); ++set) {
    double product = 1;
    int members = 0;
    std::string text;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (set >> i & 1) {
        product *= sizes[i].value;
        text += (text.empty() ? "" : " x ") + sizes[i].name;
        ++members;
      }
    const bool times = std::fabs(ratio / product - 1) <= tolerance;
    if (!times && !(std::fabs(ratio * product - 1) <= tolerance)) continue;
    if (!best.empty() && members >= fewest) continue;
    fewest = members;
    best =
        (times ? "" : "1/") + number_text(product) +
        (times ? (members > 1 ? ", " : ", the size of ") + text : ", 1 / " + (members > 1 ? "(" + text + ")" : text));
  }
  return best;
}

}  // namespace ringscope
