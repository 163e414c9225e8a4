// GF/s of the attention kernels on one core, as a fraction of the fp32 FMA peak measured around each case.
// Useful FLOP only: 4*d a visible pair forward, 10*d backward; a causal mask counts L*(L+1)/2 pairs.
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "runtime/kernels/cpu/flash.h"

namespace {

using ringscope::flash::Kernels;

// CPU time of this thread: what other processes take does not count.
double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + 1e-9 * double(now.tv_nsec);
}
double seconds_of(const std::function<void()>& work) {
  const double start = cpu_seconds();
  work();
  return cpu_seconds() - start;
}

// Twelve independent chains of multiply-adds fill the pipelines.
#define RS_PEAK(NAME, TARGET, BYTES)                                                                 \
  TARGET float NAME(int64_t rounds) {                                                                \
    typedef float V __attribute__((vector_size(BYTES)));                                             \
    V x{}, y{};                                                                                      \
    for (unsigned z = 0; z < BYTES / 4; ++z) x[z] = 0.999f, y[z] = 1e-3f;                            \
    /* Different starts: equal chains would be merged into one. */                                   \
    V a = y, b = a + y, c = b + y, d = c + y, e = d + y, f = e + y, g = f + y, h = g + y, i = h + y; \
    V j = i + y, k = j + y, l = k + y;                                                               \
    for (int64_t r = 0; r < rounds; ++r) {                                                           \
      a = a * x + y, b = b * x + y, c = c * x + y, d = d * x + y, e = e * x + y, f = f * x + y;      \
      g = g * x + y, h = h * x + y, i = i * x + y, j = j * x + y, k = k * x + y, l = l * x + y;      \
    }                                                                                                \
    a += b + c + d + e + f + g + h + i + j + k + l;                                                  \
    return a[0];                                                                                     \
  }
RS_PEAK(peak_64, __attribute__((target("avx512f"))), 64)
RS_PEAK(peak_32, __attribute__((target("avx2,fma"))), 32)
RS_PEAK(peak_16, , 16)

volatile float sink;

double peak_gflops(int vector_bytes) {
  const auto run = vector_bytes == 64 ? peak_64 : vector_bytes == 32 ? peak_32 : peak_16;
  const int64_t rounds = 4'000'000;
  double best = 1e9;
  for (int i = 0; i < 5; ++i) best = std::min(best, seconds_of([&] { sink = run(rounds); }));
  return double(rounds) * 12 * (vector_bytes / 4) * 2 / best * 1e-9;
}

struct Case {
  int64_t length, heads, kv_heads, d;
  bool causal;
};

struct Data {
  std::vector<float> q, k, v, o, d_o, dq, dk, dv, scratch;
  std::vector<double> lse, m, delta;
  std::vector<int32_t> q_row, k_row, document;

  explicit Data(const Case& c) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& x, int64_t heads) {
      x.resize(c.length * heads * c.d);
      for (float& value : x) value = normal(random);
    };
    fill(q, c.heads), fill(d_o, c.heads), fill(k, c.kv_heads), fill(v, c.kv_heads);
    o.resize(q.size()), dq.resize(q.size()), dk.resize(k.size()), dv.resize(v.size());
    lse.resize(c.length * c.heads), m = lse, delta = lse;
    document.assign(c.length, 0);
    for (int32_t i = 0; i < c.length; ++i) {
      k_row.push_back(i);
      q_row.push_back(c.causal ? i : int32_t(c.length));
    }
    scratch.resize(ringscope::flash::scratch_elements(c.length, c.d) + 16);
  }
  float* aligned_scratch() {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) / 64 * 64);
  }
};

void run_case(const Kernels& kernels, const Case& c) {
  Data x(c);
  const double scale = 1 / std::sqrt(double(c.d));
  ringscope::flash::Forward<float> f{};
  f.q = x.q.data(), f.k = x.k.data(), f.v = x.v.data();
  f.q_row = x.q_row.data(), f.k_row = x.k_row.data(), f.q_document = f.k_document = x.document.data();
  f.batch = 1, f.tq = f.tk = c.length, f.hq = c.heads, f.hk = c.kv_heads, f.d = c.d, f.scale = scale;
  f.mode = ringscope::flash::Mode::kOnline;
  f.o = x.o.data(), f.lse = x.lse.data(), f.m = x.m.data();
  ringscope::flash::Backward<float> b{};
  b.q = f.q, b.k = f.k, b.v = f.v, b.d_o = x.d_o.data(), b.lse = f.lse, b.delta = x.delta.data();
  b.q_row = f.q_row, b.k_row = f.k_row, b.q_document = f.q_document, b.k_document = f.k_document;
  b.batch = 1, b.tq = b.tk = c.length, b.hq = c.heads, b.hk = c.kv_heads, b.d = c.d, b.scale = scale;
  b.dq = x.dq.data(), b.dk = x.dk.data(), b.dv = x.dv.data();

  const double pairs = double(c.heads) * double(c.length) * (c.causal ? 0.5 * double(c.length + 1) : double(c.length));
  double forward = 1e9, backward = 1e9, peak = 0;
  for (int repeat = 0; repeat < 3; ++repeat) {
    peak = std::max(peak, peak_gflops(kernels.vector_bytes));
    forward = std::min(forward, seconds_of([&] { kernels.forward_f32(f, x.aligned_scratch()); }));
    backward = std::min(backward, seconds_of([&] { kernels.backward_f32(b, x.aligned_scratch()); }));
  }
  const double fwd = 4 * double(c.d) * pairs / forward * 1e-9, bwd = 10 * double(c.d) * pairs / backward * 1e-9;
  std::printf("%-8s %6lld %5lld/%-3lld %4lld %-7s %8.1f %8.1f %5.2f %8.1f %5.2f\n", kernels.isa,
              static_cast<long long>(c.length), static_cast<long long>(c.heads), static_cast<long long>(c.kv_heads),
              static_cast<long long>(c.d), c.causal ? "causal" : "full", peak, fwd, fwd / peak, bwd, bwd / peak);
}

}  // namespace

int main() {
  std::printf(
      "attention, fp32, one core, CPU time; GF/s of useful work and as a fraction of the FMA peak (best of "
      "3)\n");
  std::printf("%-8s %6s %9s %4s %-7s %8s %8s %5s %8s %5s\n", "ISA", "length", "heads/kv", "d", "mask", "peak",
              "forward", "frac", "backward", "frac");
  const Kernels& best = ringscope::flash::best();
  for (const Case& c :
       {Case{1024, 4, 4, 64, true}, Case{1024, 4, 4, 64, false}, Case{4096, 1, 1, 64, true},
        Case{1024, 4, 2, 128, true}, Case{4096, 1, 1, 128, false}, Case{128, 8, 8, 64, true}, Case{96, 4, 2, 12, true}})
    run_case(best, c);
}
