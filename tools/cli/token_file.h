// The tokens of an evaluation: a safetensors file, read whole.
#pragma once

#include <string>

#include "runtime/train/train.h"
#include "tracedb/base/result.h"

namespace ringscope::cli {

// `prefix`: of the names in the file, "plain." or "plain". kUsage: a tensor under the prefix that eval does not read; a
// name with one more dot is another prefix's. kData: an unreadable file, a missing tensor, a wrong shape or type.
Result<EvalInput> read_token_file(const std::string& path, std::string prefix, bool gradients);

}  // namespace ringscope::cli
