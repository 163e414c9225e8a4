#include "tools/cli/recording.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "probes/recorder/emit.h"
#include "tracedb/import/registry.h"
#include "tracedb/import/spool/spool_import.h"
#include "tracedb/spool/spool.h"

namespace ringscope::cli {
namespace {

bool exists(const std::string& path) {
  struct stat info;
  return lstat(path.c_str(), &info) == 0;
}

int open_folder(const std::string& dir) { return ::open(dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }

Error already_there(const std::string& path) {
  return {ErrorKind::kData, path + " exists already: choose another name, or --force to replace it"};
}

// Only a trace is ever replaced.
Status remove_old(const std::string& database, const std::string& spool) {
  if (exists(spool)) {
    if (SpoolLock::held_by_other(spool)) return data_error(spool + " is being written by another run");
    if (auto removed = remove_spool(spool); !removed) return removed;
  }
  if (!exists(database)) return {};
  std::error_code error;
  const Importer* importer = guess_importer(database);
  const bool ours = importer && std::strcmp(importer->format(), "ringscope.db") == 0;
  const bool empty =
      std::filesystem::is_regular_file(database, error) && std::filesystem::file_size(database, error) == 0;
  if (!ours && !empty) return data_error(database + " is no ringscope trace: --force does not replace it");
  if (unlink(database.c_str()) != 0) return data_error(database + ": cannot replace: " + std::strerror(errno));
  return {};
}

Result<std::string> temporary_folder() {
  const char* base = std::getenv("TMPDIR");
  std::string path = std::string(base && *base ? base : "/tmp") + "/ringscope-XXXXXX";
  if (!mkdtemp(path.data())) return data_error(path + ": cannot create: " + std::strerror(errno) + "; set TMPDIR");
  return path;
}

// The folder is created here, exclusively: of two runs that name one trace, one gets it.
Result<std::string> spool_folder(const RecordingOptions& options) {
  if (options.database.empty()) return temporary_folder();
  const std::string spool = options.database + ".spool";
  if (options.force)
    if (auto removed = remove_old(options.database, spool); !removed) return tl::unexpected(removed.error());
  if (exists(options.database)) return tl::unexpected(already_there(options.database));
  if (mkdir(spool.c_str(), 0777) == 0) return spool;
  if (errno != EEXIST)
    return data_error(options.database + ": cannot record there: " + std::strerror(errno) +
                      "; make the folder first, or name another place");
  if (SpoolLock::held_by_other(spool)) return data_error(spool + " is being written by another run");
  if (!is_spool(spool)) return tl::unexpected(already_there(spool));
  return data_error(
      fmt::format("{} is what a killed run recorded: ringscope diagnose {} recovers it, --force replaces it", spool,
                  options.database));
}

}  // namespace

SpoolLock::SpoolLock(SpoolLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
SpoolLock& SpoolLock::operator=(SpoolLock&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}
SpoolLock::~SpoolLock() {
  if (fd_ >= 0) ::close(fd_);
}

// A file system without locks (some network ones) gives none; exclusive creation still keeps runs apart.
Result<SpoolLock> SpoolLock::take(const std::string& dir) {
  SpoolLock lock;
  lock.fd_ = open_folder(dir);
  if (lock.fd_ < 0) return data_error(dir + ": cannot open: " + std::strerror(errno));
  if (flock(lock.fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    return data_error(dir + " is being written by another run");
  return lock;
}

bool SpoolLock::held_by_other(const std::string& dir) {
  SpoolLock lock;
  lock.fd_ = open_folder(dir);
  return lock.fd_ >= 0 && flock(lock.fd_, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

Result<Recording> Recording::start(const RecordingOptions& options) {
  auto folder = spool_folder(options);
  if (!folder) return tl::unexpected(folder.error());
  Recording recording;
  recording.options_ = options;
  recording.spool_ = *folder;
  recording.owner_ = true;
  auto lock = SpoolLock::take(*folder);
  if (!lock) {
    rmdir(folder->c_str());
    recording.owner_ = false;
    return tl::unexpected(lock.error());
  }
  recording.lock_ = std::move(*lock);
  rs_options recorder{};
  recorder.spool_dir = recording.spool_.c_str();
  recorder.mode = options.stream ? RS_MODE_STREAM : RS_MODE_FLIGHT;
  recorder.threads_expected = options.threads_expected;
  if (rs_open(&recorder) != 0) {
    recording.discard();
    return data_error(fmt::format("cannot record: {}", rs_last_error()));
  }
  recording.open_ = true;
  return recording;
}

Recording::Recording(Recording&& other) noexcept
    : options_(std::move(other.options_)), spool_(std::move(other.spool_)), lock_(std::move(other.lock_)),
      open_(std::exchange(other.open_, false)), finished_(other.finished_), owner_(std::exchange(other.owner_, false)) {
}

Recording::~Recording() {
  close();
  if (owner_ && !has_database()) (void)remove_spool(spool_);
}

void Recording::record_meta(const char* key, const std::string& value) const {
  MetaRecord record{};
  record.key = rs_intern(key);
  record.value = rs_intern(value.c_str());
  emit(RecordKind::kMeta, record);
}

void Recording::close() {
  if (std::exchange(open_, false)) rs_close();
}

Status Recording::finish() {
  close();
  if (!has_database()) return {};
  if (auto built = build_database(spool_, options_.database); !built)
    return data_error(fmt::format("{}; the recording is kept in {}: ringscope diagnose {} recovers it",
                                  built.error().message, spool_, options_.database));
  finished_ = true;
  lock_ = SpoolLock();
  return options_.keep_spool ? Status() : remove_spool(spool_);
}

std::vector<std::string> Recording::losses() const {
  const rs_counts counts = rs_count();
  const std::string why = rs_last_error();
  std::vector<std::string> losses;
  if (counts.dropped > 0)
    losses.push_back(fmt::format("{} of {} records were lost{}", counts.dropped, counts.dropped + counts.written,
                                 why.empty() ? std::string() : ": " + why));
  if (counts.names_lost > 0)
    losses.push_back(
        fmt::format("{} names could not be written: the trace shows numbers in their place", counts.names_lost));
  if (counts.definitions_unsaved > 0)
    losses.push_back(
        fmt::format("{} definitions (communicators, streams, ranks) lie in their rings alone, where later "
                    "records may write over them",
                    counts.definitions_unsaved));
  if (!finished_) return losses;
  auto store = Store::open(options_.database);
  auto rows = store ? store->query("SELECT count, help FROM import_stats WHERE severity = 'error' AND count > 0")
                    : Result<QueryResult>(QueryResult());
  if (rows)
    for (const auto& row : rows->rows) losses.push_back(to_text(row[0]) + " " + to_text(row[1]));
  return losses;
}

void Recording::discard() {
  close();
  if (std::exchange(owner_, false)) (void)remove_spool(spool_);
}

}  // namespace ringscope::cli
