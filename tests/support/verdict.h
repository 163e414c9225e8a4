// What tests ask of a report.
#pragma once

#include <vector>

#include "tracedb/model/finding.h"

namespace ringscope::testing {

inline std::vector<Finding> roots(const Report& report) {
  std::vector<Finding> found;
  for (const Finding& f : report.findings)
    if (f.root) found.push_back(f);
  return found;
}

}  // namespace ringscope::testing
