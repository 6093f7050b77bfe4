// SPDX-License-Identifier: Apache-2.0
//
// Groups of chunks that are larger than a row's segment: what is found and written must be what the
// host device has of the whole chunk, under a view and without; and how a group is cut.
#include "device/cuda/group_slots.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/random.h"
#include "codec/block_codec.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/diff_rows.h"
#include "device/cuda/testing.h"
#include "device/testing.h"
#include "device/view_map.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kTensor = 4;
constexpr unsigned kWidth = 2;
// On both sides of a segment's end, and one that ends in the middle of a block.
constexpr std::uint64_t kSizes[] = {kSegmentSize - 8, kSegmentSize,           kSegmentSize + 2, 8,
                                    3 * kSegmentSize, 2 * kSegmentSize + 4102};

// Chunks at addresses of their own, XORed and replaced in turn, the bytes before and behind them.
class GroupSlotsTest : public ::testing::Test {
 protected:
  GroupSlotsTest() {
    Random random(3);
    for (const std::uint64_t size : kSizes) size_ += DivideUp(size, 4096) * 4096;
    base_ = host::RandomBytes(random, size_);
    target_ = base_;
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < std::size(kSizes); ++i) {
      AddChunk(random, i, offset);
      offset += DivideUp(kSizes[i], 4096) * 4096;
    }
  }

  void AddChunk(Random& random, std::size_t i, std::uint64_t offset) {
    ByteVector mask(kSizes[i]);
    for (std::uint64_t k = 0; k < mask.size(); k += 1 + random.Below(400)) mask[k] = std::byte{5};
    for (std::uint64_t k = 0; k < mask.size(); ++k) target_[offset + k] ^= mask[k];
    ChunkWork work;
    work.encoding = i % 2 == 0 ? DeviceEncoding::kSnappy : DeviceEncoding::kRaw;
    work.width = kWidth;
    work.key = {kTensor, offset / kDigestBlockSize};
    work.size = mask.size();
    work.first_element = offset / kWidth;
    work.before = DigestBytes(kTensor, offset, ByteSpan(base_).subspan(offset, mask.size()));
    work.after = DigestBytes(kTensor, offset, ByteSpan(target_).subspan(offset, mask.size()));
    ByteVector data(target_.begin() + static_cast<std::ptrdiff_t>(offset),
                    target_.begin() + static_cast<std::ptrdiff_t>(offset + mask.size()));
    if (i % 2 == 0) {
      data.resize(SnappyBound(mask.size()));
      data.resize(SnappyCompress(mask, data));
    }
    data_.push_back(std::move(data));
    work.dense = data_.back();
    work_.push_back(work);
    offsets_.push_back(offset);
  }

  // Each chunk where it lies from `live` on, or under `view`, with parts to write to.
  std::vector<ChunkWork> At(std::byte* live, const ViewMap* view, std::vector<PartSums>& parts) {
    parts.assign(work_.size(), {});
    std::vector<ChunkWork> placed = work_;
    for (std::size_t i = 0; i < placed.size(); ++i) {
      placed[i].live = view == nullptr ? live + offsets_[i] : live;
      placed[i].view = view;
      placed[i].part = &parts[i];
    }
    return placed;
  }

  // Scans, preflights and applies on both devices; `decoder` of the CUDA device.
  void ExpectAsOnTheHost(const ViewMap* view, const std::string& decoder) {
    const DeviceBytes live(fake_.driver, base_);
    ByteVector host_live = base_;
    const auto host = MakeHostDevice(1);
    host->Reserve(3 * kSegmentSize);
    if (view != nullptr) host->ReserveForViews(3 * kSegmentSize);
    CudaDeviceOptions options{.threads = 2};
    options.decoder = decoder;
    const auto device = Must(MakeCudaDevice(fake_.driver, options));
    device->Reserve(3 * kSegmentSize);
    std::vector<PartSums> host_parts;
    std::vector<PartSums> parts;
    std::vector<PartSums> scanned;
    const auto host_work = At(host_live.data(), view, host_parts);
    auto* const address = live.data();
    const auto work = At(address, view, parts);
    ASSERT_TRUE(host->Load(host_work).ok() && device->Load(work).ok());
    ASSERT_FALSE(host->Preflight(host_work).has_value());
    ASSERT_FALSE(device->Preflight(work).has_value());
    EXPECT_EQ(live.Read(), base_);
    ASSERT_TRUE(device->Scan(At(address, view, scanned)).ok());
    for (std::size_t i = 0; i < work.size(); ++i) {
      const Digest before = view != nullptr ? host_parts[i].before : work[i].before;
      EXPECT_EQ(scanned[i].before, before);
      if (view == nullptr) continue;
      EXPECT_EQ(parts[i].before, host_parts[i].before);
      EXPECT_EQ(parts[i].difference, host_parts[i].difference);
    }
    ASSERT_FALSE(host->Apply(host_work).has_value());
    ASSERT_FALSE(device->Apply(work).has_value());
    EXPECT_EQ(live.Read(), host_live);
    EXPECT_EQ(host_live == target_, view == nullptr);
    EXPECT_NE(host_live, base_);
  }

  FakeDriver fake_;
  std::uint64_t size_ = 0;
  ByteVector base_;
  ByteVector target_;
  std::vector<ByteVector> data_;
  std::vector<ChunkWork> work_;
  std::vector<std::uint64_t> offsets_;
};

TEST_F(GroupSlotsTest, SegmentsOfChunksAddUp) {
  ExpectAsOnTheHost(nullptr, "processor");
  ExpectAsOnTheHost(nullptr, "multiprocessors");
}

TEST_F(GroupSlotsTest, SegmentsOfChunksUnderAViewAddUp) {
  const std::uint64_t count = size_ / kWidth;
  const ViewMap map = Must(
      ViewMap::Make(ColumnSlice(count / 64, 64, 10, 40, kWidth), count, kWidth, count * kWidth));
  ExpectAsOnTheHost(&map, "processor");
  ExpectAsOnTheHost(&map, "multiprocessors");
}

// The group's first `count` chunks of `size` bytes, scanned.
Group ScanGroup(std::size_t count, std::uint64_t size) {
  std::vector<ChunkWork> work(count);
  std::vector<std::size_t> items;
  for (std::size_t i = 0; i < count; ++i) {
    work[i].size = size;
    items.push_back(i);
  }
  Group group = GroupSlots::NextGroup({Kernel::kDenseScan, nullptr, work, items, {}}, items, 0);
  EXPECT_EQ(group.items.size(), std::min<std::size_t>(count, GroupSlots::kGroupCountMax));
  group.items = {};
  return group;
}

TEST(GroupTest, FewChunksAreCutAndManyAreNot) {
  EXPECT_EQ(ScanGroup(1, 0).row_count, 1u);
  EXPECT_EQ(ScanGroup(1, 1 << 20).row_count, 8u);
  EXPECT_EQ(ScanGroup(128, 1 << 20).row_count, 1024u);
  EXPECT_EQ(ScanGroup(2048, 1 << 20).row_count, 2048u);
  EXPECT_EQ(ScanGroup(2048, 16 << 20).segment_size, 32u << 20);
  for (const std::size_t count : {1u, 3u, 100u, 1000u, 2047u, 3000u}) {
    for (const std::uint64_t size : {4096u, 131080u, 1u << 20, (3u << 20) + 8, 16u << 20}) {
      EXPECT_LE(ScanGroup(count, size).row_count, GroupSlots::kGroupRowsMax);
    }
  }
}

}  // namespace
}  // namespace segue::cuda
