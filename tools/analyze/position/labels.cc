// loss.label_shift, loss.padding_counted and loss.unexplained from tokens and labels: what a rank's kernels read is what
// its loader made, the label of a row is the token of the row after it, wherever that lies, and padding has none. Rows
// without a counted label, and the last of a document, are bound to nothing. One root of all ranks that show it: the
// name that all of them bear, or none.
//
// That labels are the next tokens is the job's own rule: it must hold for most rows, or none is held to it (some models
// shift labels themselves, some learn something else). Labels two rows on are nobody's rule.
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/position/shards.h"

namespace ringscope {
namespace {

class Labels {
 public:
  explicit Labels(const TraceIndex& index) : index_(index), runs_(index.view.label_runs) {}

  DataFindings run() {
    collect();
    DataFindings out;
    for (const auto& [key, at] : made_) check_made(at);
    for (const auto& [key, at] : applied_) check_applied(key, at);
    drop_another_convention();
    // What the kernels read follows from what was made, and has its own say only where it differs from that.
    for (const std::vector<Wrong>* all : {&made_wrong_, &applied_wrong_})
      if (!all->empty()) out.findings.push_back(finding(*all));
    count_contradictions(out, "loss.contradictory_labels", contradictory_,
                         "runs of labels that count more of them than there are");
    return out;
  }

 private:
  using Key = std::tuple<int, uint32_t, int, uint64_t, uint32_t>;  // step, sample, rank, place, first row
  enum Kind { kShift, kPadding, kOther, kTokens };
  struct Wrong {
    size_t row;
    Kind kind;
    std::string what;
    size_t beside = SIZE_MAX;  // what it contradicts
  };

  void collect() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const LabelRunRow& r = runs_[i];
      if (r.where.step < 0) continue;  // which tokens lie behind it is not known
      if (r.count == 0 || r.counted > r.count || r.pairs > r.counted || r.next > r.pairs || r.second > r.pairs ||
          r.same > r.counted) {
        ++contradictory_;
        continue;
      }
      auto& of = r.role == LabelRole::kData ? made_ : applied_;
      of.try_emplace(Key(r.where.step, r.sample, r.rank, r.where.pack(), r.token_start), i);
      if (r.role != LabelRole::kData) continue;
      first_tokens_.try_emplace({r.where.step, r.sample, r.token_start}, i);
      by_labels_.try_emplace({r.where.step, r.labels_sum}, i);
    }
  }

  static bool padding(const LabelRunRow& r) { return r.document == kPaddingDocument; }

  // The run of the same document that begins behind this one, on whatever rank; SIZE_MAX = not recorded.
  size_t behind(const LabelRunRow& r) const {
    const auto next = first_tokens_.find({r.where.step, r.sample, r.token_start + r.count});
    return next != first_tokens_.end() && runs_[next->second].document == r.document ? next->second : SIZE_MAX;
  }

  // What is wrong with the labels of a run beside its own tokens; nothing if they follow from them.
  std::optional<Wrong> shift(size_t at) {
    const LabelRunRow& r = runs_[at];
    if (r.next < r.pairs) {
      if (r.same == r.counted) return Wrong{at, kShift, "every label is the token of its own row", SIZE_MAX};
      if (r.pairs > 1 && r.second + 1 >= r.pairs)
        return Wrong{at, kShift, "every label is the token two rows on", SIZE_MAX};
      return Wrong{
          at, kShift,
          std::to_string(r.pairs - r.next) + " of " + std::to_string(r.pairs) + " labels are not the token after them",
          SIZE_MAX};
    }
    const size_t next = behind(r);
    if (next == SIZE_MAX || r.last_label < 0 || r.last_label == runs_[next].first_token) return std::nullopt;
    const int other = runs_[next].rank;
    return Wrong{at, kShift,
                 "the label of its last row " + std::to_string(r.token_start + r.count - 1) + " is " +
                     std::to_string(r.last_label) + ", the token after it is " +
                     std::to_string(runs_[next].first_token) +
                     (other == r.rank ? "" : " and lies on rank " + std::to_string(other)),
                 next};
  }

  void check_made(size_t at) {
    const LabelRunRow& r = runs_[at];
    if (padding(r)) {
      if (r.counted)
        made_wrong_.push_back({at, kPadding, std::to_string(r.counted) + " padded rows have a label", SIZE_MAX});
      return;
    }
    if (auto wrong = shift(at)) made_wrong_.push_back(*wrong);
  }

