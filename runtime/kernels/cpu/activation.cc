// Activations and dropout.
#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/cpu/pointwise.h"
#include "runtime/kernels/cpu/rng.h"
#include "runtime/kernels/kernels.h"

namespace ringscope::kernels {

void gelu_tanh(Device& device, Stream& stream, const Tensor& x, const Tensor& y) {
  device.launch(stream, "gelu", {x}, {y}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      pointwise::best_for<T>().gelu(x.data<T>(), x.count(), y.data<T>());
    });
  });
}

void gelu_tanh_backward(Device& device, Stream& stream, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  device.launch(stream, "gelu_backward", {x, dy}, {dx}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      pointwise::best_for<T>().gelu_backward(x.data<T>(), dy.data<T>(), x.count(), dx.data<T>());
    });
  });
}

void swiglu(Device& device, Stream& stream, const Tensor& gate_up, const Tensor& y) {
  device.launch(stream, "swiglu", {gate_up}, {y}, [=] {
    by_type(y.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = y.dim(0), f = y.dim(1);
      for (int64_t i = 0; i < rows; ++i) {
        const T* gate = gate_up.data<T>() + i * 2 * f;
        pointwise::best_for<T>().swiglu(gate, gate + f, f, y.data<T>() + i * f);
      }
    });
  });
}

void swiglu_backward(Device& device, Stream& stream, const Tensor& gate_up, const Tensor& dy, const Tensor& d_gate_up) {
  device.launch(stream, "swiglu_backward", {gate_up, dy}, {d_gate_up}, [=] {
    by_type(dy.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = dy.dim(0), f = dy.dim(1);
      for (int64_t i = 0; i < rows; ++i) {
        const T* gate = gate_up.data<T>() + i * 2 * f;
        T* d_gate = d_gate_up.data<T>() + i * 2 * f;
        pointwise::best_for<T>().swiglu_backward(gate, gate + f, dy.data<T>() + i * f, f, d_gate, d_gate + f);
      }
    });
  });
}

void dropout(Device& device, Stream& stream, const char* name, const Tensor& x, double p, DropoutKey key,
             const Tensor& position, const Tensor& sample, const Tensor& y) {
  uint64_t base = rng::fold(rng::mix(key.seed), uint64_t(uint32_t(key.step)));
  base = rng::fold(base, uint64_t(uint32_t(key.layer)));
  base = rng::fold(base, uint64_t(uint32_t(key.use)));
  device.launch(stream, name, {x, position, sample}, {y}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = x.dim(0), h = x.dim(1);
      for (int64_t i = 0; i < rows; ++i) {
        uint64_t row = rng::fold(base, uint64_t(uint32_t(sample.data<int32_t>()[i])));
        row = rng::fold(row, uint64_t(uint32_t(position.data<int32_t>()[i])));
        pointwise::best_for<T>().dropout(x.data<T>() + i * h, row, uint64_t(key.first_feature), p, h,
                                         y.data<T>() + i * h);
      }
    });
  });
}

}  // namespace ringscope::kernels
