#include "tracedb/import/registry.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "tracedb/import/merge.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

class SpoolImporter : public Importer {
 public:
  const char* format() const override { return "ringscope.spool"; }
  const char* description() const override { return "spool folder of a recorded run (DB.spool)"; }
  bool recognises(const std::string& path) const override { return is_spool(path); }
  Result<TraceView> load(const std::string& path) const override {
    auto store = Store::create(":memory:");
    if (!store) return tl::unexpected(store.error());
    if (auto imported = import_spool(path, *store); !imported) return tl::unexpected(imported.error());
    if (auto ok = store->finish(); !ok) return tl::unexpected(ok.error());
    return load_view(*store);
  }
};

// A database of ours is loaded as it is; load_paths() knows.
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

Error unknown_format(const std::string& path) {
  std::string known;
  for (const Importer* importer : importers())
    known += std::string(known.empty() ? "" : "; ") + importer->description();
  std::error_code error;
  const auto type = std::filesystem::status(path, error).type();
  const bool empty = type == std::filesystem::file_type::regular && std::filesystem::file_size(path, error) == 0;
  return {ErrorKind::kData, path + (empty ? ": the file is empty" : ": format not recognised") + "; known: " + known};
}

// A path, or what a folder of sources holds, in name order.
Result<std::vector<std::string>> expand(const std::string& path) {
  if (auto ok = check_readable(path); !ok) return tl::unexpected(ok.error());
  std::error_code error;
  if (guess_importer(path)) return std::vector<std::string>{path};
  std::vector<std::string> found;
  if (std::filesystem::is_directory(path, error)) {
    std::filesystem::directory_iterator it(path, error), end;
    for (; !error && it != end; it.increment(error))
      if (guess_importer(it->path().string())) found.push_back(it->path().string());
  }
  if (found.empty()) return tl::unexpected(unknown_format(path));
  std::sort(found.begin(), found.end());
  return found;
}

// Global ranks that a source of ours holds: sources of one job share none.
std::set<int64_t> ranks_in(const std::string& path) {
  std::set<int64_t> ranks;
  if (kDatabase.recognises(path)) {
    auto store = Store::open(path);
    auto rows = store ? store->query("SELECT rank FROM rank") : Result<QueryResult>(QueryResult());
    if (rows)
      for (const auto& row : rows->rows) ranks.insert(std::get<int64_t>(row[0]));
  } else if (auto spool = read_spool(path)) {
    for (const RingReader& ring : spool->rings)
      if (ring.rank() >= 0) ranks.insert(ring.rank());
  }
  return ranks;
}

// One source alone is not read for it.
Status check_one_job(const std::vector<std::string>& files) {
  if (files.size() < 2) return {};
  std::map<int64_t, std::string> holder;
  for (const std::string& file : files)
    for (const int64_t rank : ranks_in(file)) {
      const auto [other, fresh] = holder.try_emplace(rank, file);
      if (!fresh)
        return usage_error(other->second + " and " + file + " both hold rank " + std::to_string(rank) +
                           ": they are two runs; diagnose them one by one");
    }
  return {};
}

}  // namespace

const std::vector<const Importer*>& importers() {
  static const std::vector<const Importer*> all = {&kSpool, &kDatabase};
  return all;
}

const Importer* guess_importer(const std::string& path) {
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
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (auto recovered = recover_leftover(path); !recovered) return tl::unexpected(recovered.error());
    auto found = expand(path);
    if (!found) return tl::unexpected(found.error());
    files.insert(files.end(), found->begin(), found->end());
  }
  if (auto ok = check_one_job(files); !ok) return tl::unexpected(ok.error());
  std::vector<TraceView> views;
  for (const std::string& file : files) {
    auto view = guess_importer(file)->load(file);
    if (!view) return tl::unexpected(view.error());
    views.push_back(std::move(*view));
  }
  return merge_views(std::move(views));
}

}  // namespace ringscope
