// SPDX-License-Identifier: Apache-2.0
//
// Accelerators by name, on the fake driver, which has one device.
#include <gtest/gtest.h>

#include <cstdlib>

#include "device/accelerator.h"
#include "device/cuda/named_device.h"
#include "device/cuda/testing.h"
#include "device/differ.h"

namespace segue::cuda {
namespace {

TEST(OpenAcceleratorTest, TakesTheNamesOfTheDriversDevicesAlone) {
  FakeDriver fake;
  setenv("SEGUE_CUDA_DRIVER", SEGUE_FAKE_CUDA, 1);
  for (const char* name : {"cuda", "cuda:0"}) {
    EXPECT_TRUE(OpenAccelerator(name, 1).ok()) << name;
    EXPECT_TRUE(OpenDiffer(name, {.chunk_size_max = 65536}).ok()) << name;
    EXPECT_EQ(Must(FindNamedDevice(name)).ordinal, 0);
  }
  for (const char* name : {"", "cuda:", "cuda:1", "cuda:-1", "cuda:0x", "cuda0", "CUDA:0"}) {
    EXPECT_FALSE(OpenAccelerator(name, 1).ok()) << name;
    EXPECT_FALSE(OpenDiffer(name, {.chunk_size_max = 65536}).ok()) << name;
  }
  const Status absent = OpenAccelerator("cuda:7", 1).status();
  EXPECT_EQ(absent.code(), StatusCode::kUnsupported);
  EXPECT_EQ(absent.message(), "no device 'cuda:7': the driver has 1");
  unsetenv("SEGUE_CUDA_DRIVER");
}

TEST(OpenAcceleratorTest, WithoutADriverIsUnsupported) {
  setenv("SEGUE_CUDA_DRIVER", "libsegue-no-such-driver.so", 1);
  EXPECT_EQ(OpenAccelerator("cuda:0", 1).status().code(), StatusCode::kUnsupported);
  unsetenv("SEGUE_CUDA_DRIVER");
}

}  // namespace
}  // namespace segue::cuda
