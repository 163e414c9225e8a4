// NVTX ranges of our own runtime, visible to any NVTX tool (Nsight Systems, a CUPTI profiler, an injection library).
//
// Domain "ringscope"; every range and mark carries the payload schema "ringscope.place":
//   step, layer, microbatch, ring_step, pass (int32; -1 = unknown), bytes (uint64).
// A tool attaches through NVTX_INJECTION64_PATH before the first call. Without a tool a call costs one load and a
// branch. Built without the NVTX headers, the same functions do nothing (absent.cc).
//
// Threads: any. Ranges nest per thread, and push and pop must come from the same thread.
#pragma once

#include <cstdint>

#include "tracedb/model/where.h"

namespace ringscope::nvtx {

// True when a tool listens to our domain. The first call decides for the life of the process.
bool available();

// `name` is copied by the tool during the call. `where` is Where::pack(); bytes is what the range moves or touches.
void range_push(const char* name, uint64_t where, uint64_t bytes);
void range_pop();
void mark(const char* name, uint64_t where, uint64_t bytes);

// A range over a scope.
class Range {
 public:
  Range(const char* name, const Where& where, uint64_t bytes = 0) { range_push(name, where.pack(), bytes); }
  ~Range() { range_pop(); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace ringscope::nvtx
