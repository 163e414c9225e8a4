// The position family, of the mask: rows and documents of the tokens, as an attention kernel's mask reads them on a rank,
// against those that the loader dealt. Of keys that came from other ranks too: every rank has its own copy of them.
#include <algorithm>
#include <memory>
#include <optional>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"
#include "tools/analyze/position/explanations.h"

namespace ringscope {
namespace {

class MaskRows {
 public:
  explicit MaskRows(const TraceIndex& index) : index_(index), runs_(index.view.position_runs) {
    // What the mask should hold of a token is its row: so is the loader's side of the comparison.
    for (PositionRunRow& run : runs_)
      if (run.role == PositionRole::kData) run.pos_start = run.token_start, run.stride = 1;
  }

  std::vector<Finding> run() {
    const PositionSamples collected = collect_positions(index_.view);
    for (const PositionSample& sample : collected.samples)
      if (sample.step >= 0) compare(sample);
    if (wrong_.empty()) return {};
    return {finding()};
  }

 private:
  struct Wrong {
    const PositionRunRow* given = nullptr;
    size_t row = 0;         // of `given` in position_runs
    size_t dealt = 0;       // of the loader's run that holds it
    int64_t token = 0;      // the first that differs: global row, as dealt
    int64_t as_row = 0;     // what the mask takes it for
    bool document = false;  // the row is right, the document is not
  };

  void compare(const PositionSample& sample) {
    std::vector<size_t> dealt;  // the loader's runs of every rank, by their first row
    for (const PositionBlock& block : sample.blocks)
      if (block.role == PositionRole::kData) dealt.insert(dealt.end(), block.runs.begin(), block.runs.end());
    std::stable_sort(dealt.begin(), dealt.end(),
                     [&](size_t a, size_t b) { return runs_[a].token_start < runs_[b].token_start; });
    std::shared_ptr<const std::vector<const PositionRunRow*>> global;
    for (const PositionBlock& block : sample.blocks) {
      if (block.role != PositionRole::kMask) continue;
      ++compared_;
      bool wrong_rows = false, found = false;
      for (const size_t run : block.runs)
        if (const auto wrong = differs(run, dealt)) {
          if (!found) wrong_.push_back(*wrong);
          found = true;
          wrong_rows = wrong_rows || !wrong->document;
        }
      if (!wrong_rows) continue;
      if (!global) global = std::make_shared<const std::vector<const PositionRunRow*>>(global_rows(runs_, sample));
      add_shards(sample, block, global);
    }
  }

  // The shards of a mask whose rows are wrong: one behind the other, in the order of the group.
  void add_shards(const PositionSample& sample, const PositionBlock& mask,
                  const std::shared_ptr<const std::vector<const PositionRunRow*>>& global) {
    size_t next = 0;
    for (const int owner : shard_owners(index_, sample, mask.rank)) {
      const PositionBlock* data = sample.data_of(owner);
      if (!data) return lose_shards();
      PositionBlock part{mask.rank, mask.sample, mask.where, mask.role, {}, 0};
      while (next < mask.runs.size() && part.tokens < data->tokens) {
        part.tokens += runs_[mask.runs[next]].count;
        part.runs.push_back(mask.runs[next++]);
      }
      if (!walk(runs_, *data, part, [](const Stretch& s) { return s.row_a() == s.row_b(); })) return lose_shards();
      const bool right =
          walk(runs_, *data, part, [](const Stretch& s) { return s.padding() || s.b_is(s.position_a(), s.a->stride); });
      if (right) continue;
      const auto kept = std::make_shared<PositionBlock>(std::move(part));
      parts_.push_back(kept);
      shards_.push_back({&runs_, &sample, global, data, kept.get()});
    }
  }
  void lose_shards() { named_ = false; }  // the rows cannot be told apart by their owners

