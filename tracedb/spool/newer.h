// The error of a file that a later version wrote: nothing may be made of the rest of its spool then.
#pragma once

#include <string>

#include "tracedb/base/result.h"
#include "tracedb/spool/spool.h"

namespace ringscope {

inline constexpr const char* kNewer = "is newer than this version";

inline tl::unexpected<Error> newer_error(const std::string& path, uint32_t version) {
  return data_error(path + ": spool version " + std::to_string(version) + " " + kNewer + " reads (" +
                    std::to_string(kSpoolVersion) + ")");
}
inline bool is_newer(const Error& error) { return error.message.find(kNewer) != std::string::npos; }

}  // namespace ringscope
