// Embeddings, and the split of the fused q, k, v projection with its rotation.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/kernels/cpu/dispatch.h"
#include "runtime/kernels/kernels.h"

namespace ringscope::kernels {

void embedding(Device& device, Stream& stream, const Tensor& tokens, const Tensor& table, int64_t first_row,
               const Tensor& y) {
  device.launch(stream, "embedding", {tokens, table}, {y}, [=] {
    by_type(y.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t h = y.dim(1), rows = table.dim(0);
      for (int64_t i = 0; i < y.dim(0); ++i) {
        const int64_t row = tokens.data<int32_t>()[i] - first_row;
        const bool here = row >= 0 && row < rows;
        T* out = y.data<T>() + i * h;
        if (here) std::copy_n(table.data<T>() + row * h, h, out);
        else std::fill_n(out, h, T(0));
      }
    });
  });
}

void embedding_backward(Device& device, Stream& stream, const Tensor& tokens, const Tensor& dy, int64_t first_row,
                        const Tensor& dtable) {
  device.launch(stream, "embedding_backward", {tokens, dy, dtable}, {dtable}, [=] {
    by_type(dy.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t h = dy.dim(1), rows = dtable.dim(0);
      for (int64_t i = 0; i < dy.dim(0); ++i) {
        const int64_t row = tokens.data<int32_t>()[i] - first_row;
        if (row < 0 || row >= rows) continue;
        const T* grad = dy.data<T>() + i * h;
        T* into = dtable.data<T>() + row * h;
        for (int64_t j = 0; j < h; ++j) into[j] += grad[j];
      }
    });
  });
}

namespace {
// The table's row of a position. One outside the table (a shard that counts wrongly, a buffer nothing wrote) reads the
// nearest row, as a clamped gather does.
int64_t row_of(const Tensor& position, int64_t i, int64_t rows) {
  return std::clamp<int64_t>(position.data<int32_t>()[i], 0, rows - 1);
}
}  // namespace

void add_position_embedding(Device& device, Stream& stream, const Tensor& position, const Tensor& table,
                            const Tensor& y) {
  device.launch(stream, "position_embedding", {position, table, y}, {y}, [=] {
    by_type(y.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t h = y.dim(1), rows = table.dim(0);
      for (int64_t i = 0; i < y.dim(0); ++i) {
        const int64_t row = row_of(position, i, rows);
        const T* entry = table.data<T>() + row * h;
        T* out = y.data<T>() + i * h;
        for (int64_t j = 0; j < h; ++j) out[j] += entry[j];
      }
    });
  });
}

void position_embedding_backward(Device& device, Stream& stream, const Tensor& position, const Tensor& dy,
                                 const Tensor& dtable) {
  device.launch(stream, "position_embedding_backward", {position, dy, dtable}, {dtable}, [=] {
    by_type(dy.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t h = dy.dim(1), rows = dtable.dim(0);
      for (int64_t i = 0; i < dy.dim(0); ++i) {
        const int64_t row = row_of(position, i, rows);
        const T* grad = dy.data<T>() + i * h;
        T* into = dtable.data<T>() + row * h;
        for (int64_t j = 0; j < h; ++j) into[j] += grad[j];
      }
    });
  });
}

namespace {

// Angles in fp64: at position 10^5 an fp32 angle is off by 0.008 rad.
struct Rotation {
  std::vector<double> inverse_frequency;
  Rotation(double base, int64_t d) {
    for (int64_t i = 0; i < d / 2; ++i) inverse_frequency.push_back(std::pow(base, -2.0 * double(i) / double(d)));
  }
  // sign +1 rotates, -1 rotates back; every head of the token at once.
  template <class T>
  void apply(T* x, int64_t heads, int64_t d, double position, double sign) const {
    for (int64_t i = 0; i < d / 2; ++i) {
      const double angle = position * inverse_frequency[i];
      const T c = T(std::cos(angle)), s = T(sign * std::sin(angle));
      for (int64_t h = 0; h < heads; ++h) {
        T &a = x[h * d + i], &b = x[h * d + i + d / 2];
        const T first = a * c - b * s, second = b * c + a * s;
        a = first;
        b = second;
      }
    }
  }
};

}  // namespace

void split_qkv(Device& device, Stream& stream, const Tensor& qkv, int64_t heads_q, int64_t heads_kv, double rope_base,
               const Tensor& position, const Tensor& q, const Tensor& kv) {
  device.launch(stream, "split_qkv", {qkv, position}, {q, kv}, [=] {
    by_type(q.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t tokens = q.dim(0), d = q.dim(2), nq = heads_q * d, nk = heads_kv * d;
      const Rotation rotation(rope_base > 0 ? rope_base : 1, d);
      for (int64_t i = 0; i < tokens; ++i) {
        const T* in = qkv.data<T>() + i * (nq + 2 * nk);
        T *to_q = q.data<T>() + i * nq, *to_k = kv.data<T>() + i * nk, *to_v = to_k + tokens * nk;
        std::copy_n(in, nq, to_q);
        std::copy_n(in + nq, nk, to_k);
        std::copy_n(in + nq + nk, nk, to_v);
        if (rope_base <= 0) continue;
        const double at = position.data<int32_t>()[i];
        rotation.apply(to_q, heads_q, d, at, 1);
        rotation.apply(to_k, heads_kv, d, at, 1);
      }
    });
  });
}

void join_qkv(Device& device, Stream& stream, const Tensor& dq, const Tensor& dkv, double rope_base,
              const Tensor& position, const Tensor& dqkv) {
  device.launch(stream, "join_qkv", {dq, dkv, position}, {dqkv}, [=] {
    by_type(dq.dtype(), [&](auto zero) {
      using T = decltype(zero);
      const int64_t tokens = dq.dim(0), d = dq.dim(2), nq = dq.dim(1) * d, nk = dkv.dim(2) * d;
      const Rotation rotation(rope_base > 0 ? rope_base : 1, d);
      for (int64_t i = 0; i < tokens; ++i) {
        T* out = dqkv.data<T>() + i * (nq + 2 * nk);
        std::copy_n(dq.data<T>() + i * nq, nq, out);
        std::copy_n(dkv.data<T>() + i * nk, nk, out + nq);
        std::copy_n(dkv.data<T>() + (tokens + i) * nk, nk, out + nq + nk);
        if (rope_base <= 0) continue;
        const double at = position.data<int32_t>()[i];
        rotation.apply(out, dq.dim(1), d, at, -1);
        rotation.apply(out + nq, dkv.dim(2), d, at, -1);
      }
    });
  });
}

}  // namespace ringscope::kernels
