// Matrix products, biases and element-wise sums.
#include <algorithm>

#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/cpu/gemm.h"
#include "runtime/kernels/kernels.h"

namespace ringscope::kernels {
namespace {
void run_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
              int64_t ldb, float* c, bool add) {
  cpu::gemm_f32(ta, tb, m, n, k, a, lda, b, ldb, c, add);
}
void run_gemm(bool ta, bool tb, int64_t m, int64_t n, int64_t k, const double* a, int64_t lda, const double* b,
              int64_t ldb, double* c, bool add) {
  cpu::gemm_f64(ta, tb, m, n, k, a, lda, b, ldb, c, add);
}
}  // namespace

void gemm(Device& device, Stream& stream, const char* name, const Tensor& a, bool ta, const Tensor& b, bool tb,
          const Tensor& c, bool accumulate) {
  const int64_t m = c.dim(0), n = c.dim(1), k = ta ? a.dim(0) : a.dim(1);
  RS_CHECK((ta ? a.dim(1) : a.dim(0)) == m && (tb ? b.dim(0) : b.dim(1)) == n && (tb ? b.dim(1) : b.dim(0)) == k,
           "matrix shapes do not fit");
  const auto run = [=] {
    by_type(c.dtype(), [&](auto zero) {
      using T = decltype(zero);
      run_gemm(ta, tb, m, n, k, a.data<T>(), a.dim(1), b.data<T>(), b.dim(1), c.data<T>(), accumulate);
    });
  };
  if (accumulate) device.launch(stream, name, {a, b, c}, {c}, run);
  else device.launch(stream, name, {a, b}, {c}, run);
}

void add_bias(Device& device, Stream& stream, const char* name, const Tensor& y, const Tensor& bias) {
  device.launch(stream, name, {y, bias}, {y}, [=] {
    by_type(y.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = y.dim(0), n = y.dim(1);
      T* out = y.data<T>();
      const T* b = bias.data<T>();
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < n; ++j) out[i * n + j] += b[j];
    });
  });
}

void bias_grad(Device& device, Stream& stream, const char* name, const Tensor& dy, const Tensor& dbias) {
  device.launch(stream, name, {dy, dbias}, {dbias}, [=] {
    by_type(dy.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = dy.dim(0), n = dy.dim(1);
      const T* in = dy.data<T>();
      T* out = dbias.data<T>();
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < n; ++j) out[j] += in[i * n + j];
    });
  });
}

void add(Device& device, Stream& stream, const char* name, const Tensor& x, const Tensor& y, const Tensor& out) {
  device.launch(stream, name, {x, y}, {out}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T *a = x.data<T>(), *b = y.data<T>();
      T* c = out.data<T>();
      for (int64_t i = 0, n = x.count(); i < n; ++i) c[i] = a[i] + b[i];
    });
  });
}

void accumulate(Device& device, Stream& stream, const char* name, const Tensor& x, const Tensor& into) {
  device.launch(stream, name, {x, into}, {into}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const T* a = x.data<T>();
      T* c = into.data<T>();
      for (int64_t i = 0, n = x.count(); i < n; ++i) c[i] += a[i];
    });
  });
}

void scale(Device& device, Stream& stream, const char* name, const Tensor& x, double factor) {
  device.launch(stream, name, {x}, {x}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      T* a = x.data<T>();
      for (int64_t i = 0, n = x.count(); i < n; ++i) a[i] *= T(factor);
    });
  });
}

void fill(Device& device, Stream& stream, const char* name, const Tensor& x, double value) {
  device.launch(stream, name, {}, {x}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(x.data<T>(), x.count(), T(value));
    });
  });
}

void copy(Device& device, Stream& stream, const char* name, const Tensor& from, const Tensor& to) {
  RS_CHECK(from.bytes() == to.bytes(), "a copy needs equal sizes");
  device.launch(stream, name, {from}, {to},
                [=] { std::copy_n(from.data<uint8_t>(), from.bytes(), to.data<uint8_t>()); });
}

void upload_i32(Device& device, Stream& stream, const char* name, const Tensor& to, std::vector<int32_t> values) {
  RS_CHECK(int64_t(values.size()) == to.count(), "an upload needs one value an element");
  device.launch(stream, name, {}, {to},
                [to, values = std::move(values)] { std::copy(values.begin(), values.end(), to.data<int32_t>()); });
}

void upload(Device& device, Stream& stream, const char* name, const Tensor& to, std::vector<double> values) {
  RS_CHECK(int64_t(values.size()) == to.count(), "an upload needs one value an element");
  device.launch(stream, name, {}, {to}, [to, values = std::move(values)] {
    by_type(to.dtype(), [&](auto zero) {
      using T = decltype(zero);
      T* out = to.data<T>();
      for (size_t i = 0; i < values.size(); ++i) out[i] = T(values[i]);
    });
  });
}

}  // namespace ringscope::kernels
