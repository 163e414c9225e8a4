// The recorder around one run: where its spool lies, who may write it, and how it becomes DB.
#pragma once

#include <string>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/finding.h"

namespace ringscope::cli {

// Advisory lock on a spool folder, held as long as the run writes it; goes away with the process.
class SpoolLock {
 public:
  SpoolLock() = default;
  SpoolLock(SpoolLock&&) noexcept;
  SpoolLock& operator=(SpoolLock&&) noexcept;
  ~SpoolLock();

  static Result<SpoolLock> take(const std::string& dir);
  static bool held_by_other(const std::string& dir);

 private:
  int fd_ = -1;
};

struct RecordingOptions {
  std::string database;  // "" = a temporary folder, gone with this object
  bool stream = false;   // keep everything (--trace, --diagnose); otherwise the newest records of each thread
  bool force = false;    // replace an existing trace
  bool keep_spool = false;
  int threads_expected = 0;
};

// Life: start, (the run), close, finish. Destroyed before finish: recorder closed; a temporary folder is removed,
// "DB.spool" stays, because it can be recovered. discard: nothing of it stays.
class Recording {
 public:
  // kData: DB or DB.spool exists already (unless force), or is being written, or the folder cannot be made.
  static Result<Recording> start(const RecordingOptions& options);
  Recording(Recording&&) noexcept;
  Recording& operator=(Recording&&) = delete;
  ~Recording();

  void record_meta(const char* key, const std::string& value) const;
  void close();     // the run's threads have ended
  Status finish();  // DB.spool -> DB, then the spool goes (keep_spool). Nothing to do without a database
  // What the recorder could not keep, and files that were gone when the database was made, one sentence each; complete
  // after finish. Records that a flight recording overwrote are none of them: that is how it works.
  std::vector<std::string> losses() const;
  void discard();

  bool has_database() const { return !options_.database.empty(); }
  const std::string& database() const { return options_.database; }
  // What to load: the database after finish, otherwise the spool.
  const std::string& source() const { return finished_ ? options_.database : spool_; }

 private:
  Recording() = default;
  RecordingOptions options_;
  std::string spool_;
  SpoolLock lock_;
  bool open_ = false, finished_ = false, owner_ = false;
};

}  // namespace ringscope::cli
