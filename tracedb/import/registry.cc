#include "tracedb/import/registry.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "tracedb/import/jobs.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

class SpoolImporter : public Importer {
 public:
  const char* format() const override { return "ringscope.spool"; }
  const char* description() const override { return "spool folder of a recorded run (DB.spool)"; }
  bool recognises(const std::string& path) const override { return is_spool(path); }
  Result<SourceIdentity> identify(const std::string& path) const override { return spool_identity(path); }
  Result<TraceView> load(const std::string& path) const override {
    auto store = Store::create(":memory:");
    if (!store) return tl::unexpected(store.error());
    if (auto imported = import_spool(path, *store); !imported) return tl::unexpected(imported.error());
    if (auto ok = store->finish(); !ok) return tl::unexpected(ok.error());
    return load_view(*store);
  }
};

class DatabaseImporter : public Importer {
 public:
  const char* format() const override { return "ringscope.db"; }
  const char* description() const override { return "trace database written by ringscope"; }
  bool recognises(const std::string& path) const override {
    char head[72] = {};
    std::ifstream file(path, std::ios::binary);
    if (!file.read(head, sizeof head)) return false;
    const unsigned char id[] = {kApplicationId >> 24 & 255, kApplicationId >> 16 & 255, kApplicationId >> 8 & 255,
                                kApplicationId & 255};
    return std::memcmp(head, "SQLite format 3", 16) == 0 && std::memcmp(head + 68, id, 4) == 0;
  }
  Result<SourceIdentity> identify(const std::string& path) const override { return database_identity(path); }
  Result<TraceView> load(const std::string& path) const override {
    auto store = Store::open(path);
    if (!store) return tl::unexpected(store.error());
    auto view = load_view(*store);
    if (view) view->sources = {as_one_source(path, *view)};
    return view;
  }

 private:
  // Whatever it was made from: its rows are cited by their ids in this file.
  SourceRow as_one_source(const std::string& path, const TraceView& view) const {
    SourceRow source{path, format(), view.ranks.size() == 1 ? view.ranks[0].rank : -1};
    for (const SourceRow& from : view.sources) {
      source.rows += from.rows;
      source.lost += from.lost;
    }
    return source;
  }
};

const SpoolImporter kSpool;
const DatabaseImporter kDatabase;

}  // namespace

const std::vector<const Importer*>& importers() {
  static const std::vector<const Importer*> all = {&kSpool, &kDatabase};
  return all;
}

const Importer* guess_importer(const std::string& path) {
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();  // opening a pipe would wait for its writer
  if (type != std::filesystem::file_type::regular && type != std::filesystem::file_type::directory) return nullptr;
  for (const Importer* importer : importers())
    if (importer->recognises(path)) return importer;
  return nullptr;
}

Status check_readable(const std::string& path) {
  std::error_code error;
  const bool exists = std::filesystem::exists(path, error);
  if (error) return data_error(path + ": cannot read: " + error.message());
  if (!exists) return data_error(path + ": no such file or folder");
  if (access(path.c_str(), R_OK) != 0) return data_error(path + ": cannot read: " + std::strerror(errno));
  return {};
}

Result<TraceView> load_paths(const std::vector<std::string>& paths) {
  for (const std::string& path : paths)
    if (auto recovered = recover_leftover(path); !recovered) return tl::unexpected(recovered.error());
  auto found = discover(paths);
  if (!found) return tl::unexpected(found.error());
  if (found->jobs.size() > 1)
    return usage_error(found->jobs[0].sources[0] + " and " + found->jobs[1].sources[0] + " are two jobs");
  return load_job(*found, 0);
}

}  // namespace ringscope
