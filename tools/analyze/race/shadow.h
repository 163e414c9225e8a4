// Shadow memory of one buffer: an ordered map of byte intervals, each with its last write and the reads since, one per
// lane (FastTrack epochs). Cost: one map look-up per access for whole-buffer operations.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory_resource>
#include <vector>

#include "tracedb/model/trace_view.h"

namespace ringscope {

struct Epoch {
  uint32_t lane = 0, clock = 0;  // clock 0 = never
  uint32_t op = kNoRow;
};

// Reads since the last write, at most one a lane. A buffer is read by few of them: two fit without an allocation, and
// none is ever dropped.
class Reads {
 public:
  void clear() {
    count_ = 0;
    more_.clear();
  }
  void note(const Epoch& epoch) {
    for (uint32_t i = 0; i < count_; ++i)
      if (few_[i].lane == epoch.lane) {
        few_[i] = epoch;
        return;
      }
    for (Epoch& read : more_)
      if (read.lane == epoch.lane) {
        read = epoch;
        return;
      }
    if (count_ < few_.size()) few_[count_++] = epoch;
    else more_.push_back(epoch);
  }
  template <class Visit>
  void each(Visit visit) const {
    for (uint32_t i = 0; i < count_; ++i) visit(few_[i]);
    for (const Epoch& read : more_) visit(read);
  }

 private:
  std::array<Epoch, 2> few_{};
  uint32_t count_ = 0;
  std::vector<Epoch> more_;
};

struct Cell {
  uint64_t end = 0;
  Epoch write;
  Reads reads;
  Epoch unread;       // a transfer's write that nothing had read when `write` came over it
  bool told = false;  // that these bytes were read although nothing had written them
};

class Shadow {
 public:
  explicit Shadow(std::pmr::memory_resource* pool) : cells_(pool) {}
  Shadow(const Shadow&) = delete;

  // Visits what lies in [begin, end), in order: visit(first byte, last byte + 1, cell or null where nothing was
  // touched yet). note() or overwrite() of the same range follows.
  template <class Visit>
  void each(uint64_t begin, uint64_t end, Visit visit) {
    auto cell = from_ = first_cell(begin);
    uint64_t covered = begin;
    for (; cell != cells_.end() && cell->first < end; ++cell) {
      if (cell->second.end > end) split(cell, end);
      if (cell->first > covered) visit(covered, cell->first, static_cast<Cell*>(nullptr));
      visit(cell->first, cell->second.end, &cell->second);
      covered = cell->second.end;
    }
    if (covered < end) visit(covered, end, static_cast<Cell*>(nullptr));
  }

  // Gives every byte of [begin, end) a cell and each of them to visit(cell).
  template <class Visit>
  void note(uint64_t begin, uint64_t end, Visit visit) {
    auto cell = from_;
    uint64_t covered = begin;
    for (; cell != cells_.end() && cell->first < end; ++cell) {
      if (cell->first > covered) visit(insert(cell, covered, cell->first));
      visit(cell->second);
      covered = cell->second.end;
    }
    if (covered < end) visit(insert(cell, covered, end));
  }

  // One write covers [begin, end): its cells become one. The first of them, if it begins there, keeps its contents.
  Cell& overwrite(uint64_t begin, uint64_t end) {
    auto cell = from_;
    Cell* whole = nullptr;
    while (cell != cells_.end() && cell->first < end) {
      if (cell->first == begin) {
        whole = &cell->second;
        ++cell;
      } else {
        cell = cells_.erase(cell);
      }
    }
    if (!whole) return insert(cell, begin, end);
    whole->end = end;
    return *whole;
  }

  template <class Visit>
  void all(Visit visit) const {
    for (const auto& [begin, cell] : cells_) visit(begin, cell);
  }

 private:
  using Cells = std::pmr::map<uint64_t, Cell>;  // by first byte

  // The first cell that reaches past `begin`; it starts there or later.
  Cells::iterator first_cell(uint64_t begin) {
    auto after = cells_.upper_bound(begin);
    if (after == cells_.begin()) return after;
    auto cell = std::prev(after);
    if (cell->second.end <= begin) return after;
    return cell->first == begin ? cell : split(cell, begin);
  }
  // Cuts a cell in two; returns the second half.
  Cells::iterator split(Cells::iterator cell, uint64_t at) {
    Cell tail = cell->second;
    cell->second.end = at;
    return cells_.emplace_hint(std::next(cell), at, std::move(tail));
  }
  Cell& insert(Cells::iterator before, uint64_t begin, uint64_t end) {
    Cell& cell = cells_.emplace_hint(before, begin, Cell{})->second;
    cell.end = end;
    return cell;
  }

  Cells cells_;
  Cells::iterator from_ = cells_.end();  // of the range that each() visited last
};

}  // namespace ringscope
