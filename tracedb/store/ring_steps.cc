// Table ring_step: how long the kernels and the transfers of each ring step took, and how much of a transfer no kernel of
// its rank hid. One rank at a time: its kernels sorted by start, with running sums, answer "how much was covered between
// two times" by a binary search.
#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "tracedb/model/trace_view.h"
#include "tracedb/store/derive.h"
#include "tracedb/store/statement.h"

namespace ringscope {
namespace {

using Pass4 = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // step, microbatch, layer, pass
using Key = std::pair<Pass4, int64_t>;                         // and ring step

struct Span {
  std::optional<int64_t> first, last;
  int64_t busy = 0;
  void add(int64_t start, int64_t end) {
    first = first ? std::min(*first, start) : start;
    last = last ? std::max(*last, end) : end;
    busy += end - start;
  }
};

struct RingStep {
  Span kernels, transfers;
};

// The times in which some kernel of the rank ran.
class Covered {
 public:
  void add(int64_t start, int64_t end) { spans_.emplace_back(start, end); }
  void ready() {
    std::sort(spans_.begin(), spans_.end());
    size_t kept = 0;  // spans that overlap become one
    for (size_t i = 1; i < spans_.size(); ++i) {
      if (spans_[i].first <= spans_[kept].second) spans_[kept].second = std::max(spans_[kept].second, spans_[i].second);
      else spans_[++kept] = spans_[i];
    }
    if (!spans_.empty()) spans_.resize(kept + 1);
    sums_.assign(1, 0);
    for (const auto& [start, end] : spans_) sums_.push_back(sums_.back() + (end - start));
  }
  int64_t between(int64_t from, int64_t to) const {
    // Spans are disjoint: their ends are sorted as their starts are.
    const auto ends_by = [](const std::pair<int64_t, int64_t>& span, int64_t t) { return span.second <= t; };
    const auto starts_by = [](const std::pair<int64_t, int64_t>& span, int64_t t) { return span.first < t; };
    const auto begin = std::lower_bound(spans_.begin(), spans_.end(), from, ends_by);
    const auto end = std::lower_bound(begin, spans_.end(), to, starts_by);
    if (begin == end) return 0;
    int64_t sum = sums_[size_t(end - spans_.begin())] - sums_[size_t(begin - spans_.begin())];
    sum -= std::max<int64_t>(0, from - begin->first);
    sum -= std::max<int64_t>(0, std::prev(end)->second - to);
    return sum;
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> spans_;
  std::vector<int64_t> sums_;
};

constexpr int64_t kUnknown = -1;

class RingSteps {
 public:
  explicit RingSteps(Store& store)
      : store_(store),
        insert_(store.handle(),
                "INSERT INTO ring_step(rank, step, microbatch, layer, pass, ring_step, expected_steps, attention_ns, "
                "transfer_ns, exposed_ns, blocking_ns) VALUES(?,?,?,?,?,?,?,?,?,?,?)") {}

  Status derive() {
    if (auto ok = store_.exec("DELETE FROM ring_step"); !ok) return ok;
    if (auto ok = read_plans(); !ok) return ok;
    if (auto ok = read_own_kernels(); !ok) return ok;
    Statement s(store_.handle(),
                "SELECT rank, kind, name, start_ns, end_ns, step, microbatch, layer, pass, ring_step FROM op "
                "WHERE kind IN (0, 2) AND start_ns IS NOT NULL AND end_ns IS NOT NULL ORDER BY id");
    while (s.step() && insert_.ok()) {
      if (s.integer(0) != rank_) finish_rank();
      rank_ = s.integer(0);
      add(s);
    }
    if (auto ok = s.status(store_.path()); !ok) return ok;
    finish_rank();
    return insert_.status(store_.path());
  }

 private:
  static Pass4 pass_of(const Statement& s, int c) {
    return {s.integer(c, kUnknown), s.integer(c + 1, kUnknown), s.integer(c + 2, kUnknown), s.integer(c + 3, kUnknown)};
  }

  Status read_plans() {
    Statement s(store_.handle(), "SELECT step, microbatch, layer, pass, rank, expected_steps FROM ring_plan");
    while (s.step()) {
      int64_t& expected = expected_[s.integer(4)][pass_of(s, 0)];
      expected = std::max(expected, s.integer(5));
    }
    return s.status(store_.path());
  }

  // The recording's own kernels are no attention.
  Status read_own_kernels() {
    Statement s(store_.handle(), "SELECT id FROM string WHERE value LIKE 'statistics.%'");
    while (s.step()) own_.insert(s.integer(0));
    return s.status(store_.path());
  }

  void add(const Statement& s) {
    const bool kernel = s.integer(1) == int64_t(OpKind::kKernel);
    const int64_t start = s.integer(3), end = s.integer(4);
    if (end < start) return;
    if (kernel) covered_.add(start, end);
    if (s.null(9) || (kernel && own_.contains(s.integer(2)))) return;
    RingStep& step = steps_[{pass_of(s, 5), s.integer(9)}];
    (kernel ? step.kernels : step.transfers).add(start, end);
  }

  void finish_rank() {
    covered_.ready();
    for (auto it = steps_.begin(); it != steps_.end() && insert_.ok(); ++it) {
      const auto next = std::next(it);
      const bool same_pass = next != steps_.end() && next->first.first == it->first.first;
      write(it->first, it->second, same_pass ? next->second.kernels.first : std::nullopt);
    }
    covered_ = {};
    steps_.clear();
  }

  void write(const Key& key, const RingStep& step, std::optional<int64_t> next_kernel) {
    const auto& [step_number, microbatch, layer, pass] = key.first;
    const auto bind = [&](int at, std::optional<int64_t> value) {
      value ? insert_.bind(at, *value) : insert_.bind_null(at);
    };
    const auto known = [](int64_t v) { return v == kUnknown ? std::nullopt : std::optional(v); };
    std::optional<int64_t> transfer, exposed, blocking, expected;
    if (step.transfers.first) {
      transfer = *step.transfers.last - *step.transfers.first;
      exposed = *transfer - covered_.between(*step.transfers.first, *step.transfers.last);
    }
    if (next_kernel && step.kernels.last) blocking = std::max<int64_t>(0, *next_kernel - *step.kernels.last);
    const auto& plans = expected_[rank_];
    if (const auto plan = plans.find(key.first); plan != plans.end()) expected = plan->second;
    insert_.bind(1, rank_);
    bind(2, known(step_number));
    bind(3, known(microbatch));
    bind(4, known(layer));
    bind(5, known(pass));
    insert_.bind(6, key.second);
    bind(7, expected);
    bind(8, step.kernels.first ? std::optional(step.kernels.busy) : std::nullopt);
    bind(9, transfer);
    bind(10, exposed);
    bind(11, blocking);
    insert_.step();
    if (insert_.ok()) insert_.reset();
  }

  Store& store_;
  Statement insert_;
  int64_t rank_ = kUnknown;
  Covered covered_;
  std::map<Key, RingStep> steps_;
  std::unordered_set<int64_t> own_;
  std::map<int64_t, std::map<Pass4, int64_t>> expected_;
};

}  // namespace

Status derive_ring_steps(Store& store) { return RingSteps(store).derive(); }

}  // namespace ringscope
