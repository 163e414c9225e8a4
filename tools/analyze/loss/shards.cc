#include "tools/analyze/loss/shards.h"

#include <set>
#include <tuple>
#include <vector>

namespace ringscope {
namespace {

std::map<int, int> shards_by_rows(const TraceIndex& index) {
  std::map<int, int> shards;
  std::map<int, uint64_t> tokens;
  std::map<std::vector<DealtRun>, int> contents;
  for (const auto& [rank, runs] : index.dealt) {
    shards[rank] = contents.try_emplace(runs, int(contents.size())).first->second;
    for (const DealtRun& run : runs) tokens[rank] += run.count;
  }
  for (const RankRow& rank : index.view.ranks)
    if (!shards.contains(rank.rank)) return {};
  // Who counted more tokens than it holds rows holds more than was recorded.
  for (const TrainStepRow& row : index.view.train_steps)
    if (const auto held = tokens.find(row.rank); held != tokens.end() && row.valid_tokens > held->second) return {};
  return shards;
}

std::map<int, int> shards_by_place(const TraceIndex& index) {
  const auto& ranks = index.view.ranks;
  std::map<int, int> shards;
  std::map<std::pair<int, int>, int> places;  // (dp, cp)
  std::set<std::tuple<int, int, int, int>> all;
  for (const RankRow& rank : ranks) {
    shards[rank.rank] = places.try_emplace({rank.dp, rank.cp}, int(places.size())).first->second;
    all.insert({rank.tp, rank.cp, rank.dp, rank.pp});
  }
  return all.size() == ranks.size() ? shards : std::map<int, int>();
}

}  // namespace

std::map<int, int> shards_of_ranks(const TraceIndex& index) {
  std::map<int, int> shards = shards_by_rows(index);
  return shards.empty() ? shards_by_place(index) : shards;
}

}  // namespace ringscope
