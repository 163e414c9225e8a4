#include "tools/cli/trace_input.h"

#include <fmt/format.h>

#include <cstring>

#include "tools/cli/output.h"
#include "tools/cli/recording.h"
#include "tracedb/import/registry.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope::cli {

Result<std::vector<std::string>> ready_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> ready;
  for (const std::string& path : paths) {
    const std::string spool = path + ".spool";
    if (!is_spool(spool)) {
      ready.push_back(path);
      continue;
    }
    if (SpoolLock::held_by_other(spool)) {
      say(fmt::format("{} is being written by a run: this is what it recorded so far", spool));
      ready.push_back(spool);
      continue;
    }
    auto recovered = recover_leftover(path);
    if (recovered && *recovered) say(fmt::format("recovered {} into {}", spool, path));
    if (!recovered)
      say(fmt::format("cannot recover into a database ({}): reading {}", recovered.error().message, spool));
    ready.push_back(recovered ? path : spool);
  }
  return ready;
}

Result<Discovery> find_jobs(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (path.empty()) return usage_error("a path is empty; is a variable not set?");
    if (path == "-") return usage_error("reading a trace from stdin is not in this version: name a file or a folder");
  }
  auto ready = ready_paths(paths);
  if (!ready) return tl::unexpected(ready.error());
  return discover(*ready);
}

Result<Store> open_trace(const std::string& path) {
  auto found = find_jobs({path});
  if (!found) return tl::unexpected(found.error());
  const Job& job = found->jobs[0];
  if (found->jobs.size() > 1)
    return usage_error(fmt::format("{} holds {} jobs: name one of their traces, for example {}", path,
                                   found->jobs.size(), job.sources[0]));
  for (const Unused& file : found->unused) warn(file.path + " is not read: " + file.why);
  const std::string& first = job.sources[0];
  if (job.sources.size() == 1 && std::strcmp(guess_importer(first)->format(), "ringscope.db") == 0)
    return Store::open(first);
  auto store = Store::create(":memory:");
  if (!store) return store;
  if (auto ok = import_job(job, *store); !ok) return tl::unexpected(ok.error());
  return store;
}

}  // namespace ringscope::cli
