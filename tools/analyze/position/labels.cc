// loss.label_shift, loss.padding_counted and loss.unexplained from tokens and labels: what a rank's kernels read is what
// its loader made, the label of a row is the token of the row after it, wherever that lies, and padding has none. Rows
// without a counted label, and the last of a document, are bound to nothing. One root of all ranks that show it.
//
// That labels are the next tokens is the job's own rule: it must hold in most runs of rows, or none is held to it.
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
    if (!padding_.empty()) out.findings.push_back(finding("loss.padding_counted", padding_));
    if (!shifted_.empty()) out.findings.push_back(finding("loss.label_shift", shifted_));
    if (!other_.empty()) out.findings.push_back(finding("loss.unexplained", other_));
    count_contradictions(out, "loss.contradictory_labels", contradictory_,
                         "runs of labels that count more of them than there are");
    return out;
  }

 private:
  using Key = std::tuple<int, uint32_t, int, uint64_t, uint32_t>;  // step, sample, rank, place, first row
  struct Wrong {
    size_t row;
    std::string what;
    size_t beside = SIZE_MAX;  // what it contradicts
  };

  void collect() {
    for (size_t i = 0; i < runs_.size(); ++i) {
      const LabelRunRow& r = runs_[i];
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
      if (r.same == r.counted) return Wrong{at, "every label is the token of its own row", SIZE_MAX};
      if (r.pairs > 1 && r.second + 1 >= r.pairs) return Wrong{at, "every label is the token two rows on", SIZE_MAX};
      return Wrong{
          at,
          std::to_string(r.pairs - r.next) + " of " + std::to_string(r.pairs) + " labels are not the token after them",
          SIZE_MAX};
    }
    const size_t next = behind(r);
    if (next == SIZE_MAX || r.last_label < 0 || r.last_label == runs_[next].first_token) return std::nullopt;
    const int other = runs_[next].rank;
    return Wrong{at,
                 "the label of its last row " + std::to_string(r.token_start + r.count - 1) + " is " +
                     std::to_string(r.last_label) + ", the token after it is " +
                     std::to_string(runs_[next].first_token) +
                     (other == r.rank ? "" : " and lies on rank " + std::to_string(other)),
                 next};
  }

  void check_made(size_t at) {
    const LabelRunRow& r = runs_[at];
    if (padding(r)) {
      if (r.counted) padding_.push_back({at, std::to_string(r.counted) + " padded rows have a label", SIZE_MAX});
      return;
    }
    ++checked_;
    if (auto wrong = shift(at)) shifted_.push_back(*wrong);
  }

  void check_applied(const Key& key, size_t at) {
    const auto made = made_.find(key);
    if (made == made_.end()) return;
    const LabelRunRow &given = runs_[at], &right = runs_[made->second];
    if (given.count != right.count) return;
    if (given.tokens_sum != right.tokens_sum) {
      other_.push_back({at, "the kernels were given other tokens than the loader made", made->second});
      return;
    }
    if (given.labels_sum == right.labels_sum) return;
    if (padding(given) && given.counted > right.counted) {
      padding_.push_back({at, std::to_string(given.counted) + " padded rows have a label", made->second});
      return;
    }
    if (given.counted && given.same == given.counted) {
      shifted_.push_back({at, "every label is the token of its own row", made->second});
    } else if (given.pairs > 1 && given.second + 1 >= given.pairs && given.next < given.pairs) {
      shifted_.push_back({at, "every label is the token two rows on", made->second});
    } else if (given.counted == right.counted && given.pairs && given.next == given.pairs) {
      shifted_.push_back(
          {at,
           "the last label is " + std::to_string(given.last_label) + ", made was " + std::to_string(right.last_label),
           made->second});
    } else {
      other_.push_back({at, "the kernels were given other labels than the loader made" + whose(given), made->second});
    }
  }

  std::string whose(const LabelRunRow& given) const {
    const auto found = by_labels_.find({given.where.step, given.labels_sum});
    if (found == by_labels_.end()) return "";
    const LabelRunRow& other = runs_[found->second];
    return ": those of rank " + std::to_string(other.rank) + ", rows from " + std::to_string(other.token_start);
  }

  void drop_another_convention() {
    size_t made = 0;
    for (const Wrong& w : shifted_) made += runs_[w.row].role == LabelRole::kData;
    if (made * 2 <= checked_) return;
    std::erase_if(shifted_, [&](const Wrong& w) { return runs_[w.row].role == LabelRole::kData; });
  }

  Finding finding(std::string_view id, const std::vector<Wrong>& all) const {
    const auto first = std::min_element(all.begin(), all.end(), [&](const Wrong& a, const Wrong& b) {
      return earlier(runs_[a.row].where, runs_[b.row].where);
    });
    const LabelRunRow& shown = runs_[first->row];
    Finding f = make_finding(id);
    for (const Wrong& w : all) f.ranks.push_back(runs_[w.row].rank);
    sort_unique(f.ranks);
    f.where = shown.where;
    f.first_ns = index_.step_ns(shown.rank, f.where.step);
    f.confidence = confidence({.agree = double(f.ranks.size()), .observations = double(all.size())});
    f.sentence = ranks_text(f.ranks) + title(id) + place_text(f.where) + " on (rank " + std::to_string(shown.rank) +
                 ", rows " + std::to_string(shown.token_start) + "-" +
                 std::to_string(shown.token_start + shown.count - 1) + " of sample " + std::to_string(shown.sample) +
                 ": " + first->what + "; " + std::to_string(all.size()) + " runs of rows)";
    f.evidence.push_back(cite(index_.view, "label_run", first->row,
                              shown.role == LabelRole::kData ? "made by the loader" : "read by the kernels"));
    if (first->beside != SIZE_MAX)
      f.evidence.push_back(cite(index_.view, "label_run", first->beside, "what it must agree with"));
    f.would_raise_confidence = "the tokens of the sample in full, and how its labels are meant to follow from them";
    return f;
  }

  static const char* title(std::string_view id) {
    if (id == "loss.padding_counted") return " counted padded positions in the loss from ";
    if (id == "loss.label_shift") return " trained on labels that are not the token after them from ";
    return " computed the loss of other tokens or labels than the loader made from ";
  }

  const TraceIndex& index_;
  const std::vector<LabelRunRow>& runs_;
  std::map<Key, size_t> made_, applied_;
  std::map<std::tuple<int, uint32_t, uint32_t>, size_t> first_tokens_;  // step, sample, first row
  std::map<std::pair<int, uint64_t>, size_t> by_labels_;                // step, checksum
  std::vector<Wrong> padding_, shifted_, other_;
  size_t checked_ = 0;
  int64_t contradictory_ = 0;
};

}  // namespace

DataFindings labels(const TraceIndex& index) { return Labels(index).run(); }

}  // namespace ringscope
