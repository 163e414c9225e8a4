#include "runtime/train/rank_values.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/device/inside_launch.h"
#include "runtime/model/parameters.h"

namespace ringscope {
namespace {

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double x, double y) { return std::bit_cast<uint64_t>(x) == std::bit_cast<uint64_t>(y); });
}

// Multiplications carry differences upwards, the shift brings them down.
uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15;
  return hash ^ hash >> 29;
}

uint64_t hash_bytes(uint64_t hash, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, from + at, std::min<size_t>(8, bytes - at));
    hash = mix(hash, word);
  }
  return mix(hash, bytes);
}

}  // namespace

bool RankValues::operator==(const RankValues& other) const {
  return split == other.split && replicated == other.replicated && same_bits(losses, other.losses) &&
         same_bits(grad_norms, other.grad_norms);
}

void hash_parameters(ParameterStore& store, RankValues& into) {
  InsideLaunch mark;
  for (const Parameter& parameter : store.all()) {
    uint64_t& hash = parameter.spec.replicated ? into.replicated : into.split;
    hash = hash_bytes(hash, parameter.value.data<std::byte>(), size_t(parameter.value.bytes()));
  }
}

}  // namespace ringscope
