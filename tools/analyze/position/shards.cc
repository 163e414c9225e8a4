#include "tools/analyze/position/shards.h"

#include <algorithm>
#include <tuple>

namespace ringscope {
namespace {

uint64_t sequence_end(const TraceView& view) {
  const auto padded = view.meta.find(meta_key::kPaddedLength);
  const uint64_t length = padded == view.meta.end() ? 0 : std::strtoull(padded->second.c_str(), nullptr, 10);
  return length ? length : uint64_t(INT32_MAX);  // rows are 31-bit in every framework that is imported
}

bool same_rows(const TraceView& view, const PositionBlock& a, const PositionBlock& b) {
  return walk(view, a, b, [](const Stretch& s) { return s.row_a() == s.row_b(); });
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
  std::vector<PositionBlock> blocks;
  for (size_t i = 0; i < runs.size();) {
    const PositionRunRow& head = runs[i];
    PositionBlock block{head.rank, head.sample, head.where, head.role, i, i, 0};
    bool sound = true;
    for (; i < runs.size() && runs[i].rank == head.rank && runs[i].role == head.role && runs[i].sample == head.sample &&
           runs[i].where == head.where;
         ++i) {
      sound = sound && runs[i].count > 0 && uint64_t(runs[i].token_start) + runs[i].count <= end;
      block.tokens += runs[i].count;
    }
    block.last = i;
    if (sound) blocks.push_back(block);
    else ++found.contradictory;
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const PositionBlock& a, const PositionBlock& b) {
    return std::tie(a.where.step, a.sample, a.rank) < std::tie(b.where.step, b.sample, b.rank);
  });
  for (PositionBlock& block : blocks) {
    if (found.samples.empty() || found.samples.back().step != block.where.step ||
        found.samples.back().sample != block.sample)
      found.samples.push_back({block.where.step, block.sample, {}});
    found.samples.back().blocks.push_back(block);
  }
  return found;
}

bool walk(const TraceView& view, const PositionBlock& a, const PositionBlock& b,
          const std::function<bool(const Stretch&)>& visit) {
  if (a.tokens != b.tokens) return false;
  Stretch s;
  size_t i = a.first, j = b.first;
  while (s.offset < a.tokens) {
    s.a = &view.position_runs[i];
    s.b = &view.position_runs[j];
    s.count = std::min(s.a->count - s.in_a, s.b->count - s.in_b);
    if (!visit(s)) return false;
    s.offset += s.count;
    if ((s.in_a += s.count) == s.a->count) s.in_a = 0, ++i;
    if ((s.in_b += s.count) == s.b->count) s.in_b = 0, ++j;
  }
  return true;
}

std::vector<const PositionRunRow*> global_rows(const TraceView& view, const PositionSample& sample) {
  std::vector<const PositionRunRow*> rows;
  for (const PositionBlock& block : sample.blocks)
    for (size_t i = block.first; i < block.last; ++i)
      if (block.role == PositionRole::kData && view.position_runs[i].document != kPaddingDocument)
        rows.push_back(&view.position_runs[i]);
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
    const auto copy = [&](const PositionBlock* other) { return same_rows(index.view, *other, block); };
    const auto found = std::find_if(shards.begin(), shards.end(), copy);
    if (found == shards.end()) shards.push_back(&block);
    else if (block.rank == rank) *found = &block;  // the copy that is asked about stands for its shard
  }
  std::vector<int> owners;
  for (const PositionBlock* shard : shards) owners.push_back(shard->rank);
  return owners;
}

}  // namespace ringscope
