// Buffer: a counted piece of device memory. Tensor: a contiguous typed view into one.
//
// Host code never looks at values: data<T>() may be called only inside a function given to launch() (checked),
// or at one of the named read-back points (Device::read_back).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "tracedb/model/enums.h"

namespace ringscope {

class Device;

// Memory is accounted in host order, whatever the workers do: an Account is held by the tensors of the host's
// program only. Tensors that are copied into a queued operation (DropAccounts) keep the memory alive, not the
// account; so the byte counters fall when the host lets go, and the block returns when the last operation ran.
class Buffer {
 public:
  uint64_t id() const { return id_; }  // unique in the job
  int64_t bytes() const { return bytes_; }
  MemCategory category() const { return category_; }
  std::byte* base() const { return base_; }
  ~Buffer();

  struct Account {
    Device* device;
    uint64_t id;
    int64_t bytes;
    MemCategory category;
    explicit Account(const Buffer& b) : device(b.device_), id(b.id_), bytes(b.bytes_), category(b.category_) {}
    Account(const Account&) = delete;
    ~Account();
  };

  // While one lives on a thread, tensors copied on that thread hold no account.
  class DropAccounts {
   public:
    DropAccounts() { dropping = true; }
    ~DropAccounts() { dropping = false; }
    DropAccounts(const DropAccounts&) = delete;
    static inline thread_local bool dropping = false;
  };

 private:
  friend class Device;
  Buffer() = default;
  Device* device_ = nullptr;
  uint64_t id_ = 0;
  int64_t bytes_ = 0;
  MemCategory category_ = MemCategory::kActivation;
  std::byte* base_ = nullptr;
};

// Up to four dimensions, row-major, contiguous. Copying a Tensor copies the view and shares the buffer.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor& other)
      : buffer_(other.buffer_), account_(Buffer::DropAccounts::dropping ? nullptr : other.account_),
        offset_(other.offset_), dtype_(other.dtype_), rank_(other.rank_), shape_(other.shape_) {}
  Tensor(Tensor&& other) = default;
  Tensor& operator=(const Tensor&) = default;
  Tensor& operator=(Tensor&&) = default;
  bool defined() const { return buffer_ != nullptr; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int64_t dim(int i) const { return shape_[i < 0 ? rank_ + i : i]; }
  int64_t count() const;
  int64_t bytes() const { return count() * size_of(dtype_); }
  int64_t offset_bytes() const { return offset_; }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }

  // Views; all share the buffer.
  Tensor reshape(std::initializer_list<int64_t> shape) const;  // same count (checked)
  Tensor rows(int64_t begin, int64_t end) const;               // slice of dimension 0
  Tensor operator[](int64_t i) const;                          // row i, one dimension less
  Tensor reread(DType dtype, int64_t count) const;  // the first bytes as [count]; they must lie inside (checked)

  // Only inside launch (checked by a thread-local mark) or at a read-back point.
  template <class T>
  T* data() const {
    return static_cast<T*>(raw());
  }

 private:
  friend class Device;
  void* raw() const;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<Buffer::Account> account_;
  int64_t offset_ = 0;
  DType dtype_ = DType::kF32;
  int rank_ = 0;
  std::array<int64_t, 4> shape_{};
};

}  // namespace ringscope
