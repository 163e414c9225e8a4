// Site: one thing that a rank's program does at a seam which every operation passes: a call of a communicator, a launch,
// a record or a wait of the device, an upload of the loader, the creation of a communicator. A rank's sites are numbered
// in the order of its host program, which depends on the configuration only; so the same run has the same sites, and
// a mutation can name one before the run. Statistics (launches named "statistics.*") and read-backs are no sites.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tracedb/model/enums.h"
#include "tracedb/model/where.h"

namespace ringscope {

enum class SiteKind : uint8_t { kCall, kKernel, kRecord, kWait, kUpload, kCreate };
const char* name(SiteKind);  // "call", "kernel", "record", "wait", "upload", "create"

inline constexpr uint32_t kNoGroup = 0xFFFFFFFF;

struct Site {
  int rank = 0;
  uint32_t index = 0;  // among the rank's sites, from 0
  SiteKind kind = SiteKind::kKernel;
  const char* name = "";    // a literal: of the call, kernel, event or uploaded tensor; of a creation "comm_init"
  const char* stream = "";  // "compute", "cp", "dp"; "" of uploads and creations
  Where where;
  bool after_host_wait = false;  // the host waited for a stream between the site before and this one

  // calls and creations
  Axis axis = Axis::kUnknown;          // of the communicator
  int group_rank = 0, size = 0;        // of this rank in it; its members
  CollFunc func = CollFunc::kUnknown;  // kSend, kRecv for point to point
  RedOp redop = RedOp::kNone;
  int root = -1, peer = -1;   // group ranks
  uint32_t group = kNoGroup;  // index of the first call of its group call
  DType dtype = DType::kNone;
  int64_t in_count = 0, out_count = 0;  // elements of the tensors handed over

  // kernels: what they write, and whether they read something of the same type and count that they do not write
  struct Output {
    DType dtype = DType::kNone;
    int64_t count = 0;
    bool like_input = false;
  };
  std::vector<Output> outputs;
};

// By rank, by index.
using SiteTable = std::vector<std::vector<Site>>;

}  // namespace ringscope
