// A ring file of any content is refused or read to its end within its own bytes.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input_file.h"
#include "tests/fuzz/recorded_ring.h"

using namespace ringscope;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile file(data, size);
  auto ring = RingReader::open(file.path());
  if (!ring) return 0;
  uint64_t visited = 0, last = 0;
  ring->for_each(0, [&](const Group& group) {
    ++visited;
    last = group.seq;
    ring->to_ns(group.ticks);
  });
  if (visited > 0) ring->for_each(last, [](const Group&) {});
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const auto& [mode, records] :
       {std::pair{SpoolMode::kFlight, 20}, {SpoolMode::kFlight, 500}, {SpoolMode::kStream, 30}}) {
    seeds.push_back(fuzz::record_ring(mode, records).at("ring"));
    seeds.push_back(fuzz::without_seals(seeds.back()));
  }
  return seeds;
}
