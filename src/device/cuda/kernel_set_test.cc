// SPDX-License-Identifier: Apache-2.0
//
// The kernels' image, and launches: one warp a row, whatever the count of rows; decoders too.
#include "device/cuda/kernel_set.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/digest.h"
#include "base/random.h"
#include "codec/block_codec.h"
#include "device/cuda/kernels_image.h"
#include "device/cuda/testing.h"

namespace segue::cuda {
namespace {

// The magic number at the head of every fat binary that nvcc makes.
TEST(KernelsImageTest, IsAFatBinary) {
  std::uint32_t magic = 0;
  std::memcpy(&magic, KernelsImage(), sizeof(magic));
  EXPECT_EQ(magic, 0xba55ed50u);
}

TEST(KernelSetTest, ScansEveryRow) {
  FakeDriver fake;
  const InContext context(fake.driver);
  const Stream stream = Must(MakeStream(fake.driver, StreamPriority::kGreatest));
  const KernelSet kernels = Must(KernelSet::Load(fake.driver, stream.get()));
  std::vector<std::byte> bytes(4096, std::byte{9});
  const DeviceBytes live(fake.driver, bytes);
  for (const std::uint64_t count : {0u, 1u, 7u, 8u, 9u, 100u, 700u, 1281u}) {
    std::vector<DenseRow> rows(count);
    for (DenseRow& row : rows) {
      row = {};
      row.place.live = live.data();
      row.place.size = bytes.size();
      row.place.width = 1;
      for (unsigned lane = 0; lane < 2; ++lane) row.place.tensor_key[lane] = Mix64(lane);
    }
    std::vector<std::byte> packed(count * sizeof(DenseRow) + 1);
    if (count != 0) std::memcpy(packed.data(), rows.data(), count * sizeof(DenseRow));
    const DeviceBytes device_rows(fake.driver, packed);
    const DeviceBytes device_sums(fake.driver, ByteVector(count * sizeof(RowSums) + 1));
    ASSERT_TRUE(kernels
                    .Launch(Kernel::kDenseScan, device_rows.address(), count, device_sums.address(),
                            stream.get())
                    .ok());
    ASSERT_EQ(fake.driver->cuStreamSynchronize(stream.get()), CUDA_SUCCESS);
    const ByteVector read = device_sums.Read();
    for (std::uint64_t i = 0; i < count; ++i) {
      RowSums sums;
      std::memcpy(&sums, read.data() + i * sizeof(sums), sizeof(sums));
      EXPECT_EQ((Digest{{sums.before[0], sums.before[1]}}), DigestBytes(0, 0, bytes));
    }
  }
}

// Blocks of one content, some of them cut short, decoded by one launch.
void ExpectDecoded(Kernel kernel, ByteSpan block, const ByteVector& content) {
  FakeDriver fake;
  const InContext context(fake.driver);
  const Stream stream = Must(MakeStream(fake.driver, StreamPriority::kGreatest));
  const KernelSet kernels = Must(KernelSet::Load(fake.driver, stream.get()));
  constexpr std::size_t kCount = 21;
  const DeviceBytes source(fake.driver, block);
  const DeviceBytes target(fake.driver, ByteVector(kCount * content.size()));
  std::vector<DecodeRow> rows(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    rows[i] = {reinterpret_cast<const std::byte*>(source.address()),
               block.size() - (i % 4 == 3 ? 1 : 0),
               reinterpret_cast<std::byte*>(target.address()) + i * content.size(), content.size()};
  }
  const DeviceBytes device_rows(fake.driver, std::as_bytes(std::span(rows)));
  const DeviceBytes results(fake.driver, ByteVector(kCount * sizeof(DecodeResult)));
  ASSERT_TRUE(
      kernels.Launch(kernel, device_rows.address(), kCount, results.address(), stream.get()).ok());
  ASSERT_EQ(fake.driver->cuStreamSynchronize(stream.get()), CUDA_SUCCESS);
  const ByteVector found = results.Read();
  const ByteVector decoded = target.Read();
  for (std::size_t i = 0; i < kCount; ++i) {
    DecodeResult result;
    std::memcpy(&result, found.data() + i * sizeof(result), sizeof(result));
    EXPECT_EQ(result.status == DecodeStatus::kDecoded, i % 4 != 3);
    if (i % 4 == 3) continue;
    EXPECT_EQ(result.written, content.size());
    EXPECT_EQ(std::memcmp(decoded.data() + i * content.size(), content.data(), content.size()), 0);
  }
}

TEST(KernelSetTest, DecodesEveryRow) {
  ByteVector content(5000);
  for (std::size_t i = 0; i < content.size(); i += 70) content[i] = static_cast<std::byte>(i);
  ByteVector block(Lz4Bound(content.size()) + SnappyBound(content.size()));
  ExpectDecoded(Kernel::kSnappyDecode, ByteSpan(block).first(SnappyCompress(content, block)),
                content);
  ExpectDecoded(Kernel::kLz4Decode, ByteSpan(block).first(Lz4Compress(content, block)), content);
}

TEST(KernelLaunchTest, FewRowsAreSpreadOverTheMultiprocessors) {
  EXPECT_EQ(WarpsPerBlock(0), 1u);
  EXPECT_EQ(WarpsPerBlock(160), 1u);
  EXPECT_EQ(WarpsPerBlock(2 * 160), 2u);
  EXPECT_EQ(WarpsPerBlock(2 * 160 - 2), 1u);
  EXPECT_EQ(WarpsPerBlock(1024), 4u);
  EXPECT_EQ(WarpsPerBlock(8 * 160), 8u);
  EXPECT_EQ(WarpsPerBlock(1'000'000), 8u);
}

// A driver that loads kernels lazily has nothing left to load, and nothing left to fail.
TEST(KernelSetTest, LoadingLaunchesEachKernelOnce) {
  FakeDriver fake;
  const InContext context(fake.driver);
  const Stream stream = Must(MakeStream(fake.driver, StreamPriority::kGreatest));
  {
    const KernelSet kernels = Must(KernelSet::Load(fake.driver, stream.get()));
    EXPECT_EQ(fake.Count().launches, kKernelCount);
  }
  for (unsigned i = 0; i < kKernelCount; ++i) {
    fake.Fail("cuLaunchKernel", i, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(KernelSet::Load(fake.driver, stream.get()).status().code(),
              StatusCode::kResourceExhausted);
  }
}

TEST(KernelSetTest, AnImageThatTheDriverRefusesIsSaid) {
  FakeDriver fake;
  const InContext context(fake.driver);
  const Stream stream = Must(MakeStream(fake.driver, StreamPriority::kGreatest));
  fake.Fail("cuModuleLoadData", 0, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_FALSE(KernelSet::Load(fake.driver, stream.get()).ok());
}

}  // namespace
}  // namespace segue::cuda
