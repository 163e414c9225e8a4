// CUPTI and NCCL linked directly, as a CUDA build does, and asked for their versions: works without a GPU.
#include <cupti.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include "probes/cupti/cupti_probe.h"
#include "probes/nccl/nccl_probe.h"

namespace ringscope {
namespace {

TEST(CudaLink, CuptiVersionMatchesItsHeader) {
  uint32_t version = 0;
  ASSERT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);
  std::printf("CUPTI %u\n", version);
  EXPECT_EQ(version / 10000, uint32_t(CUPTI_API_VERSION) / 10000) << "headers and library of different CUDA majors";
  EXPECT_EQ(cupti_status(RINGSCOPE_CUPTI_LIBRARY).version, version);
}

TEST(CudaLink, NcclVersionMatchesItsHeader) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  std::printf("NCCL %s\n", nccl_version_text(version).c_str());
  EXPECT_EQ(version, NCCL_VERSION_CODE);
  EXPECT_EQ(nccl_status(RINGSCOPE_NCCL_LIBRARY).version, version);
}

}  // namespace
}  // namespace ringscope
