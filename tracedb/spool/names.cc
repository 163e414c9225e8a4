// Entry of the names file: id, length, check, 0 (32 bits each), then the text padded to 8 bytes.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "tracedb/spool/names_format.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

void encode(std::string& out, uint32_t id, const std::string& whole) {
  const std::string_view text = std::string_view(whole).substr(0, kMaxNameBytes);
  const NameEntry entry{id, uint32_t(text.size()), name_check(id, text), 0};
  out.append(reinterpret_cast<const char*>(&entry), sizeof entry);
  out.append(text);
  out.append((8 - text.size() % 8) % 8, '\0');
}

}  // namespace

uint32_t name_check(uint32_t id, std::string_view text) {  // FNV-1a
  uint32_t hash = 2166136261u ^ id;
  for (unsigned char c : text) hash = (hash ^ c) * 16777619u;
  return hash;
}

NamesWriter* NamesWriter::create(const std::string& dir, uint64_t token, int* error) {
  SizeLimitGuard guard;
  char name[48];
  std::snprintf(name, sizeof name, "/process-%016llx.names", static_cast<unsigned long long>(token));
  const std::string path = dir + name, unfinished = path + ".new";
  std::unique_ptr<NamesWriter> writer(new NamesWriter);
  writer->fd_ = open(unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (writer->fd_ < 0) {
    *error = errno;
    return nullptr;
  }
  *error = posix_fallocate(writer->fd_, 0, off_t(kSpoolHeaderBytes));
  if (*error == 0) {
    void* map = mmap(nullptr, kSpoolHeaderBytes, PROT_READ | PROT_WRITE, MAP_SHARED, writer->fd_, 0);
    if (map == MAP_FAILED) *error = errno;
    else writer->header_ = static_cast<NamesHeader*>(map);
  }
  if (*error != 0) {
    unlink(unfinished.c_str());
    return nullptr;
  }
  writer->header_->version = kSpoolVersion;
  writer->header_->pid = uint32_t(getpid());
  writer->header_->token = token;
  writer->header_->magic = kNamesMagic;
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) {
    *error = errno;
    unlink(unfinished.c_str());
    return nullptr;
  }
  return writer.release();
}

NamesWriter::~NamesWriter() {
  if (header_) munmap(header_, kSpoolHeaderBytes);
  if (fd_ >= 0) close(fd_);
}

void NamesWriter::append(const std::string& bytes, uint64_t names) {
  SizeLimitGuard guard;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = pwrite(fd_, bytes.data() + done, bytes.size() - done, off_t(end_ + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      header_->names_lost.fetch_add(names, std::memory_order_relaxed);
      return;  // end_ stays: the next entry is written over the half one
    }
    done += size_t(n);
  }
  end_ += bytes.size();
}

void NamesWriter::add(uint32_t id, const std::string& text) {
  std::string bytes;
  encode(bytes, id, text);
  append(bytes, 1);
}

void NamesWriter::add_all(const std::vector<const std::string*>& names) {
  std::string bytes;
  for (size_t i = 0; i < names.size(); ++i) encode(bytes, uint32_t(i + 1), *names[i]);
  append(bytes, names.size());
}

}  // namespace ringscope
