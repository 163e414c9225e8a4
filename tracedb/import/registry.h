// Importers: one interface, one registry; a file's format is guessed from its content, never from its name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/import/identity.h"
#include "tracedb/model/trace_view.h"
#include "tracedb/store/store.h"

namespace ringscope {

class Importer {
 public:
  virtual ~Importer() = default;
  virtual const char* format() const = 0;       // "ringscope.spool"
  virtual const char* description() const = 0;  // one line for people
  // Looks at the content (first bytes, or what a folder holds). Never throws, never reads all of it.
  virtual bool recognises(const std::string& path) const = 0;
  // kData when it is of this format and cannot be read.
  virtual Result<SourceIdentity> identify(const std::string& path) const = 0;
  // The whole source, its links set; sources[0] describes it.
  virtual Result<TraceView> load(const std::string& path) const = 0;
};

// All importers this version knows, in the order they are asked.
const std::vector<const Importer*>& importers();

// nullptr when no importer recognises it; only regular files and folders are looked into.
const Importer* guess_importer(const std::string& path);

// kData with the reason when the path is not there or may not be read.
Status check_readable(const std::string& path);

// One job, of one source or of several (jobs.h finds them, merge.h puts them together); the leftover "PATH.spool" of a database is recovered into
// it first. kUsage when the paths hold more jobs than one.
Result<TraceView> load_paths(const std::vector<std::string>& paths);

}  // namespace ringscope
