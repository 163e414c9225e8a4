// safetensors files: reader and writer. Format: 8-byte little-endian header length, JSON header, raw data.
// The reader checks everything before it allocates: header length against the file, offsets against the data,
// shape times dtype against the byte range, overlaps. Errors: kData, with path and tensor.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tracedb/base/result.h"
#include "tracedb/model/enums.h"

namespace ringscope {

// Values widened: floating point to double, integers to int64. Exactly one of the two vectors is used.
struct FileTensor {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  std::vector<double> real;
  std::vector<int64_t> integer;
};
using FileTensors = std::map<std::string, FileTensor>;

Result<FileTensors> read_safetensors(const std::string& path);
// Written to path + ".tmp", flushed, renamed: nothing half-written under the final name.
Status write_safetensors(const std::string& path, const FileTensors& tensors);

}  // namespace ringscope
