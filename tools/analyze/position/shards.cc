#include "tools/analyze/position/shards.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace ringscope {
namespace {

uint64_t sequence_end(const TraceView& view) {
  const auto padded = view.meta.find(meta_key::kPaddedLength);
  const uint64_t length = padded == view.meta.end() ? 0 : std::strtoull(padded->second.c_str(), nullptr, 10);
  return length ? length : uint64_t(INT32_MAX);  // rows are 31-bit in every framework that is imported
}

bool same_rows(const PositionRuns& runs, const PositionBlock& a, const PositionBlock& b) {
  return walk(runs, a, b, [](const Stretch& s) { return s.row_a() == s.row_b(); });
}

}  // namespace

const PositionBlock* PositionSample::data_of(int rank) const {
  for (const PositionBlock& block : blocks)
    if (block.rank == rank && block.role == PositionRole::kData) return &block;
  return nullptr;
}

PositionSamples collect_positions(const TraceView& view) {
  const auto& runs = view.position_runs;
  const uint64_t end = sequence_end(view);
  PositionSamples found;
  const auto key = [&](size_t i) {
    return std::tuple(runs[i].where.step, runs[i].sample, runs[i].rank, runs[i].where.pack(), runs[i].role);
  };
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  std::vector<PositionBlock> blocks;
  for (size_t i = 0; i < order.size();) {
    const PositionRunRow& head = runs[order[i]];
    PositionBlock block{head.rank, head.sample, head.where, head.role, {}, 0};
    bool sound = true;
    for (const auto of = key(order[i]); i < order.size() && key(order[i]) == of; ++i) {
      const PositionRunRow& run = runs[order[i]];
      sound = sound && run.count > 0 && uint64_t(run.token_start) + run.count <= end;
      block.tokens += run.count;
      block.runs.push_back(order[i]);
    }
    if (sound) blocks.push_back(std::move(block));
    else ++found.contradictory;
  }
  for (PositionBlock& block : blocks) {
    if (found.samples.empty() || found.samples.back().step != block.where.step ||
        found.samples.back().sample != block.sample)
      found.samples.push_back({block.where.step, block.sample, {}});
    found.samples.back().blocks.push_back(std::move(block));
  }
  return found;
}

bool walk(const PositionRuns& runs, const PositionBlock& a, const PositionBlock& b,
          const std::function<bool(const Stretch&)>& visit) {
  if (a.tokens != b.tokens) return false;
  Stretch s;
  size_t i = 0, j = 0;
  while (s.offset < a.tokens) {
    s.a = &runs[a.runs[i]];
    s.b = &runs[b.runs[j]];
    s.count = std::min(s.a->count - s.in_a, s.b->count - s.in_b);
    if (!visit(s)) return false;
    s.offset += s.count;
    if ((s.in_a += s.count) == s.a->count) s.in_a = 0, ++i;
    if ((s.in_b += s.count) == s.b->count) s.in_b = 0, ++j;
  }
  return true;
}

std::vector<const PositionRunRow*> global_rows(const PositionRuns& runs, const PositionSample& sample) {
  std::vector<const PositionRunRow*> rows;
  for (const PositionBlock& block : sample.blocks)
    for (const size_t i : block.runs)
      if (block.role == PositionRole::kData && runs[i].document != kPaddingDocument) rows.push_back(&runs[i]);
  std::stable_sort(rows.begin(), rows.end(), [](const PositionRunRow* a, const PositionRunRow* b) {
    return std::tuple(a->token_start, -int64_t(a->count)) < std::tuple(b->token_start, -int64_t(b->count));
  });
  uint64_t covered = 0;
  std::erase_if(rows, [&](const PositionRunRow* run) {
    if (run->token_start < covered) return true;
    covered = uint64_t(run->token_start) + run->count;
    return false;
  });
  return rows;
}

std::vector<int> shard_owners(const TraceIndex& index, const PositionSample& sample, int rank) {
  if (std::vector<int> members = index.cp_members(rank); members.size() > 1) return members;
  std::vector<const PositionBlock*> shards;
  for (const PositionBlock& block : sample.blocks) {
    if (block.role != PositionRole::kData) continue;
    const auto copy = [&](const PositionBlock* other) { return same_rows(index.view.position_runs, *other, block); };
    const auto found = std::find_if(shards.begin(), shards.end(), copy);
    if (found == shards.end()) shards.push_back(&block);
    else if (block.rank == rank) *found = &block;  // the copy that is asked about stands for its shard
  }
  std::vector<int> owners;
  for (const PositionBlock* shard : shards) owners.push_back(shard->rank);
  return owners;
}

}  // namespace ringscope
