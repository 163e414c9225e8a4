// Can CUPTI be used here? libcupti is loaded at run time, never linked, so that one program runs with and
// without a toolkit, a driver or a GPU.
//
// CUPTI has no single "no driver" error: subscribing may answer 999 (unknown), 15 or another number, and another
// profiler may hold the only subscription (39). So any non-zero answer means "GPU probe absent"; the number and
// the sentence are kept for the trace's list of probes. The subscription made by the check is given back.
#pragma once

#include <cstdint>
#include <string>

namespace ringscope {

struct CuptiStatus {
  bool usable = false;     // version known and a subscription was granted
  uint32_t version = 0;    // CUPTI_API_VERSION of the loaded library; 0 = no library
  uint32_t built_for = 0;  // of the headers this probe was compiled against; 0 = compiled without
  int subscribe_code = 0;  // CUptiResult of the attempt
  std::string why;         // one line: the reason when not usable
};

// `library`: path or soname to load; empty = the usual names. Thread-safe.
CuptiStatus cupti_status(const std::string& library = "");

}  // namespace ringscope
