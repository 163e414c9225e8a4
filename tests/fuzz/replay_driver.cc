// Replays the seeds and fixed mutations of them: the same inputs in every run and on every machine.
// With files as arguments it feeds those instead: how a crash that libFuzzer found is reproduced.
#include <cstdio>
#include <fstream>
#include <iterator>

#include "tests/fuzz/fuzz.h"

namespace {

constexpr int kMutationsPerSeed = 1500;

class Random {  // splitmix64
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
  }
  size_t below(size_t bound) { return bound == 0 ? 0 : size_t(next() % bound); }

 private:
  uint64_t state_;
};

void mutate_once(std::string& input, Random& random) {
  static const uint64_t kEdges[] = {0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, ~uint64_t{0}};
  const size_t at = random.below(input.size());
  switch (random.below(6)) {
    case 0:
      if (!input.empty()) input[at] = char(input[at] ^ (1 << random.below(8)));
      break;
    case 1:
      if (!input.empty()) input[at] = char(random.next());
      break;
    case 2: input.resize(at); break;
    case 3: input.insert(at, input.substr(random.below(input.size()), random.below(64))); break;
    case 4: input.erase(at, random.below(32)); break;
    case 5: {  // an edge value of 1 to 8 bytes, where lengths and counts break
      const uint64_t value = kEdges[random.below(std::size(kEdges))];
      const size_t width = size_t{1} << random.below(4);
      for (size_t i = 0; i < width && at + i < input.size(); ++i) input[at + i] = char(value >> (8 * i));
      break;
    }
  }
}

void feed(const std::string& input) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot read %s\n", argv[i]);
      return 3;
    }
    feed(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (argc > 1) return 0;

  const std::vector<std::string> seeds = fuzz_seeds();
  if (seeds.empty()) {
    std::fprintf(stderr, "the target has no seeds\n");
    return 1;
  }
  Random random(1);
  feed("");
  for (const std::string& seed : seeds) {
    feed(seed);
    for (int i = 0; i < kMutationsPerSeed; ++i) {
      std::string input = seed;
      for (size_t n = 1 + random.below(4); n > 0; --n) mutate_once(input, random);
      feed(input);
    }
  }
  std::printf("%zu seeds, %d mutations each\n", seeds.size(), kMutationsPerSeed);
  return 0;
}
