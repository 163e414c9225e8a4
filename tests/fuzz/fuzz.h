// What a fuzz target defines. It is linked with one of two drivers:
//   libfuzzer_driver.cc  preset fuzz (clang): coverage-guided, starting from the seeds
//   replay_driver.cc     every other preset: the seeds and some thousand fixed mutations of them, as a test
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Feeds one input. Must not leak, crash or print; whatever the code under test refuses is fine.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Valid inputs to start from.
std::vector<std::string> fuzz_seeds();
