// softmax.unexplained and softmax.lse_merge from rows that were computed again: a kernel's share of a query row must be
// what fp64 arithmetic makes of the q, K and V that it was given and of the layout's mask, and the whole row must be the
// weighted sum of its shares. Each rank is held against its own inputs, so that what was wrong before does not count
// again: the first place is where it began.
//
// A whole row is looked at only where its shares are right; what another rule of softmax says of an earlier or the same
// place is left to it.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/softmax/attention_rows.h"
#include "tools/analyze/softmax/samples.h"

namespace ringscope {
namespace {

// NaN and infinity have rules of their own.
bool comparable(double value, double right) {
  return !std::isnan(value) && value != INFINITY && !std::isnan(right) && right != INFINITY;
}
bool differs(double value, double right, double bound) {
  if (!comparable(value, right)) return false;
  if (std::isinf(value) || std::isinf(right)) return value != right;
  return std::fabs(value - right) > bound;
}

class Recomputed {
 public:
  Recomputed(const TraceIndex& index, const std::vector<Finding>& known)
      : index_(index), rows_(index.view.attention_rows), known_(known) {}

  DataFindings run() {
    all_ = collect_attention_rows(index_);
    DataFindings out;
    for (const AttentionCallRow& row : all_.rows) check(row);
    if (!shares_.empty()) out.findings.push_back(share_finding());
    if (!whole_.empty()) out.findings.push_back(whole_finding());
    if (auto f = unmerged_finding()) out.findings.push_back(std::move(*f));
    std::erase_if(out.findings, [&](const Finding& f) { return told(f); });
    count_contradictions(out, "softmax.contradictory_attention_rows", all_.contradictory,
                         "attention rows with part numbers, sums or sizes that cannot be");
    return out;
  }

 private:
  struct Share {
    size_t put_out, recomputed;
  };
  struct Whole {
    const AttentionCallRow* row;
    WholeRow right;
    bool lse, out;  // what differs
  };

  bool told(const Finding& f) const {
    return std::any_of(known_.begin(), known_.end(), [&](const Finding& k) {
      // What a kernel makes of another mask than the layout's is no news where the mask's rows were found wrong.
      const bool mask = k.op == "mask" && k.where.step <= f.where.step &&
                        std::includes(k.ranks.begin(), k.ranks.end(), f.ranks.begin(), f.ranks.end());
      return mask || (k.id.starts_with("softmax.") && !earlier(f.where, k.where));
    });
  }

  void check(const AttentionCallRow& row) {
    bool right = true;
    for (const auto& [owner, at] : row.put_out) {
      const auto again = row.recomputed.find(owner);
      if (again == row.recomputed.end()) continue;
      ++compared_;
      if (!wrong(rows_[at], rows_[again->second])) continue;
      right = false;
      shares_.push_back({at, again->second});
    }
    if (!right || !row.complete()) return;
    if (row.result == SIZE_MAX) {
      if (row.method(rows_) == SoftmaxMethod::kLseMerge && row.put_out.size() == size_t(row.parts))
        unmerged_.push_back(&row);
      return;
    }
    with_result_.insert(rows_[row.result].rank);
    const AttentionRow& result = rows_[row.result];
    const WholeRow whole = whole_row(rows_, row);
    if (!whole.known) return;
    ++compared_;
    const bool lse = differs(result.lse, whole.lse, whole.bounds.lse);
    const bool out = differs(result.out, whole.out, whole.bounds.out);
    if (lse || out) whole_.push_back({&row, whole, lse, out});
  }

  static bool wrong(const AttentionRow& put_out, const AttentionRow& right) {
    const RowBounds bounds = row_bounds(right);
    return differs(put_out.m, right.m, bounds.m) || differs(put_out.lse, right.lse, bounds.lse) ||
           differs(put_out.out, right.out, bounds.out);
  }

