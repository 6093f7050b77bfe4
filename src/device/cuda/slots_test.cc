// SPDX-License-Identifier: Apache-2.0
//
// Slots and uploads: pieces of all sizes arrive whole and aligned, though the device reads a slot
// long after it was filled.
#include "device/cuda/slots.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

class SlotsTest : public ::testing::Test {
 protected:
  FakeDriver fake_;
  InContext context_{fake_.driver};
  Stream stream_ = Must(MakeStream(fake_.driver, StreamPriority::kLeast));
};

TEST_F(SlotsTest, TakesTurnsAndWaitsForTheDevice) {
  Slots slots = Must(Slots::Make(fake_.driver, 64));
  const DeviceBuffer target = Must(AllocateDevice(fake_.driver, 64 * 5));
  for (unsigned i = 0; i < 5; ++i) {
    std::byte* const slot = Must(slots.Next());
    std::fill_n(slot, 64, static_cast<std::byte>(i));
    ASSERT_EQ(fake_.driver->cuMemcpyHtoDAsync(target.address() + 64 * i, slot, 64, stream_.get()),
              CUDA_SUCCESS);
    ASSERT_TRUE(slots.Release(stream_.get()).ok());
  }
  std::vector<std::byte> read(64 * 5);
  ASSERT_EQ(
      fake_.driver->cuMemcpyDtoHAsync(read.data(), target.address(), read.size(), stream_.get()),
      CUDA_SUCCESS);
  ASSERT_EQ(fake_.driver->cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  for (unsigned i = 0; i < read.size(); ++i) EXPECT_EQ(read[i], static_cast<std::byte>(i / 64));
}

TEST_F(SlotsTest, PiecesArriveWholeAndAligned) {
  Random random(1);
  Slots slots = Must(Slots::Make(fake_.driver, 1000));
  const DeviceBuffer target = Must(AllocateDevice(fake_.driver, 200'000));
  Uploader uploader(fake_.driver, slots, target.address(), stream_.get());
  std::vector<std::byte> expected(target.size);
  std::uint64_t end = 0;
  for (int i = 0; i < 100; ++i) {
    std::vector<std::byte> piece(random.Below(i % 10 == 0 ? 5000 : 200));
    for (std::byte& byte : piece) byte = static_cast<std::byte>(random.Next());
    const std::uint64_t alignment = std::uint64_t{1} << random.Below(9);
    const CUdeviceptr address = Must(uploader.Append(piece.data(), piece.size(), alignment));
    const std::uint64_t place = address - target.address();
    EXPECT_EQ(address % alignment, 0u);
    EXPECT_GE(place, end);
    std::ranges::copy(piece, expected.begin() + static_cast<std::ptrdiff_t>(place));
    end = place + piece.size();
  }
  ASSERT_TRUE(uploader.Finish().ok());
  std::vector<std::byte> read(end);
  ASSERT_EQ(fake_.driver->cuMemcpyDtoHAsync(read.data(), target.address(), end, stream_.get()),
            CUDA_SUCCESS);
  ASSERT_EQ(fake_.driver->cuStreamSynchronize(stream_.get()), CUDA_SUCCESS);
  expected.resize(end);
  EXPECT_EQ(read, expected);
}

}  // namespace
}  // namespace segue::cuda
