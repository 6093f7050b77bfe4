// SPDX-License-Identifier: Apache-2.0
//
// Sharing and mapping memory, within one process: what is shared of an allocation, and what is
// refused. That another process maps it, and a receiver writes to it, is in tests/cuda.
#include "segue/device_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

using testing::HasSubstr;

class DeviceMemoryTest : public testing::Test {
 protected:
  DeviceMemoryTest() { setenv("SEGUE_CUDA_DRIVER", SEGUE_FAKE_CUDA, 1); }
  ~DeviceMemoryTest() override { unsetenv("SEGUE_CUDA_DRIVER"); }

  FakeDriver fake_;
};

TEST_F(DeviceMemoryTest, SharesPartsOfAnAllocation) {
  const DeviceBytes bytes(fake_.driver, ByteVector(10'000));
  auto* const address = reinterpret_cast<const std::byte*>(bytes.address());
  const auto whole = Must(ShareDeviceMemory("cuda:0", address, 10'000));
  EXPECT_EQ(whole.offset, 0u);
  EXPECT_EQ(whole.size, 10'000u);
  const auto part = Must(ShareDeviceMemory("cuda:0", address + 100, 50));
  EXPECT_EQ(part.handle, whole.handle);
  EXPECT_EQ(part.offset, 100u);
  EXPECT_EQ(part.size, 50u);
  EXPECT_EQ(bytes.Read(), ByteVector(10'000));
}

TEST_F(DeviceMemoryTest, RefusesMemoryThatIsNotTheDevices) {
  const DeviceBytes bytes(fake_.driver, ByteVector(10'000));
  auto* const address = reinterpret_cast<const std::byte*>(bytes.address());
  const ByteVector host(10);
  for (const auto& status : {ShareDeviceMemory("cuda:0", host.data(), 10).status(),
                             ShareDeviceMemory("cuda:0", address + 1, 10'000).status()}) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.ToString();
  }
  EXPECT_EQ(ShareDeviceMemory("cuda", address, 1).status().code(), StatusCode::kOk);
  fake_.SetDevices(2);
  EXPECT_EQ(ShareDeviceMemory("cuda:1", address, 1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_FALSE(ShareDeviceMemory("cuda:3", address, 1).ok());
  EXPECT_EQ(ShareDeviceMemory("gpu", address, 1).status().code(), StatusCode::kUnsupported);
}

// As memory of a pool is.
TEST_F(DeviceMemoryTest, MemoryThatHasNoHandleIsUnsupported) {
  const DeviceBytes bytes(fake_.driver, ByteVector(100));
  fake_.Fail("cuIpcGetMemHandle", 0, CUDA_ERROR_INVALID_VALUE);
  const auto status =
      ShareDeviceMemory("cuda:0", reinterpret_cast<const std::byte*>(bytes.address()), 100)
          .status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("cannot be shared"));
}

TEST_F(DeviceMemoryTest, MapsNeitherItsOwnMemoryNorWhatIsNoHandle) {
  const DeviceBytes bytes(fake_.driver, ByteVector(100));
  const auto share =
      Must(ShareDeviceMemory("cuda:0", reinterpret_cast<const std::byte*>(bytes.address()), 100));
  for (const DeviceMemoryShare& wrong : {share, DeviceMemoryShare()}) {
    const auto mapping = DeviceMapping::Open("cuda:0", wrong);
    EXPECT_FALSE(mapping.ok());
    EXPECT_THAT(mapping.status().message(), HasSubstr("memory of another process"));
  }
  EXPECT_EQ(DeviceMapping::Open("gpu", share).status().code(), StatusCode::kUnsupported);
}

}  // namespace
}  // namespace segue::cuda
