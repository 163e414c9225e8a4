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

Result<TraceView> load_trace(const std::vector<std::string>& paths) {
  auto ready = ready_paths(paths);
  if (!ready) return tl::unexpected(ready.error());
  auto view = load_paths(*ready);
  if (!view || !view->ops.empty() || !view->ranks.empty()) return view;
  std::string why;
  for (const ImportStat& stat : view->import_stats)
    if (stat.severity == "error" && stat.count > 0) why = ": " + stat.help;
  return data_error(paths[0] + ": not one record could be read back" + why);
}

Result<Store> open_trace(const std::string& path) {
  auto ready = ready_paths({path});
  if (!ready) return tl::unexpected(ready.error());
  const std::string& from = ready->front();
  if (auto ok = check_readable(from); !ok) return tl::unexpected(ok.error());
  const Importer* importer = guess_importer(from);
  if (!importer) return tl::unexpected(load_paths({from}).error());
  if (std::strcmp(importer->format(), "ringscope.db") == 0) return Store::open(from);
  auto store = Store::create(":memory:");
  if (!store) return store;
  if (auto imported = import_spool(from, *store); !imported) return tl::unexpected(imported.error());
  if (auto ok = store->finish(); !ok) return tl::unexpected(ok.error());
  return store;
}

}  // namespace ringscope::cli
