// Statistics of parameters: a checksum that a replica cannot slip past, norms and counts.
#include "runtime/train/tensor_stats.h"

#include <gtest/gtest.h>

#include <bit>

#include <cmath>
#include <limits>
#include <random>
#include <set>

namespace ringscope {
namespace {

template <class T>
std::vector<T> random_values(size_t n) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::vector<T> values(n);
  for (T& v : values) v = T(normal(random));
  return values;
}

template <class T>
uint64_t checksum(const std::vector<T>& values) {
  return tensor_stat(std::span<const T>(values)).checksum;
}

// Every single and double flip of sign or of lowest bit, all signs at once, and exchanged neighbours.
template <class T, class Bits>
void expect_changes_show(size_t n) {
  const std::vector<T> values = random_values<T>(n);
  const uint64_t right = checksum(values);
  EXPECT_EQ(checksum(std::vector<T>(values)), right);
  const Bits kSign = Bits(1) << (8 * sizeof(Bits) - 1);
  for (const Bits bit : {kSign, Bits(1)})
    for (size_t i = 0; i < n; ++i)
      for (size_t j = i; j < n; ++j) {
        std::vector<T> changed = values;
        for (const size_t at : std::set<size_t>{i, j})
          changed[at] = std::bit_cast<T>(Bits(std::bit_cast<Bits>(changed[at]) ^ bit));
        ASSERT_NE(checksum(changed), right) << i << " " << j;
      }
  std::vector<T> negated = values;
  for (T& v : negated) v = -v;
  EXPECT_NE(checksum(negated), right);
  for (size_t i = 0; i + 1 < n; ++i) {
    std::vector<T> swapped = values;
    std::swap(swapped[i], swapped[i + 1]);
    EXPECT_NE(checksum(swapped), right) << i;
  }
}

TEST(TensorStat, ChecksumSeesEveryChange) {
  for (size_t n : {1, 7, 16, 64, 67}) {
    expect_changes_show<float, uint32_t>(n);
    expect_changes_show<double, uint64_t>(n);
  }
}

TEST(TensorStat, NormAndBadValues) {
  const std::vector<float> values = random_values<float>(1003);
  double squares = 0;
  for (const float v : values) squares += double(v) * v;
  const TensorStat stat = tensor_stat(std::span<const float>(values));
  EXPECT_NEAR(stat.norm, std::sqrt(squares), 1e-12);
  EXPECT_EQ(stat.bad, 0u);
  std::vector<float> broken = values;
  broken[5] = std::numeric_limits<float>::quiet_NaN();
  broken[900] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(tensor_stat(std::span<const float>(broken)).bad, 2u);
  EXPECT_EQ(tensor_stat(std::span<const float>()).norm, 0);
}

// What is a sum of tensors has the sum of their projections, to the rounding of its elements; what is not, has not.
TEST(TensorStat, ProjectionsAddUp) {
  for (const size_t n : {size_t(1), size_t(67), size_t(1024), size_t(5000)}) {
    std::vector<float> a = random_values<float>(n), b(a.rbegin(), a.rend()), sum(n), half(n);
    for (size_t i = 0; i < n; ++i) sum[i] = a[i] + b[i], half[i] = i < n / 2 ? sum[i] : a[i];
    const auto of = [](const std::vector<float>& v) { return tensor_stat(std::span<const float>(v)); };
    const double bound = 0x1p-24 * std::sqrt(double(n)) * (of(a).norm + of(b).norm);
    EXPECT_NEAR(of(sum).projection, of(a).projection + of(b).projection, bound) << n;
    EXPECT_GT(std::fabs(of(half).projection - of(a).projection - of(b).projection), 100 * bound) << n;
    std::vector<float> swapped = sum;
    std::swap(swapped[0], swapped[n - 1]);
    if (n > 1 && swapped[0] != sum[0]) {
      EXPECT_GT(std::fabs(of(swapped).projection - of(sum).projection), bound) << n;
    }
  }
}

}  // namespace
}  // namespace ringscope
