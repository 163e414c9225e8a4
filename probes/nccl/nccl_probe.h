// Which NCCL is here? The library is loaded at run time, never linked. Works without a driver or a GPU.
#pragma once

#include <string>

namespace ringscope {

struct NcclStatus {
  int version = 0;    // NCCL_VERSION code of the loaded library (22809 = 2.28.9); 0 = none
  int built_for = 0;  // of the header this probe was compiled against; 0 = compiled without
  std::string why;    // one line: the reason when version is 0
};

// `library`: path or soname to load; empty = the usual names. Thread-safe.
NcclStatus nccl_status(const std::string& library = "");

// 22809 -> "2.28.9". NCCL counts 2.9 and later as major*10000 + minor*100 + patch, earlier ones as
// major*1000 + minor*100 + patch.
std::string nccl_version_text(int version);

}  // namespace ringscope
