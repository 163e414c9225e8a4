#include "tools/analyze/hang/job_order.h"

#include <algorithm>
#include <tuple>

#include "tools/analyze/hang/calls.h"

namespace ringscope {
namespace {

// The calls of one host thread, and hashes of every stretch of them in constant time (polynomial, modulo 2^64).
struct Program {
  int rank = 0;
  std::vector<uint32_t> ops;
  std::vector<uint64_t> calls, sums, powers;

  Program(const TraceIndex& index, int rank, uint16_t thread) : rank(rank), ops(program(index, rank, thread)) {
    sums.push_back(0);
    powers.push_back(1);
    for (uint32_t row : ops) {
      calls.push_back(program_digest(index, row));
      sums.push_back(sums.back() * kBase + calls.back());
      powers.push_back(powers.back() * kBase);
    }
  }
  // Of the `length` calls in front of `at`; fewer calls than that have no such past.
  bool has_past(size_t at, size_t length) const { return at >= length; }
  uint64_t past(size_t at, size_t length) const { return sums[at] - sums[at - length] * powers[length]; }

 private:
  static constexpr uint64_t kBase = 0x9E3779B97F4A7C15ull | 1;
};

// Longer pasts first: they are rarely equal by chance, but a rank that had run one of the two operations already, or a
// window that has just begun, needs a shorter one.
constexpr size_t kPasts[] = {16, 8, 4, 2, 1};

class Ballot {
 public:
  Ballot(const TraceIndex& index, const std::vector<uint32_t>& heads) : index_(index) {
    for (int rank : index.ranks())
      for (uint16_t thread : host_threads(index, rank)) programs_.emplace_back(index, rank, thread);
    find_heads(heads);
  }

  JobOrder count() {
    const size_t length = common_past();
    if (length == 0) return {};
    const Program& any = programs_[heads_[0].program];
    const uint64_t past = any.past(heads_[0].at, length);
    const size_t turn = occurrence(any, past, length, heads_[0].at);
    std::map<uint64_t, std::vector<int>> now;
    std::map<uint64_t, double> before;
    double times = 0;
    for (const Program& program : programs_) {
      size_t nth = 0;
      for (size_t at = length; at < program.calls.size(); ++at) {
        if (program.past(at, length) != past || !candidates_.contains(program.calls[at])) continue;
        if (nth == turn) now[program.calls[at]].push_back(program.rank);
        if (nth < turn) before[program.calls[at]] += 1;
        if (nth++ >= turn) break;
      }
      times = std::max(times, double(std::min(nth, turn)));
    }
    return decide(now, before, times);
  }

 private:
  struct Head {
    size_t program = 0, at = 0;
  };

  // Of a rank that is blocked on several streams the call that it made first.
  void find_heads(const std::vector<uint32_t>& heads) {
    std::map<int, uint32_t> first;
    for (uint32_t row : heads) {
      candidates_.insert(program_digest(index_, row));
      const auto [at, fresh] = first.try_emplace(index_.view.ops[row].rank, row);
      if (!fresh) at->second = std::min(at->second, row);
    }
    for (size_t i = 0; i < programs_.size(); ++i) {
      const auto row = first.find(programs_[i].rank);
      if (row == first.end()) continue;
      const auto at = std::lower_bound(programs_[i].ops.begin(), programs_[i].ops.end(), row->second);
      if (at != programs_[i].ops.end() && *at == row->second)
        heads_.push_back({i, size_t(at - programs_[i].ops.begin())});
    }
  }

  // The longest past that all ranks of the circle share in front of their heads; 0 = none.
  size_t common_past() const {
    for (size_t length : kPasts) {
      bool equal = !heads_.empty();
      for (const Head& head : heads_)
        equal =
            equal && programs_[head.program].has_past(head.at, length) &&
            programs_[head.program].past(head.at, length) == programs_[heads_[0].program].past(heads_[0].at, length);
      if (equal) return length;
    }
    return 0;
  }

  // How often this past came up, followed by one of the candidates, before `until`.
  size_t occurrence(const Program& program, uint64_t past, size_t length, size_t until) const {
    size_t nth = 0;
    for (size_t at = length; at < until; ++at)
      nth += program.past(at, length) == past && candidates_.contains(program.calls[at]);
    return nth;
  }

  JobOrder decide(const std::map<uint64_t, std::vector<int>>& now, const std::map<uint64_t, double>& before,
                  double times) const {
    std::map<uint64_t, double> counts;
    for (const auto& [call, ranks] : now) counts[call] = double(ranks.size());
    const auto [most, votes, others] = most_votes(counts);
    const auto [usual, past_votes, past_others] = most_votes(before);
    JobOrder order;
    if (votes > others + unseen()) {
      order.first = most;
      order.support = {1, votes, usual != 0 && usual != most ? others : 0, 1 + (usual == most ? times : 0)};
      order.why = number_text(votes) + " of " + number_text(votes + others) + " ranks follow it here";
    } else if (past_votes > past_others) {
      order.first = usual;
      order.support = {1, std::max(1.0, counts[usual]), past_others, times};
      order.why = "the ranks followed it " + number_text(times) + (times == 1 ? " time" : " times") + " before";
    }
    if (order.first != 0)
      for (const auto& [call, ranks] : now)
        if (call != order.first) order.departs.insert(order.departs.end(), ranks.begin(), ranks.end());
    sort_unique(order.departs);
    return order;
  }

  // Ranks that groups name and the trace lacks: they could have voted otherwise.
  double unseen() const {
    std::set<int> ranks;
    double nameless = 0;
    for (const CommRow& comm : index_.view.comms)
      for (int rank : comm.ranks) {
        if (rank < 0) ++nameless;
        else if (!index_.seen(rank)) ranks.insert(rank);
      }
    return double(ranks.size()) + nameless;
  }

  static std::tuple<uint64_t, double, double> most_votes(const std::map<uint64_t, double>& votes) {
    uint64_t best = 0;
    double most = 0, all = 0;
    for (const auto& [call, count] : votes) {
      all += count;
      if (count > most) best = call, most = count;
    }
    return {best, most, all - most};
  }

  const TraceIndex& index_;
  std::vector<Program> programs_;
  std::set<uint64_t> candidates_;
  std::vector<Head> heads_;
};

}  // namespace

JobOrder job_order(const TraceIndex& index, const std::vector<uint32_t>& heads) { return Ballot(index, heads).count(); }

}  // namespace ringscope
