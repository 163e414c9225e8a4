// Importers: one interface, one registry; a file's format is guessed from its content, never from its name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tracedb/base/result.h"
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
  // The whole source, its links set; sources[0] describes it.
  virtual Result<TraceView> load(const std::string& path) const = 0;
};

// All importers this version knows, in the order they are asked.
const std::vector<const Importer*>& importers();

// nullptr when no importer recognises it.
const Importer* guess_importer(const std::string& path);

// kData with the reason when the path is not there or may not be read.
Status check_readable(const std::string& path);

// What `diagnose PATH...` takes: every path, or what a folder holds, loaded and merged into one job. A leftover
// "PATH.spool" is recovered first. kData when one is missing or of no known format; the sentence lists those known.
Result<TraceView> load_paths(const std::vector<std::string>& paths);

}  // namespace ringscope
