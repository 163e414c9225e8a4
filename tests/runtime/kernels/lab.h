// A device with one stream to try kernels on.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/kernels/kernels.h"
#include "tests/runtime/kernels/numbers.h"
#include "tracedb/base/check.h"

namespace ringscope::testing {

struct Lab {
  Device& device;
  Stream& stream;

  Tensor empty(DType type, std::initializer_list<int64_t> shape) const {
    return device.allocate(type, shape, MemCategory::kActivation, "test");
  }
  Tensor tensor(DType type, std::initializer_list<int64_t> shape, Numbers values) const {
    Tensor t = empty(type, shape);
    kernels::upload(device, stream, "test.upload", t, std::move(values));
    return t;
  }
  Tensor zeros(DType type, std::initializer_list<int64_t> shape) const {
    Tensor t = empty(type, shape);
    kernels::fill(device, stream, "test.zero", t, 0);
    return t;
  }
  Tensor ints(std::vector<int32_t> values) const {
    Tensor t = empty(DType::kI32, {int64_t(values.size())});
    kernels::upload_i32(device, stream, "test.upload", t, std::move(values));
    return t;
  }
  Numbers read(const Tensor& t) const { return device.read_back(stream, t, "test"); }
};

// Runs `body` as the host program of a rank and returns when it is done.
inline void on_device(const std::function<void(const Lab&)>& body) {
  std::unique_ptr<Sched> sched = Sched::free_threads();
  Device device(*sched, 0, 1);
  bool finished = false;
  sched->spawn("rank0.host", [&] {
    Stream& stream = device.create_stream("compute");
    body({device, stream});
    finished = true;
  });
  RS_CHECK(sched->run() == RunEnd::kCompleted && finished, "the test's host program runs to its end");
}

}  // namespace ringscope::testing
