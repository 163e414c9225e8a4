// ring.stale_block, and softmax.unexplained where a block is nobody's: what an attention call on one rank was given as the
// block of another must be the bytes that the owner itself used in that call. A block that is not, but is one of another
// owner, layer or microbatch, was taken from a wrong place or at a wrong time.
//
// Of two copies that disagree nobody is accused: what a rank used wrongly its neighbour may have sent. Only where it
// passed the right block on to the next rank of the ring the mistake is its own.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "tools/analyze/confidence.h"
#include "tools/analyze/numeric/numeric.h"

namespace ringscope {
namespace {

class Blocks {
 public:
  explicit Blocks(const TraceIndex& index) : index_(index), rows_(index.view.attention_rows) {}

  std::vector<Finding> run() {
    note_owners();
    for (size_t i = 0; i < rows_.size(); ++i) check(i);
    if (wrong_.empty()) return {};
    return {finding()};
  }

 private:
  using Place = std::tuple<uint64_t, SoftmaxMethod, int>;  // call, method, rank of the owner
  struct Wrong {
    size_t row, owner;  // rows of attention_rows
  };

  const std::vector<int>& members(int rank) {
    const auto [it, fresh] = members_.try_emplace(rank);
    if (fresh) it->second = index_.cp_members(rank);
    return it->second;
  }
  // The global rank that owns the block; -1 = not known.
  int owner(const AttentionRow& r) {
    const std::vector<int>& group = members(r.rank);
    return r.block_owner >= 0 && size_t(r.block_owner) < group.size() ? group[size_t(r.block_owner)] : -1;
  }
  static Place place(const AttentionRow& r, int owner) {
    Where where = r.where;
    where.ring_step = -1;
    return {where.pack(), r.method, owner};
  }
  // Without its place a block can be compared with nothing.
  static bool has_block(const AttentionRow& r) {
    return r.maker == RowMaker::kRecomputed && r.checksum && r.where.step >= 0 && r.where.layer >= 0;
  }

  void note_owners() {
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (!has_block(rows_[i]) || owner(rows_[i]) != rows_[i].rank) continue;
      const auto [own, fresh] = owners_.try_emplace(place(rows_[i], rows_[i].rank), i);
      if (!fresh && rows_[own->second].checksum != rows_[i].checksum) own->second = SIZE_MAX;  // two calls in one place
      by_checksum_.try_emplace(rows_[i].checksum, i);
    }
  }

  void check(size_t i) {
    const AttentionRow& r = rows_[i];
    if (!has_block(r)) return;
    const int from = owner(r);
    if (from < 0 || from == r.rank) return;
    const auto own = owners_.find(place(r, from));
    if (own == owners_.end() || own->second == SIZE_MAX) return;
    ++compared_;
    if (rows_[own->second].checksum != r.checksum) wrong_.push_back({i, own->second});
    else right_.insert({place(r, from), r.rank});
  }

  // Did the rank hand the right block on? Of the last hop nobody knows.
  bool passed_on(const Wrong& w) {
    const AttentionRow& r = rows_[w.row];
    const std::vector<int>& group = members(r.rank);
    const auto self = std::find(group.begin(), group.end(), r.rank);
    if (r.method != SoftmaxMethod::kLseMerge || self == group.end()) return false;
    const int next = self + 1 == group.end() ? group.front() : *(self + 1);
    return right_.contains({place(r, rows_[w.owner].rank), next});
  }

  // Whose block it is; SIZE_MAX = nobody's that was recorded.
  size_t source(const Wrong& w) const {
    const auto found = by_checksum_.find(rows_[w.row].checksum);
    return found == by_checksum_.end() ? SIZE_MAX : found->second;
  }

  Finding finding() {
    const auto first = std::min_element(wrong_.begin(), wrong_.end(), [&](const Wrong& a, const Wrong& b) {
      const Where &x = rows_[a.row].where, &y = rows_[b.row].where;
      if (earlier(x, y) || earlier(y, x)) return earlier(x, y);
      return x.ring_step < y.ring_step;
    });
    const AttentionRow& shown = rows_[first->row];
    const size_t from = source(*first);
    Finding f = make_finding(from == SIZE_MAX ? "softmax.unexplained" : "ring.stale_block");
    std::vector<int> users;  // of the first call, in its first ring step
    bool all = true;
    for (const Wrong& w : wrong_) {
      if (!(rows_[w.row].where == shown.where)) continue;
      users.push_back(rows_[w.row].rank);
      all = all && passed_on(w);
    }
    sort_unique(users);
    const std::string who = ranks_text(users);
    if (all) f.ranks = users;
    f.op = "block";
    f.group = index_.cp_group(shown.rank);
    f.where = shown.where;
    f.where.ring_step = -1;  // another hop of the call may be what changed it
    f.first_ns = index_.step_ns(shown.rank, shown.where.step);
    f.confidence =
        confidence({.agree = double(std::max<size_t>(1, f.ranks.size())), .observations = double(wrong_.size())});
    const std::string block = shown.method == SoftmaxMethod::kGlobalThreeStep ? "queries" : "keys and values";
    f.sentence = who + " computed attention with " + block + " that are not those of rank " +
                 std::to_string(rows_[first->owner].rank) + " as the call says, at " + place_text(shown.where);
    if (from == SIZE_MAX) f.sentence += "; no rank is known to have made them, so that they changed on their way";
    else
      f.sentence +=
          "; they are those of rank " + std::to_string(rows_[from].rank) + " of " + place_text(rows_[from].where);
    f.sentence +=
        " (" + std::to_string(wrong_.size()) + " of " + std::to_string(compared_) + " blocks that were compared)";
    if (!all) f.sentence += "; who sent them or who took them made the mistake";
    f.would_raise_confidence = "checksums of the block where it was sent and where it was received";
    f.evidence.push_back(cite(index_.view, "attention_row", first->row, "the block as used"));
    f.evidence.push_back(cite(index_.view, "attention_row", first->owner, "the block as its owner used it"));
    if (from != SIZE_MAX) f.evidence.push_back(cite(index_.view, "attention_row", from, "the same bytes"));
    return f;
  }

  const TraceIndex& index_;
  const std::vector<AttentionRow>& rows_;
  std::unordered_map<int, std::vector<int>> members_;
  std::map<Place, size_t> owners_;
  std::unordered_map<uint64_t, size_t> by_checksum_;
  std::set<std::pair<Place, int>> right_;  // and the rank that used it
  std::vector<Wrong> wrong_;
  size_t compared_ = 0;
};

}  // namespace

std::vector<Finding> travelling_blocks(const TraceIndex& index) { return Blocks(index).run(); }

}  // namespace ringscope
