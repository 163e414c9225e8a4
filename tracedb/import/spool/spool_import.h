// Turns a spool folder (tracedb/spool/spool.h) into database rows. Idempotent: drain_state(ring, next_seq)
// commits with the rows, so a second import of the same folder adds only what is new.
#pragma once

#include <string>

#include "tracedb/base/result.h"
#include "tracedb/store/store.h"

namespace ringscope {

// Adds what the store does not have yet; the caller ends with store.finish().
Result<SourceRow> import_spool(const std::string& dir, Store& store);

// DB.spool/ -> DB.tmp (journal_mode=DELETE, closed) -> rename to DB. A DB that exists already is read first
// and completed from the spool; an unfinished DB.tmp is thrown away. The spool stays; remove_spool deletes it.
Status build_database(const std::string& spool_dir, const std::string& db_path);

// Deletes a spool folder: only files of the spool's own names, then the folder.
Status remove_spool(const std::string& spool_dir);

// Recovers "<db>.spool" into db when that folder holds what db does not (after a kill). True = something was
// recovered; a db that has everything already is not touched.
Result<bool> recover_leftover(const std::string& db_path);

}  // namespace ringscope