  // The part of a run that lies in each of the loader's runs; rows that nobody dealt say nothing.
  std::optional<Wrong> differs(size_t at, const std::vector<size_t>& dealt) const {
    const PositionRunRow& given = runs_[at];
    const int64_t begin = given.token_start, end = begin + given.count;
    auto next = std::upper_bound(dealt.begin(), dealt.end(), begin,
                                 [&](int64_t row, size_t i) { return row < int64_t(runs_[i].token_start); });
    if (next != dealt.begin()) --next;
    for (; next != dealt.end() && int64_t(runs_[*next].token_start) < end; ++next) {
      const PositionRunRow& right = runs_[*next];
      const int64_t from = std::max<int64_t>(begin, right.token_start);
      const int64_t to = std::min<int64_t>(end, int64_t(right.token_start) + right.count);
      if (from >= to) continue;
      const int64_t as_row = first_position(given) + (from - begin) * given.stride;
      if (as_row != from) return Wrong{&given, at, *next, from, as_row, false};
      if (to - from > 1 && given.stride != 1) return Wrong{&given, at, *next, from + 1, as_row + given.stride, false};
      if (given.document != right.document) return Wrong{&given, at, *next, from, as_row, true};
    }
    return std::nullopt;
  }

  static std::string document_text(uint32_t document) {
    return document == kPaddingDocument ? "padding" : "document " + std::to_string(document);
  }

  static bool padding(uint32_t document) { return document == kPaddingDocument; }

  PositionFault explanation() const {
    const bool rows = std::none_of(wrong_.begin(), wrong_.end(), [](const Wrong& w) { return w.document; });
    return rows && named_ && !shards_.empty() ? best_explanation(index_, shards_) : PositionFault::kCount;
  }

  // All that differs is which tokens are padding.
  bool only_padding() const {
    return std::all_of(wrong_.begin(), wrong_.end(), [&](const Wrong& w) {
      return w.document && padding(w.given->document) != padding(runs_[w.dealt].document);
    });
  }

  Finding finding() const {
    const auto first = std::min_element(wrong_.begin(), wrong_.end(), [](const Wrong& a, const Wrong& b) {
      return earlier(a.given->where, b.given->where);
    });
    const PositionFault fault = explanation();
    Finding f = make_finding(only_padding() ? "position.padding_shift" : id_of(fault));
    for (const Wrong& w : wrong_) f.ranks.push_back(w.given->rank);
    sort_unique(f.ranks);
    f.group = index_.cp_group(first->given->rank);
    f.where = first->given->where;
    f.op = "mask";
    f.first_ns = index_.step_ns(first->given->rank, f.where.step);
    f.confidence = confidence({.agree = double(f.ranks.size()), .observations = double(wrong_.size())});
    f.sentence = "the mask of attention on " + ranks_text(f.ranks) +
                 " is not of the tokens that the loader dealt from " + place_text(f.where) + " on" +
                 (fault == PositionFault::kCount ? "" : ": its rows" + text_of(index_, fault, shards_.front())) +
                 " (rank " + std::to_string(first->given->rank) + ", row " + std::to_string(first->token) + ": ";
    if (first->document)
      f.sentence += "dealt as " + document_text(runs_[first->dealt].document) + ", the mask has " +
                    document_text(first->given->document);
    else f.sentence += "the mask takes it for row " + std::to_string(first->as_row);
    f.sentence += "; " + std::to_string(wrong_.size()) + " of " + std::to_string(compared_) + " masks)";
    f.evidence.push_back(cite(index_.view, "position_run", first->dealt, "dealt by the loader"));
    f.evidence.push_back(cite(index_.view, "position_run", first->row, "read by the mask"));
    f.would_raise_confidence =
        "the mask's inputs on that rank, read again: if they are the loader's, the recording is wrong";
    return f;
  }

  const TraceIndex& index_;
  PositionRuns runs_;  // as given, with the loader's rows for their positions
  std::vector<Wrong> wrong_;
  std::vector<std::shared_ptr<const PositionBlock>> parts_;
  std::vector<AppliedShard> shards_;  // of wrong rows
  bool named_ = true;
  size_t compared_ = 0;
};

}  // namespace

std::vector<Finding> mask_rows(const TraceIndex& index) { return MaskRows(index).run(); }

}  // namespace ringscope
