// LayerNorm and RMSNorm; statistics in fp64 for both types.
#include <cmath>

#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/kernels.h"

namespace ringscope::kernels {

// y = (x - mean) * rstd * w + b, biased variance, eps inside the root.
void layer_norm(Device& device, Stream& stream, const Tensor& x, const Tensor& w, const Tensor& b, double eps,
                const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  device.launch(stream, "layer_norm", {x, w, b}, {y, mean, rstd}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = x.dim(0), h = x.dim(1);
      for (int64_t i = 0; i < rows; ++i) {
        const T *in = x.data<T>() + i * h, *weight = w.data<T>(), *bias = b.data<T>();
        T* out = y.data<T>() + i * h;
        double sum = 0, square = 0;
        for (int64_t j = 0; j < h; ++j) sum += in[j];
        const double m = sum / double(h);
        for (int64_t j = 0; j < h; ++j) square += (in[j] - m) * (in[j] - m);
        const double r = 1 / std::sqrt(square / double(h) + eps);
        for (int64_t j = 0; j < h; ++j) out[j] = T((in[j] - m) * r * weight[j] + bias[j]);
        mean.data<double>()[i] = m;
        rstd.data<double>()[i] = r;
      }
    });
  });
}

// g = dy*w; dx = rstd * (g - avg(g) - xhat * avg(g*xhat)).
void layer_norm_backward(Device& device, Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& w,
                         const Tensor& mean, const Tensor& rstd, const Tensor& dx, const Tensor& dw, const Tensor& db) {
  device.launch(stream, "layer_norm_backward", {dy, x, w, mean, rstd, dw, db}, {dx, dw, db}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = x.dim(0), h = x.dim(1);
      std::vector<double> dws(h, 0), dbs(h, 0);
      for (int64_t i = 0; i < rows; ++i) {
        const T *in = x.data<T>() + i * h, *g = dy.data<T>() + i * h, *weight = w.data<T>();
        const double m = mean.data<double>()[i], r = rstd.data<double>()[i];
        double sum = 0, dot = 0;
        for (int64_t j = 0; j < h; ++j) {
          const double xhat = (in[j] - m) * r, gw = double(g[j]) * weight[j];
          sum += gw;
          dot += gw * xhat;
          dws[j] += g[j] * xhat;
          dbs[j] += g[j];
        }
        T* out = dx.data<T>() + i * h;
        for (int64_t j = 0; j < h; ++j) {
          const double xhat = (in[j] - m) * r;
          out[j] = T(r * (double(g[j]) * weight[j] - sum / double(h) - xhat * dot / double(h)));
        }
      }
      T *into_w = dw.data<T>(), *into_b = db.data<T>();
      for (int64_t j = 0; j < h; ++j) into_w[j] += T(dws[j]), into_b[j] += T(dbs[j]);
    });
  });
}

void rms_norm(Device& device, Stream& stream, const Tensor& x, const Tensor& w, double eps, const Tensor& y,
              const Tensor& rstd) {
  device.launch(stream, "rms_norm", {x, w}, {y, rstd}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = x.dim(0), h = x.dim(1);
      for (int64_t i = 0; i < rows; ++i) {
        const T *in = x.data<T>() + i * h, *weight = w.data<T>();
        T* out = y.data<T>() + i * h;
        double square = 0;
        for (int64_t j = 0; j < h; ++j) square += double(in[j]) * in[j];
        const double r = 1 / std::sqrt(square / double(h) + eps);
        for (int64_t j = 0; j < h; ++j) out[j] = T(in[j] * r * weight[j]);
        rstd.data<double>()[i] = r;
      }
    });
  });
}

// g = dy*w; dx = rstd * (g - xhat * avg(g*xhat)), xhat = x*rstd.
void rms_norm_backward(Device& device, Stream& stream, const Tensor& dy, const Tensor& x, const Tensor& w,
                       const Tensor& rstd, const Tensor& dx, const Tensor& dw) {
  device.launch(stream, "rms_norm_backward", {dy, x, w, rstd, dw}, {dx, dw}, [=] {
    by_type(x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t rows = x.dim(0), h = x.dim(1);
      std::vector<double> dws(h, 0);
      for (int64_t i = 0; i < rows; ++i) {
        const T *in = x.data<T>() + i * h, *g = dy.data<T>() + i * h, *weight = w.data<T>();
        const double r = rstd.data<double>()[i];
        double dot = 0;
        for (int64_t j = 0; j < h; ++j) {
          const double xhat = in[j] * r;
          dot += double(g[j]) * weight[j] * xhat;
          dws[j] += g[j] * xhat;
        }
        T* out = dx.data<T>() + i * h;
        for (int64_t j = 0; j < h; ++j) out[j] = T(r * (double(g[j]) * weight[j] - in[j] * r * dot / double(h)));
      }
      T* into_w = dw.data<T>();
      for (int64_t j = 0; j < h; ++j) into_w[j] += T(dws[j]);
    });
  });
}

}  // namespace ringscope::kernels
