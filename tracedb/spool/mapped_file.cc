#include "tracedb/spool/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ringscope {

Result<MappedFile> MappedFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return data_error(path + ": cannot open: " + std::strerror(errno));
  struct stat info {};
  void* base = nullptr;
  size_t bytes = 0;
  if (fstat(fd, &info) == 0 && info.st_size > 0) {
    bytes = size_t(info.st_size);
    base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
  }
  const int map_errno = errno;
  close(fd);
  if (base == MAP_FAILED) return data_error(path + ": cannot map: " + std::strerror(map_errno));
  MappedFile file;
  file.base_ = base;
  file.bytes_ = bytes;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (base_) munmap(base_, bytes_);
}

}  // namespace ringscope
