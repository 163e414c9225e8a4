// A file mapped for reading: what its size was when it was opened, and what its pages hold whenever they are looked at.
#pragma once

#include <cstddef>
#include <string>

#include "tracedb/base/result.h"

namespace ringscope {

class MappedFile {
 public:
  MappedFile() = default;  // no file: no bytes
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();

  const char* data() const { return static_cast<const char*>(base_); }  // nullptr when there are no bytes
  size_t bytes() const { return bytes_; }

 private:
  void* base_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace ringscope
