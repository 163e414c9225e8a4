// Bytes flipped anywhere in the files of a recording. A clean run is never accused, and in a stalled one nobody
// but whom the whole recording accuses.
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

#include "probes/recorder/recorder.h"
#include "runtime/fault/fault.h"
#include "tests/tools/spool/recorded_job.h"
#include "tests/tracedb/scratch.h"
#include "tools/analyze/analyze.h"
#include "tracedb/import/registry.h"
#include "tracedb/spool/spool.h"

namespace ringscope {
namespace {

using Files = std::map<std::string, std::string>;  // path -> bytes

Files read_files(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().string()].assign(std::istreambuf_iterator<char>(in), {});
  }
  return files;
}

void overwrite(const std::string& path, const std::string& bytes) {
  std::fstream(path, std::ios::binary | std::ios::in | std::ios::out) << bytes;
}

// Flips bytes in one to four files, in the stretch of each that holds something.
std::vector<std::string> damage(const Files& files, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::string> touched;
  for (uint32_t n = 1 + random() % 4; n > 0; --n) {
    auto [path, bytes] = *std::next(files.begin(), int(random() % files.size()));
    size_t used = bytes.find_last_not_of('\0') + 1;  // npos + 1 = 0
    if (used == 0) continue;
    const bool header = path.ends_with(".ring") && random() % 4 == 0;
    if (header) used = sizeof(RingHeader);
    for (uint32_t flips = 1 + random() % 30; flips > 0; --flips) {
      char& byte = bytes[random() % used];
      byte = char(seed % 2 ? byte ^ (1 << random() % 8) : random());
    }
    overwrite(path, bytes);
    touched.push_back(path);
  }
  return touched;
}

class DamagedSpool : public testing::TestWithParam<int> {};

TEST_P(DamagedSpool, NeverAccuses) {
  for (const char* fault : {"", "ring-early-exit:step=2"}) {
    const Scratch scratch;
    JobConfig config = tiny_job(1, 4, 4);
    if (*fault) config.fault = *parse_fault(fault);
    const std::string spool = scratch / "s";
    record_job(config, spool, GetParam(), 256 * 1024);
    const Files files = read_files(spool);
    auto whole = load_paths({spool});
    ASSERT_TRUE(whole) << whole.error().message;
    const Report expected = analyze(*whole);
    ASSERT_EQ(expected.findings.empty(), !*fault);
    int lossy = 0, refused = 0;
    for (uint32_t seed = 0; seed < 40; ++seed) {
      SCOPED_TRACE(std::string(fault) + " seed " + std::to_string(seed));
      const std::vector<std::string> touched = damage(files, seed);
      auto view = load_paths({spool});
      for (const std::string& path : touched) overwrite(path, files.at(path));
      if (!view) {
        ++refused;
        continue;
      }
      lossy += !view->lost.empty();
      for (const Finding& f : analyze(*view).findings) {
        if (!f.root || f.id == "hang.undecided") continue;
        ASSERT_TRUE(*fault) << f.id << ": " << f.sentence;
        if (f.ranks.empty()) continue;  // something is told, and nobody is accused of it
        EXPECT_EQ(f.ranks, expected.findings[0].ranks) << f.id << ": " << f.sentence;
      }
    }
    EXPECT_GT(lossy, 4);  // many flips change nothing: a drained record lies in the ring too; how many, timing decides
    EXPECT_LT(refused, 10);
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, DamagedSpool, testing::Values(int(RS_MODE_FLIGHT), int(RS_MODE_STREAM)),
                         [](const auto& info) { return info.param == RS_MODE_STREAM ? "stream" : "flight"; });

}  // namespace
}  // namespace ringscope
