#include "runtime/device/tensor.h"

#include "runtime/device/inside_launch.h"
#include "tracedb/base/check.h"

namespace ringscope {

int64_t Tensor::count() const {
  int64_t n = 1;
  for (int i = 0; i < rank_; ++i) n *= shape_[i];
  return n;
}

Tensor Tensor::reshape(std::initializer_list<int64_t> shape) const {
  Tensor view = *this;
  view.rank_ = 0;
  for (int64_t extent : shape) view.shape_[view.rank_++] = extent;
  RS_CHECK(view.count() == count(), "a reshape keeps the number of elements");
  return view;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  RS_CHECK(rank_ >= 1 && begin >= 0 && begin <= end && end <= shape_[0], "rows outside the tensor");
  Tensor view = *this;
  const int64_t row_bytes = shape_[0] ? bytes() / shape_[0] : 0;
  view.offset_ += begin * row_bytes;
  view.shape_[0] = end - begin;
  return view;
}

Tensor Tensor::operator[](int64_t i) const {
  RS_CHECK(rank_ >= 2, "a row of a vector is not a tensor");
  Tensor view = rows(i, i + 1);
  for (int d = 1; d < rank_; ++d) view.shape_[d - 1] = view.shape_[d];
  --view.rank_;
  return view;
}

Tensor Tensor::reread(DType dtype, int64_t count) const {
  RS_CHECK(count >= 0 && count * size_of(dtype) <= bytes(), "a view outside the tensor");
  Tensor view = *this;
  view.dtype_ = dtype;
  view.rank_ = 1;
  view.shape_ = {count};
  return view;
}

void* Tensor::raw() const {
  RS_CHECK(inside_launch, "host code looked at tensor values outside a launch or read-back point");
  return buffer_->base() + offset_;
}

}  // namespace ringscope