  // The places stand in `all_` in the order of step and microbatch; layers fall in the backward pass.
  template <class Wrong, class Place>
  const Wrong& first_of(const std::vector<Wrong>& all, Place&& place) const {
    return *std::min_element(all.begin(), all.end(),
                             [&](const Wrong& a, const Wrong& b) { return earlier(place(a), place(b)); });
  }

  Finding at(std::string_view id, const AttentionRow& shown, std::vector<int> ranks, size_t observations) const {
    Finding f = make_finding(id);
    sort_unique(ranks);
    f.ranks = std::move(ranks);
    f.group = index_.cp_group(shown.rank);
    f.where = shown.where;
    f.where.ring_step = -1;
    f.first_ns = index_.step_ns(shown.rank, shown.where.step);
    f.confidence = confidence({.agree = double(f.ranks.size()), .against = 0, .observations = double(observations)});
    f.would_raise_confidence = "the tensors of this call (train --dump-attention LAYER,STEP), held against an oracle";
    return f;
  }

  // Kernels of the rank in the place of a call, the recording's own left out.
  using Launches = std::map<std::pair<int, uint64_t>, int>;
  static uint64_t call_of(Where where) {
    where.ring_step = -1;
    return where.pack();
  }
  Launches launches() const {
    Launches count;
    for (const OpRow& op : index_.view.ops)
      if (op.kind == OpKind::kKernel && op.where.layer >= 0 && op.where.pass == Pass::kForward &&
          !index_.view.text(op.name).starts_with("statistics."))
        ++count[{op.rank, call_of(op.where)}];
    return count;
  }

  // Calls whose parts were all put out and never became a whole row, though their step ended: it counts only where
  // nothing of the rank is lost and it launched fewer kernels than in its other calls.
  std::optional<Finding> unmerged_finding() const {
    if (unmerged_.empty()) return std::nullopt;
    std::set<std::pair<int, int>> ended;  // rank, step
    for (const TrainStepRow& step : index_.view.train_steps) ended.insert({step.rank, step.where.step});
    const Launches count = launches();
    std::map<int, int> most;  // by rank
    for (const auto& [call, n] : count) most[call.first] = std::max(most[call.first], n);
    const AttentionRow* first = nullptr;
    std::vector<int> ranks;
    std::vector<size_t> parts;
    for (const AttentionCallRow* row : unmerged_) {
      const AttentionRow& shown = rows_[row->put_out.begin()->second];
      const auto launched = count.find({shown.rank, call_of(shown.where)});
      if (!ended.contains({shown.rank, shown.where.step}) || !with_result_.contains(shown.rank) ||
          !index_.lossless(shown.rank) || launched == count.end() || launched->second >= most[shown.rank])
        continue;
      ranks.push_back(shown.rank);
      if (first && !earlier(shown.where, first->where)) continue;
      first = &shown;
      parts.clear();
      for (const auto& [owner, at] : row->put_out) parts.push_back(at);
    }
    if (!first) return std::nullopt;
    Finding f = at("softmax.lse_merge", *first, ranks, ranks.size());
    f.sentence = ranks_text(f.ranks) + " did not merge all attention parts from " + place_text(f.where) +
                 " on: " + row_text(*first) + " has " + std::to_string(first->parts) +
                 " parts and no whole row, and rank " + std::to_string(first->rank) + " launched " +
                 std::to_string(count.at({first->rank, call_of(first->where)})) +
                 " kernels in this layer where it launches " + std::to_string(most[first->rank]) + " in others";
    for (const size_t part : parts) f.evidence.push_back(cite(index_.view, "attention_row", part, "a part"));
    return f;
  }

  static std::string row_text(const AttentionRow& r) {
    return "query row " + std::to_string(r.position) + ", head " + std::to_string(r.head);
  }

