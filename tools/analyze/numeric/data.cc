#include <algorithm>

#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

bool starts_with(const Finding& f, std::string_view family) { return f.id.compare(0, family.size(), family) == 0; }

// The place of a finding as far as its cause can lie: what is said of a whole attention call may come from any hop of
// it, and what is seen at the end of a step only, from anywhere in the step.
Where seen_at(const Finding& f) {
  Where where = f.where;
  if (where.ring_step < 0) where.ring_step = INT16_MAX;
  if (starts_with(f, "loss.") || (starts_with(f, "numeric.") && where.microbatch < 0)) {
    where.pass = Pass::kOptimizer;
    where.microbatch = -1;
    where.layer = INT16_MAX;
  }
  return where;
}

// Values that a race can have changed: what a device computed or reduced. A maximum that is read before its reduction
// has arrived is the own one. Positions and divisors of the named findings come from the host's arithmetic.
bool computed(const Finding& f) {
  return starts_with(f, "numeric.") || starts_with(f, "softmax.") || f.id == "ring.stale_block" ||
         f.id == "loss.grad_scale" || f.id.ends_with(".unexplained");
}

bool not_a_number(const Finding& f) { return f.id == "numeric.nonfinite" || f.id == "softmax.nan_rows"; }

bool share_a_rank(const Finding& a, const Finding& b) {
  return std::any_of(a.ranks.begin(), a.ranks.end(),
                     [&](int rank) { return std::find(b.ranks.begin(), b.ranks.end(), rank) != b.ranks.end(); });
}

// Can `cause`, a root of another family, be what is behind a data finding?
bool may_cause(const Finding& cause, const Finding& f) {
  // Calls that went wrong somewhere, nobody knows where, make replicas differ, hand out other blocks and reduce other bytes
  // before anything stands still.
  const bool blocks = f.op == "block";
  if (cause.root && cause.id == "hang.undecided")
    return starts_with(f, "numeric.") || starts_with(f, "loss.") || blocks;
  if (cause.root && blocks && starts_with(cause, "hang.") && (cause.where.step < 0 || cause.where.step <= f.where.step))
    return true;
  // Memory that nothing wrote holds anything, NaN as well; what is seen of it first need not be its first use. Before the first
  // step there is no place.
  if (cause.root && cause.id == "race.uninitialised_read" && not_a_number(f) && cause.where.step <= f.where.step)
    return f.ranks.empty() || cause.where.step >= 0 || share_a_rank(cause, f);
  // Without places at all: what a rank computed behind a call that it left out or made otherwise.
  if (cause.root && cause.where.step < 0 && f.where.step < 0 &&
      (starts_with(cause, "hang.") || starts_with(cause, "ring.")))
    return computed(f) && !f.ranks.empty() &&
           std::includes(cause.ranks.begin(), cause.ranks.end(), f.ranks.begin(), f.ranks.end());
  if (!cause.root || cause.where.step < 0) return false;
  // A send that runs ahead of its producer takes along what it finds, wherever in the step the program has it.
  if (cause.id == "race.send_before_ready" && (blocks || not_a_number(f)) && f.where.step == cause.where.step)
    return true;
  // The calls that met lie at different places of the step on different ranks, and its place is one of them.
  static constexpr std::string_view kMet[] = {"hang.op_mismatch", "hang.arg_mismatch", "hang.order_swap",
                                              "hang.missing_rank"};
  if ((starts_with(f, "loss.") || starts_with(f, "numeric.")) &&
      std::find(std::begin(kMet), std::end(kMet), cause.id) != std::end(kMet))
    return f.where.step >= cause.where.step;
  Where from = cause.where;
  if (from.layer < 0 && from.pass == Pass::kBackward) from.layer = INT16_MAX;  // the head, maybe: its pass is the first
  if (!starts_with(cause, "race.")) return !earlier(seen_at(f), from);
  // Memory that nothing wrote can be anything's: positions, labels, counts. A count that is reduced on the device can be
  // raced for as well, outside of the layers.
  const bool count = f.id == "loss.per_rank_mean" && cause.where.layer < 0;
  if (!computed(f) && !count && cause.id != "race.uninitialised_read") return false;
  return !earlier(seen_at(f), from);
}

// Among data findings: one family tells one story, from its first place on. Values that came out wrong can end in a
// NaN, and a NaN makes the values worthless that a softmax or a loss is made of.
bool data_causes(const Finding& cause, const Finding& f) {
  const auto family = [](const Finding& g) { return g.id.substr(0, g.id.find('.')); };
  if (family(cause) == family(f) || not_a_number(f)) return true;
  // A loss, its gradient and the update are one chain of values; what attention or positions did wrong is in all of it.
  if (starts_with(f, "numeric.") || f.id == "loss.unexplained" || f.id == "loss.grad_scale") return true;
  return not_a_number(cause) && starts_with(f, "softmax.");
}

// A loss is seen at the end of its step; labels that went into it were there before.
bool behind_labels(const Finding& loss, const Finding& labels) {
  return labels.op == "labels" && starts_with(loss, "loss.") && loss.op != "labels" && loss.where.microbatch < 0 &&
         loss.where.step == labels.where.step;
}

bool before(const Finding& a, const Finding& b) {
  if (behind_labels(b, a) || behind_labels(a, b)) return behind_labels(b, a);
  // Replicas are compared at the end of a step, whatever tensor it is that differs: a NaN of the step came first.
  if (a.where.step == b.where.step && not_a_number(a) != not_a_number(b) &&
      (a.id == "numeric.replica" || b.id == "numeric.replica"))
    return not_a_number(a);
  if (earlier(a.where, b.where)) return true;
  // In one place a name goes before what has none.
  return !earlier(b.where, a.where) && !a.id.ends_with(".unexplained") && b.id.ends_with(".unexplained");
}

}  // namespace

void count_contradictions(DataFindings& out, const std::string& name, int64_t count, const std::string& what) {
  if (count > 0) out.stats.push_back({name, "data_loss", count, what + " contradict themselves and prove nothing"});
}

DataFindings data_findings(const TraceIndex& index) {
  DataFindings all;
  const auto add = [&](DataFindings part) {
    std::move(part.findings.begin(), part.findings.end(), std::back_inserter(all.findings));
    std::move(part.stats.begin(), part.stats.end(), std::back_inserter(all.stats));
  };
  add(three_step_softmax(index));
  add(lse_merge(index));
  add({travelling_blocks(index), {}});
  add(positions(index));
  add({mask_rows(index), {}});
  add(recomputed_attention(index, all.findings));
  add(labels(index));
  add(losses(index));
  add({nonfinite_values(index), {}});
  add({step_consistency(index), {}});
  std::stable_sort(all.findings.begin(), all.findings.end(), before);
  return all;
}

void add_data_findings(std::vector<Finding>& found, std::vector<Finding> data) {
  const size_t others = found.size();
  for (Finding& f : data) {
    int cause = -1;
    for (size_t i = 0; i < others; ++i)
      if (may_cause(found[i], f) && (cause < 0 || earlier(found[i].where, found[size_t(cause)].where))) cause = int(i);
    for (size_t i = others; i < found.size() && cause < 0; ++i)
      if (found[i].root && data_causes(found[i], f)) cause = int(i);
    if (cause >= 0) {
      f.root = false;
      f.caused_by = cause;
    }
    found.push_back(std::move(f));
  }
}

}  // namespace ringscope
