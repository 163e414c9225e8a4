// A spool folder whose files hold anything is refused or read to its end.
// Input: files one behind the other, each as one byte that picks its name, four bytes of length, and its content.
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/recorded_ring.h"

using namespace ringscope;

namespace {

const char* const kNames[] = {"ring-000001.ring", "ring-000001.seg", "ring-000001.def",
                              "process-000000000000004d.names", "ring-000002.ring"};

class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/ringscope-fuzz-XXXXXX";
    if (mkdtemp(pattern)) path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }
  void clear() {
    for (const char* name : kNames) std::filesystem::remove(path_ + "/" + name);
  }

 private:
  std::string path_;
};

void append(std::string& input, size_t name, const std::string& bytes) {
  const auto size = uint32_t(bytes.size());
  input += char(name);
  input.append(reinterpret_cast<const char*>(&size), sizeof size);
  input += bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Folder folder;
  folder.clear();
  while (size > 5) {
    const char* name = kNames[data[0] % std::size(kNames)];
    uint32_t bytes = 0;
    std::memcpy(&bytes, data + 1, sizeof bytes);
    data += 5, size -= 5;
    bytes = std::min(bytes, uint32_t(size));
    std::ofstream(folder.path() + "/" + name, std::ios::binary).write(reinterpret_cast<const char*>(data), bytes);
    data += bytes, size -= bytes;
  }
  auto contents = read_spool(folder.path());
  if (!contents) return 0;
  for (const RingReader& ring : contents->rings) {
    uint64_t visited = 0;
    ring.for_each(1, [&](const Group& group) {
      ++visited;
      ring.to_ns(group.ticks);
    });
    if (visited != ring.loss().recovered) abort();
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds;
  for (const auto& [mode, records] : {std::pair{SpoolMode::kFlight, 300}, {SpoolMode::kStream, 60}}) {
    const auto files = fuzz::record_ring(mode, records);
    std::string& sealed = seeds.emplace_back();
    append(sealed, 0, files.at("ring"));
    if (files.contains("seg")) append(sealed, 1, files.at("seg"));
    append(sealed, 2, files.at("def"));
    std::string& unsealed = seeds.emplace_back();
    append(unsealed, 0, fuzz::without_seals(files.at("ring")));
    append(unsealed, 4, files.at("ring"));
  }
  return seeds;
}
