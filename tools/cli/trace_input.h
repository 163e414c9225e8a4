// A trace as people name it: a database, a spool that a killed or running job left beside it, or foreign files.
#pragma once

#include <string>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/import/jobs.h"
#include "tracedb/store/store.h"

namespace ringscope::cli {

// Recovers "PATH.spool" into PATH when it holds more than PATH does. Where that cannot be (the run still writes, the
// folder is read-only) the spool itself takes the path's place. A complete database is never written to.
Result<std::vector<std::string>> ready_paths(const std::vector<std::string>& paths);

// ready_paths, then what discover() makes of them.
Result<Discovery> find_jobs(const std::vector<std::string>& paths);

// For SQL: a database read-only; anything else imported into memory. kUsage when the path holds several jobs.
Result<Store> open_trace(const std::string& path);

}  // namespace ringscope::cli
