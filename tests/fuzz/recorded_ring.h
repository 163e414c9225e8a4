// The files of a small ring as the recorder leaves them: seeds.
#pragma once

#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>

#include "tracedb/spool/spool.h"

namespace ringscope::fuzz {

// By suffix: "ring", and where there is one "seg" and "def". Some records take one slot, some two, some are definitions;
// wrapped around or not, partly drained in stream mode.
inline std::map<std::string, std::string> record_ring(SpoolMode mode, int records) {
  char dir[] = "/tmp/ringscope-fuzz-XXXXXX";
  if (mkdtemp(dir) == nullptr) return {};
  RingOptions options;
  options.dir = dir;
  options.mode = mode;
  options.capacity = 64;
  options.rank = 3;
  options.thread_name = "rank3.host";
  options.process_token = 77;
  int error = 0;
  {
    const std::unique_ptr<Ring> ring(Ring::create(options, &error));
    const uint64_t words[2 * kPayloadWords] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    for (int i = 0; ring && i < records; ++i) {
      const uint64_t ticks = uint64_t(i) * 100 + 1;
      if (i % 7 == 0) ring->define(ticks, uint16_t(RecordKind::kStream), 0, 2, words, 1);
      else ring->emit(ticks, uint16_t(1 + i % 5), 0, 2, words, i % 3 == 0 ? 10 : 5);
      uint64_t moved = 0;
      if (i == records / 2) ring->drain(&moved);
    }
  }
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().extension().string().substr(1)].assign(std::istreambuf_iterator<char>(in), {});
  }
  std::filesystem::remove_all(dir);
  return files;
}

// As version 1 wrote it: nothing seals its records, so that mutations reach what lies behind the seals.
inline std::string without_seals(std::string ring) {
  const uint32_t version = 1;
  std::memcpy(&ring[offsetof(RingHeader, version)], &version, sizeof version);
  for (size_t at = kSpoolHeaderBytes; at + kRecordBytes <= ring.size(); at += kRecordBytes)
    std::memset(&ring[at + 4], 0, 4);
  return ring;
}

}  // namespace ringscope::fuzz
