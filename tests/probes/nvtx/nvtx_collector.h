// What the test's NVTX collector saw in domain "ringscope". The collector is a library of its own, loaded by NVTX
// through NVTX_INJECTION64_PATH as any tool is; the test reads its counters through dlsym("nvtx_collector_seen").
//
// With NVTX_COLLECTOR_OUT=FILE the counters are written there when the process ends: for a program that does
// not know the collector.
#pragma once

#include <cstdint>

struct NvtxCollectorSeen {
  int64_t pushes, pops, marks;
  int64_t payloads;  // pushes and marks whose place could be decoded by the registered schema
  int64_t schemas;   // registered in our domain
  uint64_t bytes;    // sum over payloads
  int32_t last_step, last_layer, last_ring_step, last_pass;
  char last_name[64];
};
