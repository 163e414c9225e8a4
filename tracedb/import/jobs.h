// What a person names, sorted: which files are traces, which of them belong to one job, and what is left over.
//
// Two sources that share a process and ranks are one recording in two forms (a database and its spool, a copy): the one
// that holds more is read. Sources of other ranks of one process, or of the same world with communicators that agree,
// are one job. Anything else is another job.
#pragma once

#include <string>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/trace_view.h"
#include "tracedb/store/store.h"

namespace ringscope {

struct Job {
  std::vector<std::string> sources;  // paths
};

// A file that is in no job.
struct Unused {
  std::string path, why;
  bool recognised = false;  // of a known format, but it cannot be read
};

struct Discovery {
  std::vector<Job> jobs;  // by their beginning; at least one
  std::vector<Unused> unused;
  std::vector<std::string> doubles;  // another form of a recording that is in a job
};

// Folders are searched to any depth. kData when a path is not there, or when nothing in all of them can be read: the
// sentence lists the formats that are known.
Result<Discovery> discover(const std::vector<std::string>& paths);

// One job as a view. What discover() left over is in its import_stats, because it may belong to any job:
// input.unrecognised and input.unreadable (error), input.same_recording (info).
Result<TraceView> load_job(const Discovery& found, size_t job);

// Puts the rows of one job into an empty store and calls store.finish(): for SQL over what is no database.
Status import_job(const Job& job, Store& store);

}  // namespace ringscope
