// What tells whether two sources belong together, read without loading them.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/enums.h"

namespace ringscope {

struct SourceIdentity {
  std::set<std::string> processes;  // a recording in another form names the same ones
  std::set<int> ranks;              // global, that it holds operations of; without any, that it names
  std::set<std::pair<Axis, std::vector<int>>> groups;  // communicators of which all members are known, by group rank
  int64_t world = 0;                                   // ranks of the whole job, 0 = unknown
  std::array<int64_t, 4> sizes{};                      // of the axes tp, cp, dp, pp; 0 = unknown
  int64_t start_ns = 0;                                // when its first thread began
  int64_t rows = 0;                                    // records that can be read back
};

// kData when the source is of that format and cannot be read.
Result<SourceIdentity> spool_identity(const std::string& path);
Result<SourceIdentity> database_identity(const std::string& path);

}  // namespace ringscope
