// SPDX-License-Identifier: Apache-2.0
//
// Loading a driver: none, one that has no device, one that refuses; and what its errors become.
#include "device/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

using ::testing::HasSubstr;

TEST(DriverTest, SaysWhyThereIsNone) {
  const auto driver = Driver::Load("libsegue-no-such-driver.so");
  EXPECT_EQ(driver.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(driver.status().message(), HasSubstr("no CUDA driver"));
}

TEST(DriverTest, NamesAFunctionThatALibraryLacks) {
  const auto driver = Driver::Load("libc.so.6");
  EXPECT_EQ(driver.status().code(), StatusCode::kUnsupported);
  EXPECT_THAT(driver.status().message(), HasSubstr("lacks cu"));
}

TEST(DriverTest, WithoutADeviceIsUnsupported) {
  FakeDriver fake;
  for (const char* symbol : {"cuInit", "cuDriverGetVersion", "cuDeviceGetCount"}) {
    fake.Fail(symbol, 0, CUDA_ERROR_NO_DEVICE);
    const auto driver = Driver::Load(SEGUE_FAKE_CUDA);
    EXPECT_EQ(driver.status().code(), StatusCode::kUnsupported);
    EXPECT_THAT(driver.status().message(), HasSubstr("no CUDA device"));
  }
}

// The kernels' image is of the toolkit whose header this is.
TEST(DriverTest, MustBeOfTheToolkitsMajorVersionOrNewer) {
  constexpr int kMajor = CUDA_VERSION / 1000;
  for (const int version : {kMajor * 1000, CUDA_VERSION, CUDA_VERSION + 10, kMajor * 1000 + 1000}) {
    EXPECT_TRUE(CheckDriverVersion(version).ok()) << version;
  }
  for (const int version : {kMajor * 1000 - 1, kMajor * 1000 - 910, 11'040, 0}) {
    const Status status = CheckDriverVersion(version);
    EXPECT_EQ(status.code(), StatusCode::kUnsupported);
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(kMajor) + ".0 or newer is needed"));
  }
  EXPECT_THAT(CheckDriverVersion(11'040).message(), HasSubstr("speaks version 11.4;"));
}

TEST(DriverTest, ErrorsNameTheCall) {
  FakeDriver fake;
  EXPECT_TRUE(fake.driver->Check(CUDA_SUCCESS, "cuX").ok());
  const Status memory = fake.driver->Check(CUDA_ERROR_OUT_OF_MEMORY, "cuX");
  EXPECT_EQ(memory.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(memory.message(), HasSubstr("cuX: CUDA_ERROR_OUT_OF_MEMORY"));
  EXPECT_EQ(fake.driver->Check(CUDA_ERROR_ILLEGAL_ADDRESS, "cuX").code(), StatusCode::kInternal);
}

TEST(OwnersTest, AllocationsSayHowMuchWasAskedFor) {
  FakeDriver fake;
  const InContext context(fake.driver);
  fake.Fail("cuMemAlloc_v2", 0, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(AllocateDevice(fake.driver, 777).status().message(),
              HasSubstr("777 bytes of device memory"));
  fake.Fail("cuMemHostAlloc", 0, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_THAT(AllocatePinned(fake.driver, 778).status().message(),
              HasSubstr("778 bytes of pinned host memory"));
  EXPECT_EQ(AllocateDevice(fake.driver, 0)->size, 0u);
}

}  // namespace
}  // namespace segue::cuda
