#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>

#include "tracedb/import/spool/job_ids.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

void remove_database(const std::string& path) {
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) std::remove((path + suffix).c_str());
}

// A finished database gets what the spool has beyond it, in a copy that takes its place.
Result<Store> open_target(const std::string& db_path, const std::string& tmp) {
  if (!exists(db_path)) return Store::create(tmp);
  if (auto check = Store::open(db_path); !check) return check;
  std::error_code error;
  std::filesystem::copy_file(db_path, tmp, error);
  if (error) return data_error(tmp + ": cannot copy " + db_path + ": " + error.message());
  return Store::open_writable(tmp);
}

Status fill(const std::string& spool_dir, const std::string& db_path, const std::string& tmp) {
  auto store = open_target(db_path, tmp);
  if (!store) return tl::unexpected(store.error());
  if (auto source = import_spool(spool_dir, *store); !source) return tl::unexpected(source.error());
  return store->finish();
}

}  // namespace

Status build_database(const std::string& spool_dir, const std::string& db_path) {
  const std::string tmp = db_path + ".tmp";
  remove_database(tmp);  // what an interrupted build left: the spool still has all of it
  Status status = fill(spool_dir, db_path, tmp);
  if (status && std::rename(tmp.c_str(), db_path.c_str()) != 0)
    status = data_error(db_path + ": cannot rename " + tmp + ": " + std::strerror(errno));
  if (!status) remove_database(tmp);
  return status;
}

Status remove_spool(const std::string& spool_dir) {
  std::error_code error;
  std::filesystem::directory_iterator it(spool_dir, error), end;
  if (error) return data_error(spool_dir + ": " + error.message());
  for (; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    const std::string suffix = it->path().extension().string();
    const bool ours = (name.rfind("ring-", 0) == 0 &&
                       (suffix == ".ring" || suffix == ".seg" || suffix == ".def" || suffix == ".new")) ||
                      (name.rfind("process-", 0) == 0 && (suffix == ".names" || suffix == ".new"));
    std::error_code ignored;
    if (ours) std::filesystem::remove(it->path(), ignored);
  }
  if (rmdir(spool_dir.c_str()) == 0) return {};
  return data_error(spool_dir + ": cannot remove: " + std::strerror(errno) +
                    (errno == ENOTEMPTY ? " (it holds files that are not a spool's)" : ""));
}

namespace {

// Does the spool hold records that the database has not seen? Unsure = yes: building says what is wrong.
bool holds_news(const std::string& spool_dir, const std::string& db_path) {
  if (!exists(db_path)) return true;
  auto store = Store::open(db_path);
  if (!store) return true;
  auto drained = store->query("SELECT process, ring, next_seq FROM drain_state");
  auto spool = read_spool(spool_dir);
  if (!drained || !spool) return true;
  std::map<std::pair<uint64_t, uint32_t>, uint64_t> next;
  for (const auto& row : drained->rows)
    next[{spool::token_of(row[0]), uint32_t(std::get<int64_t>(row[1]))}] = uint64_t(std::get<int64_t>(row[2]));
  for (const RingReader& ring : spool->rings) {
    const auto known = next.find({ring.process_token(), ring.ring_id()});
    if (known == next.end() || known->second < ring.end_seq()) return true;
  }
  return false;
}

}  // namespace

Result<bool> recover_leftover(const std::string& db_path) {
  const std::string spool_dir = db_path + ".spool";
  if (!is_spool(spool_dir) || !holds_news(spool_dir, db_path)) return false;
  if (auto ok = build_database(spool_dir, db_path); !ok) return tl::unexpected(ok.error());
  return true;
}

}  // namespace ringscope
