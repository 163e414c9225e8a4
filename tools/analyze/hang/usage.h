// What calls a job makes under which label. A label is a word of the program for one purpose: the same word with another
// function, type, reduction or root is the odd one, whoever and however many made it. Counts are left out: layers differ.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "tools/analyze/index.h"

namespace ringscope {

class Usage {
 public:
  explicit Usage(const TraceIndex& index);

  // Of the calls under this call's label and pass in groups that lie alike, at other numbers of their groups: how many
  // ask for the same, how many for something else. Both 0 = the label says nothing.
  struct Elsewhere {
    size_t same = 0, other = 0;
  };
  Elsewhere elsewhere(uint32_t op_row) const;

 private:
  uint64_t key(uint32_t op_row) const;
  const TraceIndex& index_;
  struct Counts {
    std::unordered_map<uint64_t, size_t> by_kind;                                  // what was asked for -> calls
    std::unordered_map<uint64_t, std::unordered_map<uint64_t, size_t>> at_number;  // seq -> what -> calls
    size_t all = 0;
  };
  std::unordered_map<uint64_t, Counts> counts_;
};

// Function, type, reduction and root of a call, without its count; never 0.
uint64_t kind_digest(const CollRow& coll);

}  // namespace ringscope
