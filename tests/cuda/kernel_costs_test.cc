// SPDX-License-Identifier: Apache-2.0
//
// What the compiled kernels cost, counted on the machine of tests/ptx: instructions of a warp and
// sectors of memory for the work that the goals of docs/performance.md are about. Bounds are a
// fifth above what was counted: a change that makes a kernel longer, or its accesses scattered, is
// seen without a GPU. The counts are exact; what they cost in time only a GPU can say.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "codec/block_codec.h"
#include "device/cuda/diff_rows.h"
#include "device/cuda/kernel_launch.h"
#include "device/cuda/row_testing.h"
#include "device/testing.h"
#include "ptx/machine.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kPieceOfWarp = 512;  // Bytes that a warp loads at once, 16 a lane.

class KernelCostsTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    std::ifstream file(GetParam());
    kernels_ = ptx::Parse(std::string(std::istreambuf_iterator<char>(file), {}));
    ASSERT_EQ(kernels_.size(), kKernelCount);
  }

  template <typename Sums, typename Row>
  ptx::Counts CountsOf(Kernel kernel, const Row& row) {
    Sums sums = {};
    const std::uint64_t arguments[] = {reinterpret_cast<std::uint64_t>(&row), 1,
                                       reinterpret_cast<std::uint64_t>(kDigestWordKeys[0].data()),
                                       reinterpret_cast<std::uint64_t>(&sums)};
    return ptx::Run(kernels_.at(kKernelNames[static_cast<unsigned>(kernel)]), arguments, 1,
                    kLaneCount);
  }

  // Of a chunk of 1 MiB of which `share` of the elements change: a round of 32 changes.
  void ExpectSparse(Kernel kernel, unsigned width, double share, double instructions,
                    double sectors) {
    Random random(1);
    const auto element_count = static_cast<std::uint32_t>((1u << 20) / width);
    const host::Row row = host::RandomRow(random, element_count, width, share, 0);
    ByteVector live(1 << 20);
    const SparseInput input(row.chunk, live.data());
    const ptx::Counts counts = CountsOf<RowSums>(kernel, input.row);
    const double changes = row.chunk.change_count;
    EXPECT_LT(static_cast<double>(counts.instructions) * kLaneCount / changes, instructions * 1.2);
    EXPECT_LT(static_cast<double>(counts.sectors) / changes, sectors * 1.2);
    EXPECT_GT(static_cast<double>(counts.sectors) / changes, sectors * 0.8);
  }

  std::map<std::string, ptx::Kernel> kernels_;
};

TEST_P(KernelCostsTest, SparseRounds) {
  ExpectSparse(Kernel::kSparseApply, 1, 0.00085, 236, 2.75);
  ExpectSparse(Kernel::kSparsePreflight, 1, 0.00085, 272, 1.8);
  ExpectSparse(Kernel::kSparseApply, 2, 0.01, 242, 2.45);
  ExpectSparse(Kernel::kSparsePreflight, 2, 0.01, 279, 1.56);
}

// Whole chunks: one read, all lanes side by side.
TEST_P(KernelCostsTest, Scan) {
  ByteVector live(1 << 20);
  DenseRow row = {};
  row.place = Place(live.data(), live.size(), 1);
  const ptx::Counts counts = CountsOf<RowSums>(Kernel::kDenseScan, row);
  const auto pieces = static_cast<double>(live.size() / kPieceOfWarp);
  EXPECT_LT(static_cast<double>(counts.instructions) / pieces, 27 * 1.2);
  EXPECT_LT(static_cast<double>(counts.sectors) / pieces, 18.3 * 1.2);  // At least 16.
}

// Two reads of a segment, and its bits.
TEST_P(KernelCostsTest, Find) {
  ByteVector base(128 << 10);
  ByteVector target = base;
  for (std::size_t i = 500; i < target.size(); i += 1176) target[i] ^= std::byte{1};
  std::vector<std::uint64_t> bits(base.size() / 64);
  FindRow row = {};
  row.place = Place(base.data(), base.size(), 1);
  row.target = target.data();
  row.bits = reinterpret_cast<std::byte*>(bits.data());
  const ptx::Counts counts = CountsOf<FindSums>(Kernel::kDiffFind, row);
  const auto pieces = static_cast<double>(base.size() / kPieceOfWarp);
  EXPECT_LT(static_cast<double>(counts.instructions) / pieces, 97 * 1.2);
  EXPECT_LT(static_cast<double>(counts.sectors) / pieces, 39.3 * 1.2);  // At least 34.
}

// A mask of 1 MiB with 0.085 % of its bytes set: a KiB that comes out.
TEST_P(KernelCostsTest, Decoders) {
  Random random(1);
  ByteVector mask(1 << 20);
  for (int i = 0; i < 890; ++i) mask[random.Below(mask.size())] = std::byte{7};
  ByteVector target(mask.size());
  for (const bool is_snappy : {true, false}) {
    ByteVector block(std::max(SnappyBound(mask.size()), Lz4Bound(mask.size())));
    block.resize(is_snappy ? SnappyCompress(mask, block) : Lz4Compress(mask, block));
    const DecodeRow row = {block.data(), block.size(), target.data(), target.size()};
    const ptx::Counts counts =
        CountsOf<DecodeResult>(is_snappy ? Kernel::kSnappyDecode : Kernel::kLz4Decode, row);
    ASSERT_EQ(target, mask);
    const auto kibibytes = static_cast<double>(mask.size() / 1024);
    EXPECT_LT(static_cast<double>(counts.instructions) / kibibytes, (is_snappy ? 516 : 428) * 1.2);
    EXPECT_LT(static_cast<double>(counts.sectors) / kibibytes, (is_snappy ? 113 : 96) * 1.2);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelCostsTest,
                         testing::Values(SEGUE_KERNELS_PTX "_80.ptx",
                                         SEGUE_KERNELS_PTX "_100.ptx"));

}  // namespace
}  // namespace segue::cuda