  Finding share_finding() const {
    const auto place = [&](const Share& s) { return rows_[s.put_out].where; };
    const Share& first = first_of(shares_, place);
    const AttentionRow &put_out = rows_[first.put_out], &right = rows_[first.recomputed];
    std::vector<int> ranks;
    for (const Share& s : shares_) ranks.push_back(rows_[s.put_out].rank);
    Finding f = at("softmax.unexplained", put_out, ranks, shares_.size());
    f.sentence = "attention kernels on " + ranks_text(f.ranks) +
                 " put out something else than softmax of q, K and V from " + place_text(put_out.where) + " on (" +
                 row_text(put_out) + ", keys of member " + std::to_string(put_out.kv_owner) + ": " +
                 difference(put_out, right) + hint(put_out, right) + "; " + std::to_string(shares_.size()) + " of " +
                 std::to_string(compared_) + " rows that were computed again)";
    f.evidence.push_back(cite(index_.view, "attention_row", first.put_out, "put out by the kernel"));
    f.evidence.push_back(cite(index_.view, "attention_row", first.recomputed, "of the same q, K and V in fp64"));
    return f;
  }

  static std::string difference(const AttentionRow& put_out, const AttentionRow& right) {
    const RowBounds bounds = row_bounds(right);
    const auto values = [](const char* what, double is, double should) {
      return std::string(what) + " " + number_text(is) + ", its own inputs and the mask of the layout give " +
             number_text(should);
    };
    if (differs(put_out.m, right.m, bounds.m)) return values("largest score", put_out.m, right.m);
    if (differs(put_out.lse, right.lse, bounds.lse)) return values("log-sum-exp", put_out.lse, right.lse);
    return values("output (times a fixed vector)", put_out.out, right.out);
  }

  // What the numbers look like, where they look like something.
  static std::string hint(const AttentionRow& put_out, const AttentionRow& right) {
    const RowBounds bounds = row_bounds(right);
    if (right.keys == 0) return "; no key is visible there";
    if (put_out.lse == kSeesNothing) return "; it saw none of " + std::to_string(right.keys) + " visible keys";
    if (differs(put_out.m, right.m, bounds.m) && std::fabs(right.m) > 100 * bounds.m)
      return "; that is " + number_text(put_out.m / right.m) + " times the score";
    if (differs(put_out.lse, right.lse, bounds.lse) && !differs(put_out.m, right.m, bounds.m)) {
      const double keys = double(right.keys) * std::exp(put_out.lse - right.lse);
      return "; the weight of about " + number_text(std::round(keys)) + " keys where " + std::to_string(right.keys) +
             " are visible";
    }
    if (std::fabs(right.out) > 100 * bounds.out)
      return "; that is " + number_text(put_out.out / right.out) + " times the output";
    return "";
  }

  Finding whole_finding() const {
    const auto place = [&](const Whole& w) { return rows_[w.row->result].where; };
    const Whole& first = first_of(whole_, place);
    const AttentionRow& result = rows_[first.row->result];
    std::vector<int> ranks;
    bool merged = true;  // by ranks that put out every part right
    for (const Whole& w : whole_) {
      ranks.push_back(rows_[w.row->result].rank);
      merged = merged && rows_[w.row->result].method == SoftmaxMethod::kLseMerge && w.row->parts > 1 &&
               w.row->put_out.size() == size_t(w.row->parts);
    }
    const std::vector<int> miscalled = wrong_scatter();
    Finding f = at(merged              ? "softmax.lse_merge"
                   : miscalled.empty() ? "softmax.unexplained"
                                       : "softmax.wrong_reduction",
                   result, miscalled.empty() ? ranks : miscalled, whole_.size());
    const std::string values =
        first.lse ? "log-sum-exp " + number_text(result.lse) + ", its parts give " + number_text(first.right.lse)
                  : "output (times a fixed vector) " + number_text(result.out) + ", its parts give " +
                        number_text(first.right.out);
    f.sentence = ranks_text(f.ranks) +
                 (merged ? " merged attention parts wrongly from " : " put out something else than softmax from ") +
                 place_text(f.where) + " on (" + row_text(result) + ": " + values + missing(*first.row) +
                 (miscalled.empty() ? looks_like(first) : "; their reduce-scatter of outputs is no sum") + "; " +
                 std::to_string(whole_.size()) + " of " + std::to_string(compared_) + " rows that were computed again)";
    for (const auto& [owner, row] : first.row->recomputed)
      f.evidence.push_back(cite(index_.view, "attention_row", row, "part of member " + std::to_string(owner)));
    f.evidence.push_back(cite(index_.view, "attention_row", first.row->result, "the whole row as put out"));
    return f;
  }