  void check_applied(const Key& key, size_t at) {
    const auto made = made_.find(key);
    if (made == made_.end()) return;
    const LabelRunRow &given = runs_[at], &right = runs_[made->second];
    if (given.count != right.count) return;
    const auto wrong = [&](Kind kind, std::string what) {
      applied_wrong_.push_back({at, kind, std::move(what), made->second});
    };
    if (given.tokens_sum != right.tokens_sum) return wrong(kTokens, "the kernels were given other tokens than it made");
    if (given.labels_sum == right.labels_sum) return;
    if (padding(given)) return wrong(kPadding, std::to_string(given.counted) + " padded rows have a label");
    if (given.counted && given.same == given.counted) return wrong(kShift, "every label is the token of its own row");
    if (given.pairs > 1 && given.second + 1 >= given.pairs && given.next < given.pairs)
      return wrong(kShift, "every label is the token two rows on");
    if (given.counted == right.counted && given.pairs && given.next == given.pairs)
      return wrong(kShift, "the last label is " + std::to_string(given.last_label) + ", made was " +
                               std::to_string(right.last_label));
    // The tokens are right, so a label that is not the token after it is what it is, whoever's it should be.
    if (right.next == right.pairs && given.next < given.pairs)
      return wrong(kShift, std::to_string(given.pairs - given.next) + " of " + std::to_string(given.pairs) +
                               " labels are not the token after them" + whose(given));
    wrong(kOther, "the kernels were given other labels than it made" + whose(given));
  }

  std::string whose(const LabelRunRow& given) const {
    const auto found = by_labels_.find({given.where.step, given.labels_sum});
    if (found == by_labels_.end()) return "";
    const LabelRunRow& other = runs_[found->second];
    return ": those of rank " + std::to_string(other.rank) + ", rows from " + std::to_string(other.token_start);
  }

  void drop_another_convention() {
    uint64_t pairs = 0, next = 0, second = 0;
    for (const auto& [key, at] : made_)
      if (const LabelRunRow& r = runs_[at]; !padding(r)) pairs += r.pairs, next += r.next, second += r.second;
    if (next * 2 < pairs && second * 2 < pairs)
      std::erase_if(made_wrong_, [](const Wrong& w) { return w.kind == kShift; });
  }

  // The tokens are right and some labels are not those after them: so are those that could not be checked.
  static Kind name_of(const std::vector<Wrong>& all) {
    const auto any = [&](Kind kind) {
      return std::any_of(all.begin(), all.end(), [&](const Wrong& w) { return w.kind == kind; });
    };
    if (any(kTokens)) return kOther;
    if (any(kShift)) return kShift;
    return any(kOther) ? kOther : kPadding;
  }

  Finding finding(const std::vector<Wrong>& all) const {
    const auto first = std::min_element(all.begin(), all.end(), [&](const Wrong& a, const Wrong& b) {
      return earlier(runs_[a.row].where, runs_[b.row].where);
    });
    const Kind kind = name_of(all);
    constexpr const char* kIds[] = {"loss.label_shift", "loss.padding_counted", "loss.unexplained"};
    constexpr const char* kTitles[] = {" trained on labels that are not the token after them from ",
                                       " counted padded positions in the loss from ",
                                       " computed the loss of other tokens or labels than the loader made from "};
    const LabelRunRow& shown = runs_[first->row];
    Finding f = make_finding(kIds[kind]);
    for (const Wrong& w : all) f.ranks.push_back(runs_[w.row].rank);
    sort_unique(f.ranks);
    f.where = shown.where;
    f.op = "labels";
    f.first_ns = index_.step_ns(shown.rank, f.where.step);
    f.confidence = confidence({.agree = double(f.ranks.size()), .observations = double(all.size())});
    f.sentence = ranks_text(f.ranks) + kTitles[kind] + place_text(f.where) + " on (rank " + std::to_string(shown.rank) +
                 ", rows " + std::to_string(shown.token_start) + "-" +
                 std::to_string(shown.token_start + shown.count - 1) + " of sample " + std::to_string(shown.sample) +
                 ": " + first->what + "; " + std::to_string(all.size()) + (all.size() == 1 ? " run" : " runs") +
                 " of rows)";
    f.evidence.push_back(cite(index_.view, "label_run", first->row,
                              shown.role == LabelRole::kData ? "made by the loader" : "read by the kernels"));
    if (first->beside != SIZE_MAX)
      f.evidence.push_back(cite(index_.view, "label_run", first->beside, "what it must agree with"));
    f.would_raise_confidence = "the tokens of the sample in full, and how its labels are meant to follow from them";
    return f;
  }

  const TraceIndex& index_;
  const std::vector<LabelRunRow>& runs_;
  std::map<Key, size_t> made_, applied_;
  std::map<std::tuple<int, uint32_t, uint32_t>, size_t> first_tokens_;  // step, sample, first row
  std::map<std::pair<int, uint64_t>, size_t> by_labels_;                // step, checksum
  std::vector<Wrong> made_wrong_, applied_wrong_;
  int64_t contradictory_ = 0;
};

}  // namespace

DataFindings labels(const TraceIndex& index) { return Labels(index).run(); }

}  // namespace ringscope
