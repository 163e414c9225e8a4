// The CUPTI and NCCL probes: what they say on a machine with, and without, the libraries, a driver or a GPU.
#include <gtest/gtest.h>

#include "probes/cupti/cupti_probe.h"
#include "probes/nccl/nccl_probe.h"

namespace ringscope {
namespace {

TEST(CuptiProbe, AMissingLibraryIsAbsentAndSaysWhy) {
  const CuptiStatus status = cupti_status("/nonexistent/libcupti.so");
  EXPECT_FALSE(status.usable);
  EXPECT_EQ(status.version, 0u);
  EXPECT_FALSE(status.why.empty());
}

TEST(CuptiProbe, AForeignLibraryIsAbsent) {
  const CuptiStatus status = cupti_status("libm.so.6");
  EXPECT_FALSE(status.usable);
  EXPECT_FALSE(status.why.empty());
}

// Holds on every machine: either the subscription was granted, or the code and the reason are kept.
TEST(CuptiProbe, EveryAnswerIsUsableOrExplained) {
  const CuptiStatus status = cupti_status(RINGSCOPE_CUPTI_LIBRARY);
  std::printf("CUPTI: built for %u, loaded %u, subscribe %d, %s\n", status.built_for, status.version,
              status.subscribe_code, status.usable ? "usable" : status.why.c_str());
  EXPECT_EQ(status.usable, status.why.empty());
  if (status.usable) {
    EXPECT_GT(status.version, 0u);
    EXPECT_EQ(status.subscribe_code, 0);
  }
}

TEST(NcclProbe, AMissingOrForeignLibrarySaysWhy) {
  EXPECT_EQ(nccl_status("/nonexistent/libnccl.so").version, 0);
  EXPECT_FALSE(nccl_status("/nonexistent/libnccl.so").why.empty());
  EXPECT_EQ(nccl_status("libm.so.6").version, 0);
}

TEST(NcclProbe, EveryAnswerIsAVersionOrExplained) {
  const NcclStatus status = nccl_status(RINGSCOPE_NCCL_LIBRARY);
  std::printf("NCCL: built for %d, loaded %d %s\n", status.built_for, status.version, status.why.c_str());
  EXPECT_EQ(status.version != 0, status.why.empty());
}

TEST(NcclProbe, VersionCodesReadAsNcclCountsThem) {
  EXPECT_EQ(nccl_version_text(22809), "2.28.9");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
  EXPECT_EQ(nccl_version_text(20903), "2.9.3");
}

}  // namespace
}  // namespace ringscope
