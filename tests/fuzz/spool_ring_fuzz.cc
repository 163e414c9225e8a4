// A ring file of any content is refused or read to its end within its own bytes.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/input_file.h"
#include "tracedb/spool/spool.h"

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

namespace {

// A small ring as the recorder leaves it: some single records, some of two slots, wrapped around or not.
std::string ring_bytes(SpoolMode mode, int records) {
  char dir[] = "/tmp/ringscope-fuzz-XXXXXX";
  if (mkdtemp(dir) == nullptr) return {};
  std::string bytes;
  {
    RingOptions options;
    options.dir = dir;
    options.mode = mode;
    options.capacity = 64;
    options.rank = 3;
    options.thread_name = "rank3.host";
    options.process_token = 77;
    int error = 0;
    const std::unique_ptr<Ring> ring(Ring::create(options, &error));
    const uint64_t words[2 * kPayloadWords] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    for (int i = 0; ring && i < records; ++i) {
      ring->emit(uint64_t(i) * 100 + 1, uint16_t(1 + i % 5), 0, 2, words, i % 3 == 0 ? 10 : 5);
    }
  }
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".ring") continue;
    std::ifstream in(entry.path(), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  std::filesystem::remove_all(dir);
  return bytes;
}

}  // namespace

std::vector<std::string> fuzz_seeds() {
  return {ring_bytes(SpoolMode::kFlight, 20), ring_bytes(SpoolMode::kFlight, 500), ring_bytes(SpoolMode::kStream, 30)};
}
