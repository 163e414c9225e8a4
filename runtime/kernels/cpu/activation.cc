// Activations and dropout.
#include <cmath>

#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/cpu/rng.h"
#include "runtime/kernels/kernels.h"

namespace ringscope::kernels {
namespace {
constexpr double kRootTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;
template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
}  // namespace

// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
void gelu_tanh(Device& device, Stream& stream, const Tensor& x, const Tensor& y) {
  device.launch(stream, "gelu", {x}, {y}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0, n = x.count(); i < n; ++i) {
        const T v = x.data<T>()[i];
        y.data<T>()[i] = T(0.5) * v * (T(1) + std::tanh(T(kRootTwoOverPi) * (v + T(kCubic) * v * v * v)));
      }
    });
  });
}

void gelu_tanh_backward(Device& device, Stream& stream, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  device.launch(stream, "gelu_backward", {x, dy}, {dx}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      for (int64_t i = 0, n = x.count(); i < n; ++i) {
        const T v = x.data<T>()[i];
        const T t = std::tanh(T(kRootTwoOverPi) * (v + T(kCubic) * v * v * v));
        const T slope = T(0.5) * (T(1) + t) +
                        T(0.5) * v * (T(1) - t * t) * T(kRootTwoOverPi) * (T(1) + T(3 * kCubic) * v * v);
        dx.data<T>()[i] = dy.data<T>()[i] * slope;
      }
    });
  });
}

void swiglu(Device& device, Stream& stream, const Tensor& gate_up, const Tensor& y) {
  device.launch(stream, "swiglu", {gate_up}, {y}, [=] {
    by_type(y.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = y.dim(0), f = y.dim(1);
      for (int64_t i = 0; i < rows; ++i) {
        const T *g = gate_up.data<T>() + i * 2 * f, *u = g + f;
        for (int64_t j = 0; j < f; ++j) y.data<T>()[i * f + j] = g[j] * sigmoid(g[j]) * u[j];
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
        const T *g = gate_up.data<T>() + i * 2 * f, *u = g + f, *d = dy.data<T>() + i * f;
        T *dg = d_gate_up.data<T>() + i * 2 * f, *du = dg + f;
        for (int64_t j = 0; j < f; ++j) {
          const T s = sigmoid(g[j]), silu = g[j] * s;
          du[j] = d[j] * silu;
          dg[j] = d[j] * u[j] * (s + silu * (T(1) - s));
        }
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
      const T up = T(1 / (1 - p));
      for (int64_t i = 0; i < rows; ++i) {
        uint64_t row = rng::fold(base, uint64_t(uint32_t(sample.data<int32_t>()[i])));
        row = rng::fold(row, uint64_t(uint32_t(position.data<int32_t>()[i])));
        for (int64_t j = 0; j < h; ++j)
          y.data<T>()[i * h + j] =
              rng::keep(rng::fold(row, uint64_t(key.first_feature + j)), p) ? x.data<T>()[i * h + j] * up : T(0);
      }
    });
  });
}

}  // namespace ringscope::kernels
