// SPDX-License-Identifier: Apache-2.0
//
// Host device: batches of chunks. Method: a batch of every encoding is preflighted and applied with
// 1 to 5 threads; then one chunk's live byte, data or stated digest is wrong, and the fault must
// name that chunk and that side, with nothing written. src/delta tests hold whole payloads against
// it.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "codec/block_codec.h"
#include "device/device.h"

namespace segue {
namespace {

constexpr std::size_t kChunkSize = 8192;
constexpr unsigned kWidth = 2;

// Chunks of one tensor, each in another encoding, over and over.
class Batch {
 public:
  explicit Batch(std::size_t count) : base_(count * kChunkSize), target_(base_.size()) {
    Random random(1);
    for (std::byte& byte : base_) byte = static_cast<std::byte>(random.Next());
    for (std::size_t i = 0; i < base_.size(); ++i) {
      target_[i] = base_[i] ^ static_cast<std::byte>(random.Below(50) == 0 ? 3 : 0);
    }
    target_.front() = base_.front() ^ std::byte{1};
    live = base_;
    data_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) Add(i);
  }

  const ByteVector& base() const { return base_; }
  const ByteVector& target() const { return target_; }

  ByteVector live;
  std::vector<ChunkWork> work;

 private:
  void Add(std::size_t i) {
    constexpr DeviceEncoding kEncodings[] = {DeviceEncoding::kPlanes, DeviceEncoding::kSnappy,
                                             DeviceEncoding::kLz4, DeviceEncoding::kZstd,
                                             DeviceEncoding::kRaw};
    const std::size_t offset = i * kChunkSize;
    ByteVector mask(kChunkSize);
    for (std::size_t k = 0; k < kChunkSize; ++k) mask[k] = base_[offset + k] ^ target_[offset + k];
    ChunkWork chunk;
    chunk.encoding = kEncodings[i % std::size(kEncodings)];
    chunk.width = kWidth;
    chunk.key = {4, offset / kDigestBlockSize};
    chunk.live = live.data() + offset;
    chunk.size = kChunkSize;
    chunk.before = DigestBytes(4, offset, ByteSpan(base_).subspan(offset, kChunkSize));
    chunk.after = DigestBytes(4, offset, ByteSpan(target_).subspan(offset, kChunkSize));
    data_.push_back(Encode(chunk.encoding, mask, ByteSpan(target_).subspan(offset, kChunkSize)));
    if (chunk.encoding == DeviceEncoding::kPlanes) {
      chunk.sparse.plane[0] = data_.back().data();
      chunk.sparse.plane[1] = data_.back().data() + kChunkSize / kWidth;
    } else {
      chunk.dense = data_.back();
    }
    work.push_back(chunk);
  }

  static ByteVector Encode(DeviceEncoding encoding, ByteSpan mask, ByteSpan target) {
    ByteVector data(2 * kChunkSize);
    switch (encoding) {
      case DeviceEncoding::kSnappy: data.resize(SnappyCompress(mask, data)); break;
      case DeviceEncoding::kLz4: data.resize(Lz4Compress(mask, data)); break;
      case DeviceEncoding::kZstd: data.resize(ZstdCompressor().Compress(mask, data).value()); break;
      case DeviceEncoding::kRaw: data.assign(target.begin(), target.end()); break;
      default: {
        data.resize(kChunkSize);
        std::byte* planes[] = {data.data(), data.data() + kChunkSize / kWidth};
        host::ActiveKernels().split_planes(mask.data(), kChunkSize / kWidth, kWidth, planes);
      }
    }
    return data;
  }

  ByteVector base_;
  ByteVector target_;
  std::vector<ByteVector> data_;
};

TEST(HostDeviceTest, PreflightsAndAppliesEveryEncodingWithAnyThreads) {
  for (const unsigned threads : {1u, 2u, 5u}) {
    Batch batch(43);
    const auto device = MakeHostDevice(threads);
    device->Reserve(kChunkSize);
    ASSERT_FALSE(device->Preflight(batch.work).has_value());
    EXPECT_EQ(batch.live, batch.base());
    ASSERT_FALSE(device->Apply(batch.work).has_value());
    EXPECT_EQ(batch.live, batch.target());
  }
}

TEST(HostDeviceTest, AnEmptyBatchIsFine) {
  const auto device = MakeHostDevice(2);
  device->Reserve(kChunkSize);
  EXPECT_FALSE(device->Preflight({}).has_value());
  EXPECT_FALSE(device->Apply({}).has_value());
}

TEST(HostDeviceTest, NamesTheChunkWhoseLiveBytesAreNotTheBase) {
  Batch batch(15);
  const auto device = MakeHostDevice(2);
  device->Reserve(kChunkSize);
  for (std::size_t i = 0; i < batch.work.size(); ++i) {
    batch.live[i * kChunkSize + 77] ^= std::byte{4};
    const ByteVector copy = batch.live;
    const auto fault = device->Preflight(batch.work);
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->index, i);
    EXPECT_EQ(fault->verdict, ChunkVerdict::kBaseDiffers);
    EXPECT_EQ(batch.live, copy);
    batch.live[i * kChunkSize + 77] ^= std::byte{4};
  }
}

TEST(HostDeviceTest, NamesTheChunkWhoseDataDoesNotLeadToTheTarget) {
  Batch batch(15);
  const auto device = MakeHostDevice(2);
  device->Reserve(kChunkSize);
  for (std::size_t i = 0; i < batch.work.size(); ++i) {
    ChunkWork good = batch.work[i];
    batch.work[i].after.lane[1] ^= 1;
    const auto fault = device->Preflight(batch.work);
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->index, i);
    EXPECT_EQ(fault->verdict, ChunkVerdict::kPayloadDiffers);
    EXPECT_EQ(batch.live, batch.base());
    batch.work[i] = good;
  }
}

TEST(HostDeviceTest, ADecodersWordsComeWithTheFault) {
  Batch batch(5);
  const auto device = MakeHostDevice(1);
  device->Reserve(kChunkSize);
  for (const std::size_t i : {1, 2, 3}) {
    ChunkWork good = batch.work[i];
    batch.work[i].dense = good.dense.first(good.dense.size() - 1);
    const auto fault = device->Preflight(batch.work);
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->verdict, ChunkVerdict::kPayloadDiffers);
    EXPECT_EQ(fault->detail.code(), StatusCode::kCorruption);
    batch.work[i] = good;
  }
}

// Apply proves again what it wrote: live bytes that changed after the preflight are reported.
TEST(HostDeviceTest, ApplyReportsAResultThatIsNotTheTarget) {
  for (const std::size_t i : {0, 1, 2, 3}) {
    Batch batch(5);
    const auto device = MakeHostDevice(1);
    device->Reserve(kChunkSize);
    ASSERT_FALSE(device->Preflight(batch.work).has_value());
    batch.live[i * kChunkSize + 9] ^= std::byte{1};
    const auto fault = device->Apply(batch.work);
    ASSERT_TRUE(fault.has_value());
    EXPECT_EQ(fault->index, i);
  }
}

}  // namespace
}  // namespace segue
