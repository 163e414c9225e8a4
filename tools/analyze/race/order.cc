#include "tools/analyze/race/order.h"

#include <algorithm>

namespace ringscope {

RankOrder::RankOrder(const TraceView& view, uint32_t begin, uint32_t end, size_t sync, size_t last_sync) {
  const size_t sync_rows = sync;
  uint32_t last = kNoRow;
  const auto add = [&](uint32_t stream) {
    if (stream == last && !streams_.empty()) return;
    last = stream;
    if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) streams_.push_back(stream);
  };
  for (uint32_t row = begin; row < end; ++row) add(view.ops[row].stream);
  for (; sync < last_sync; ++sync) add(view.syncs[sync].stream);
  const size_t lanes = streams_.size() + 1;
  clocks_.assign(lanes, Clock(lanes, 0));
  lessons_.resize(lanes);
  records_.reserve((last_sync - sync_rows) / 2);
}

void RankOrder::learn(uint32_t lane, const uint32_t* known) {
  Clock& clock = clocks_[lane];
  bool fresh = false;
  for (size_t i = 0; i < clock.size(); ++i) {
    if (known[i] <= clock[i]) continue;
    clock[i] = known[i];
    fresh = true;
  }
  if (!fresh) return;
  lessons_[lane].push_back({clock[lane] + 1, learned_.size()});
  learned_.insert(learned_.end(), clock.begin(), clock.end());
}

void RankOrder::apply(const SyncRow& sync) {
  const uint32_t lane = lane_of(sync.stream);
  switch (sync.kind) {
    case SyncKind::kRecord:
      learn(lane, clocks_[host_lane()].data());
      records_[sync.key] = {lane, clocks_[lane][lane], lessons_[lane].size()};
      break;
    case SyncKind::kWait: {
      if (sync.key == 0) break;
      const auto found = records_.find(sync.key);
      if (found != records_.end()) {
        const Record& record = found->second;
        if (record.lesson > 0)
          scratch_.assign(learned(record.lane, record.lesson), learned(record.lane, record.lesson) + clocks_.size());
        else scratch_.assign(clocks_.size(), 0);
        scratch_[record.lane] = record.clock;
        learn(lane, scratch_.data());
      } else {  // the record is not in the trace: take it as late as possible, so that nothing is made up
        for (size_t other = 0; other < clocks_.size(); ++other)
          if (other != lane) learn(lane, clocks_[other].data());
      }
      break;
    }
    case SyncKind::kHostSync: learn(host_lane(), clocks_[lane].data()); break;
  }
}

uint32_t RankOrder::issue(const OpRow& op) {
  const bool host = op.kind == OpKind::kHostRead;
  const uint32_t lane = host ? host_lane() : lane_of(op.stream);
  if (!host) learn(lane, clocks_[host_lane()].data());
  ++clocks_[lane][lane];
  return lane;
}

Clock RankOrder::at(uint32_t lane, uint32_t clock) const {
  const std::vector<Lesson>& lessons = lessons_[lane];
  const auto after = std::upper_bound(lessons.begin(), lessons.end(), clock,
                                      [](uint32_t value, const Lesson& lesson) { return value < lesson.from; });
  Clock known(clocks_.size(), 0);
  if (after != lessons.begin()) {
    const auto from = learned_.begin() + ptrdiff_t(std::prev(after)->at);
    std::copy(from, from + ptrdiff_t(known.size()), known.begin());
  }
  known[lane] = clock;
  return known;
}

void RankOrder::join(uint32_t lane, const Clock& known) { learn(lane, known.data()); }

uint32_t RankOrder::recorded_on(uint64_t key) const {
  const auto record = records_.find(key);
  return record == records_.end() ? kNoRow : record->second.lane;
}

bool RankOrder::covers(uint64_t key, uint32_t lane, uint32_t clock) const {
  const auto found = records_.find(key);
  if (found == records_.end()) return false;
  const Record& record = found->second;
  if (record.lane == lane) return record.clock >= clock;
  return record.lesson > 0 && learned(record.lane, record.lesson)[lane] >= clock;
}

}  // namespace ringscope
