// A safetensors file of any content is refused or read within its own bytes.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input_file.h"
#include "tracedb/base/check.h"
#include "tracedb/tensorfile/safetensors.h"

using namespace ringscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile file(data, size);
  const auto tensors = read_safetensors(file.path());
  if (!tensors) return 0;
  for (const auto& [name, tensor] : *tensors) {
    RS_CHECK(tensor.real.size() + tensor.integer.size() <= size, "values come from the file's bytes");
  }
  return 0;
}

namespace {

std::string file_bytes(const std::string& header, size_t data_bytes) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; ++i) bytes[size_t(i)] = char(header.size() >> (8 * i));
  return bytes + header + std::string(data_bytes, '\1');
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {file_bytes(R"({})", 0), file_bytes(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
          file_bytes(R"({"__metadata__":{"k":"v"},"a":{"dtype":"I64","shape":[2],"data_offsets":[0,16]},)"
                     R"("b":{"dtype":"F64","shape":[],"data_offsets":[16,24]},)"
                     R"("c":{"dtype":"BF16","shape":[0,5],"data_offsets":[24,24]}})",
                     24)};
}
