// Byte-level text: the tokenizer is the identity on bytes (ids 0..255; 256 is padding).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tracedb/base/result.h"

namespace ringscope {

inline constexpr int kPaddingToken = 256;
inline constexpr int32_t kNoLabel = -1;
inline constexpr int32_t kNoToken = -1;  // behind the end of a sequence; its embedding is 0

class TextData {
 public:
  // Empty path: the text compiled into the program. kData: missing, unreadable, empty, or shorter than one
  // sequence and its last label.
  static Result<TextData> open(const std::string& path, int64_t seq_length);

  // Sample `index` (from 0, over the whole run): tokens [seq], labels [seq] = the next bytes. Wraps around.
  struct Sample {
    std::vector<int32_t> tokens, labels;
  };
  Sample sample(int64_t index, int64_t seq_length) const;

 private:
  std::string bytes_;
};

}  // namespace ringscope
