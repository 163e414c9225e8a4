// launch: starts the ranks of a job as tasks of one sched, and writes how each one ended. A rank does not write
// its own end: a rank that is stuck cannot.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/layout/layout.h"
#include "runtime/sched/sched.h"
#include "tracedb/model/where.h"

namespace ringscope {

// What a rank's host program returns.
struct RankEnd {
  int status = 0;  // 0 = ran to its end; > 0 = exit code; -1 = stopped with the run
  std::string reason;
  Where where;            // the last place
  bool witnessed = true;  // false: nobody was there to write it (a killed process)
};

struct LaunchHooks {
  std::function<void(const StallSnapshot&)> on_stall;
  std::function<bool()> interrupted;
  int64_t stall_timeout_ns = 10'000'000'000;
};

// Runs body(rank) for every rank of the mesh and returns when all have ended. Records (when the recorder is on):
// RankRecord at the start of each rank, RankExitRecord for each at its end or, for ranks that are still blocked
// when a stall is declared, at that moment (status -2); meta "outcome". Thread rule: called from the main thread.
RunEnd launch_ranks(Sched& sched, const Mesh& mesh, const std::function<RankEnd(int rank)>& body,
                    const LaunchHooks& hooks);

}  // namespace ringscope