  // Ranks whose reduce-scatter in the place of a wrong row of three steps was recorded with another reduction than SUM.
  std::vector<int> wrong_scatter() const {
    std::set<std::pair<int, uint64_t>> calls;
    for (const Whole& w : whole_) {
      const AttentionRow& r = rows_[w.row->result];
      if (r.method == SoftmaxMethod::kGlobalThreeStep) calls.insert({r.rank, call_of(r.where)});
    }
    std::vector<int> ranks;
    for (const CollRow& coll : index_.view.colls) {
      if (calls.empty() || coll.func != CollFunc::kReduceScatter || coll.redop == RedOp::kSum || coll.op == kNoRow)
        continue;
      const OpRow& op = index_.view.ops[coll.op];
      const CommRow* comm = index_.comm(coll.comm);
      if (comm && comm->ranks == index_.cp_members(op.rank) && calls.contains({op.rank, call_of(op.where)}))
        ranks.push_back(op.rank);
    }
    return ranks;
  }

  // Parts that no kernel of a merging rank put out.
  std::string missing(const AttentionCallRow& row) const {
    if (row.put_out.empty() || row.put_out.size() == size_t(row.parts)) return "";
    std::string text;
    for (const auto& [owner, at] : row.recomputed)
      if (!row.put_out.contains(owner)) text += (text.empty() ? "" : ", ") + std::to_string(owner);
    return "; no kernel put out the keys of members " + text;
  }

  std::string looks_like(const Whole& w) const {
    const double value = rows_[w.row->result].out;
    std::vector<double> parts, weights;
    for (const auto& [owner, at] : w.row->recomputed) {
      if (rows_[at].keys == 0) continue;
      parts.push_back(rows_[at].out);
      weights.push_back(std::exp(rows_[at].lse - w.right.lse));
    }
    const auto fits = [&](double candidate) {
      return std::fabs(value - candidate) <= w.right.bounds.out &&
             std::fabs(candidate - w.right.out) > 4 * w.right.bounds.out;
    };
    double sum = 0;
    for (double part : parts) sum += part;
    if (fits(sum / double(parts.size()))) return "; it is the mean of the parts";
    if (fits(sum / double(w.row->parts))) return "; it is the mean over all members, also of those without keys";
    if (fits(sum)) return "; it is the sum of the parts without weights";
    for (size_t i = 0; i < parts.size(); ++i) {
      if (fits(parts[i])) return "; it is one part alone";
      if (fits(w.right.out - weights[i] * parts[i])) return "; one part is missing from it, the weights are right";
      if (fits(w.right.out + weights[i] * parts[i])) return "; one part is in it twice";
    }
    if (!w.lse && std::fabs(w.right.out) > 100 * w.right.bounds.out)
      return "; that is " + number_text(value / w.right.out) + " times what is right";
    return "";
  }

  const TraceIndex& index_;
  const std::vector<AttentionRow>& rows_;
  const std::vector<Finding>& known_;
  AttentionCallRows all_;
  std::vector<Share> shares_;
  std::vector<Whole> whole_;
  std::vector<const AttentionCallRow*> unmerged_;
  std::set<int> with_result_;  // ranks
  size_t compared_ = 0;
};

}  // namespace

DataFindings recomputed_attention(const TraceIndex& index, const std::vector<Finding>& known) {
  return Recomputed(index, known).run();
}

}  // namespace ringscope
