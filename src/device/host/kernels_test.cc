// SPDX-License-Identifier: Apache-2.0
//
// Host kernels over whole chunks: digest, diff, XOR and byte planes. Method: every table that this
// processor can run against the scalar one, byte for byte, and the scalar one against plain loops
// over docs/format.md and DigestBytes; at all sizes around words, blocks and chunks, all widths and
// odd addresses (case A6). Buffers end exactly at their last byte, so that AddressSanitizer sees
// reads past it.
#include "device/host/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"

namespace segue::host {
namespace {

constexpr ChunkKey kKey = {7, 512};
// 16 blocks; a kernel knows no other size than the one it is given.
constexpr std::uint64_t kChunkSize = 1 << 16;

// `size` bytes at an address that is `skew` above an aligned one, with nothing behind them.
class Buffer {
 public:
  Buffer(std::size_t size, std::size_t skew, std::uint64_t seed)
      : all_(std::make_unique<std::byte[]>(skew + size)), skew_(skew), size_(size) {
    Random random(seed);
    for (std::size_t i = 0; i < size; ++i) data()[i] = static_cast<std::byte>(random.Next());
  }
  std::byte* data() { return all_.get() + skew_; }
  ByteSpan span() { return {data(), size_}; }
  ByteVector copy() { return {data(), data() + size_}; }

 private:
  std::unique_ptr<std::byte[]> all_;
  std::size_t skew_;
  std::size_t size_;
};

// Sizes in bytes around every border; whole elements of `width`.
std::vector<std::size_t> Sizes(unsigned width) {
  std::vector<std::size_t> sizes;
  for (const std::size_t size : {1ul,
                                 2ul,
                                 3ul,
                                 4ul,
                                 5ul,
                                 7ul,
                                 8ul,
                                 9ul,
                                 16ul,
                                 31ul,
                                 32ul,
                                 33ul,
                                 63ul,
                                 64ul,
                                 65ul,
                                 4088ul,
                                 4095ul,
                                 4096ul,
                                 4097ul,
                                 4104ul,
                                 8192ul,
                                 12345ul,
                                 kChunkSize - 8,
                                 kChunkSize,
                                 kChunkSize + 8}) {
    if (size % width == 0) sizes.push_back(size);
  }
  return sizes;
}

// Changes about `share` of the elements, each in at least one bit; at least one if share > 0.
void Mutate(Random& random, ByteSpan base, std::byte* target, unsigned width, double share) {
  std::copy(base.begin(), base.end(), target);
  if (share == 0) return;
  const std::size_t count = base.size() / width;
  const std::size_t always = random.Below(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i != always && random.Uniform() >= share) continue;
    target[i * width + random.Below(width)] ^= static_cast<std::byte>(1 + random.Below(255));
  }
}

struct Expected {
  DiffSums sums;
  std::vector<std::uint32_t> positions;
  ByteVector values;
  ByteVector mask;
};

// What docs/format.md says, by its own formula alone.
Expected Diff(ByteSpan base, ByteSpan target, unsigned width) {
  Expected expected;
  expected.sums.before = DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, base);
  expected.sums.after = DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, target);
  ByteVector touched(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) expected.mask.push_back(base[i] ^ target[i]);
  for (std::size_t i = 0; i < base.size() / width; ++i) {
    const ByteSpan element = ByteSpan(expected.mask).subspan(i * width, width);
    if (std::all_of(element.begin(), element.end(),
                    [](std::byte b) { return b == std::byte{0}; })) {
      continue;
    }
    expected.positions.push_back(static_cast<std::uint32_t>(i));
    AppendBytes(expected.values, element);
    std::copy_n(base.begin() + static_cast<std::ptrdiff_t>(i * width), width,
                touched.begin() + static_cast<std::ptrdiff_t>(i * width));
  }
  expected.sums.touched =
      DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, touched).lane[0];
  expected.sums.change_count = static_cast<std::uint32_t>(expected.positions.size());
  return expected;
}

class KernelsTest : public ::testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }

  void CheckDiffSparse(ByteSpan base, ByteSpan target, unsigned width, const Expected& expected) {
    const std::uint32_t count_max = expected.sums.change_count;
    const std::size_t room = count_max + kDigestBlockSize / width;
    std::vector<std::uint32_t> positions(room);
    ByteVector values(room * width);
    const DiffSums found = kernels().diff_sparse(kKey, base.data(), target.data(), base.size(),
                                                 width, count_max, positions.data(), values.data());
    ASSERT_FALSE(found.overflow);
    ASSERT_EQ(found.before, expected.sums.before);
    ASSERT_EQ(found.after, expected.sums.after);
    ASSERT_EQ(found.touched, expected.sums.touched);
    ASSERT_EQ(found.change_count, expected.sums.change_count);
    positions.resize(found.change_count);
    values.resize(std::size_t{found.change_count} * width);
    ASSERT_EQ(positions, expected.positions);
    ASSERT_EQ(values, expected.values);
  }

  void CheckDiffDense(ByteSpan base, ByteSpan target, unsigned width, const Expected& expected) {
    Buffer mask(base.size(), 1, 99);
    const DiffSums found =
        kernels().diff_dense(kKey, base.data(), target.data(), base.size(), width, mask.data());
    ASSERT_EQ(found.before, expected.sums.before);
    ASSERT_EQ(found.after, expected.sums.after);
    ASSERT_EQ(found.change_count, expected.sums.change_count);
    ASSERT_EQ(mask.copy(), expected.mask);
  }

  void CheckXor(ByteSpan base, ByteSpan target, const Expected& expected) {
    const DenseSums sums =
        kernels().xor_preflight(kKey, base.data(), expected.mask.data(), base.size());
    ASSERT_EQ(sums.before, expected.sums.before);
    ASSERT_EQ(sums.after, expected.sums.after);
    Buffer live(base.size(), 1, 0);
    std::copy(base.begin(), base.end(), live.data());
    ASSERT_EQ(kernels().xor_apply(kKey, live.data(), expected.mask.data(), base.size()),
              expected.sums.after);
    ASSERT_EQ(live.copy(), ByteVector(target.begin(), target.end()));
    Buffer mask(base.size(), 3, 0);
    kernels().xor_bytes(base.data(), target.data(), mask.data(), base.size());
    ASSERT_EQ(mask.copy(), expected.mask);
  }
};

TEST_P(KernelsTest, DigestEqualsTheSpecification) {
  for (const std::size_t size : Sizes(1)) {
    for (const std::size_t skew : {0, 1, 3, 8}) {
      Buffer bytes(size, skew, size);
      EXPECT_EQ(kernels().digest(kKey, bytes.data(), size),
                DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, bytes.span()))
          << size;
    }
  }
}

// Words of all ones: the largest products and the wrap of every sum.
TEST_P(KernelsTest, DigestWrapsAsTheSpecificationDoes) {
  const ByteVector ones(1 << 20, std::byte{0xff});
  EXPECT_EQ(kernels().digest(kKey, ones.data(), ones.size()),
            DigestBytes(kKey.tensor, kKey.first_block * kDigestBlockSize, ones));
}

// case A6
TEST_P(KernelsTest, DiffAndXorEqualPlainLoopsAtAllSizesWidthsAndAddresses) {
  Random random(1);
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::size_t size : Sizes(width)) {
      for (const double share : {0.0, 1e-9, 0.02, 0.5, 1.0}) {
        Buffer base(size, random.Below(9), random.Next());
        Buffer target(size, random.Below(9), 0);
        Mutate(random, base.span(), target.data(), width, share);
        const Expected expected = Diff(base.span(), target.span(), width);
        SCOPED_TRACE("width " + std::to_string(width) + " size " + std::to_string(size));
        ASSERT_NO_FATAL_FAILURE(CheckDiffSparse(base.span(), target.span(), width, expected));
        ASSERT_NO_FATAL_FAILURE(CheckDiffDense(base.span(), target.span(), width, expected));
        ASSERT_NO_FATAL_FAILURE(CheckXor(base.span(), target.span(), expected));
      }
    }
  }
}

TEST_P(KernelsTest, DiffOfOneElementAtEveryPlaceOfTwoBlocks) {
  const std::size_t size = 2 * kDigestBlockSize;
  Buffer base(size, 1, 5);
  for (std::size_t place = 0; place < size; place += 37) {
    Buffer target(size, 2, 5);
    target.data()[place] ^= std::byte{0x80};
    for (const unsigned width : {1u, 2u, 4u, 8u}) {
      const Expected expected = Diff(base.span(), target.span(), width);
      ASSERT_EQ(expected.positions.size(), 1u);
      ASSERT_NO_FATAL_FAILURE(CheckDiffSparse(base.span(), target.span(), width, expected));
    }
  }
}

TEST_P(KernelsTest, DiffSparseStopsWithinItsRoomOnOverflow) {
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    const std::size_t size = 16 * kDigestBlockSize;
    const ByteVector base(size);
    const ByteVector target(size, std::byte{1});
    for (const std::uint32_t count_max : {0u, 1u, 1000u, 4096u}) {
      // Exactly the room that the contract asks for: AddressSanitizer guards the rest.
      std::vector<std::uint32_t> positions(count_max + kDigestBlockSize / width);
      ByteVector values(positions.size() * width);
      const DiffSums found = kernels().diff_sparse(kKey, base.data(), target.data(), size, width,
                                                   count_max, positions.data(), values.data());
      EXPECT_TRUE(found.overflow);
      EXPECT_GT(found.change_count, count_max);
    }
  }
}

TEST_P(KernelsTest, PlanesSplitAndJoin) {
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (const std::size_t count : {1, 2, 63, 64, 65, 1023, 1024, 1025, 5000}) {
      Buffer elements(count * width, 1, count);
      std::vector<ByteVector> planes(width, ByteVector(count));
      std::byte* targets[8] = {};
      for (unsigned p = 0; p < width; ++p) targets[p] = planes[p].data();
      kernels().split_planes(elements.data(), count, width, targets);
      for (std::size_t i = 0; i < count * width; ++i) {
        ASSERT_EQ(planes[i % width][i / width], elements.data()[i]);
      }
      Buffer joined(count * width, 3, 0);
      kernels().join_planes(targets, count, width, 0, joined.data());
      ASSERT_EQ(joined.copy(), elements.copy()) << width << " " << count;
    }
  }
}

TEST_P(KernelsTest, JoinPlanesTakesConstantsForNullPlanes) {
  constexpr std::uint64_t kConstants = 0x8877665544332211;
  const std::size_t count = 1500;
  for (const unsigned width : {1u, 2u, 4u, 8u}) {
    for (unsigned stored = 0; stored < 1u << width; ++stored) {
      std::vector<ByteVector> planes(width);
      const std::byte* sources[8] = {};
      std::uint64_t constants = 0;  // As a checked row has them: 0 where a plane is stored.
      for (unsigned p = 0; p < width; ++p) {
        planes[p] = Buffer(count, 0, p).copy();
        if ((stored >> p & 1) != 0) {
          sources[p] = planes[p].data();
        } else {
          constants |= kConstants & 0xffull << (8 * p);
        }
      }
      ByteVector elements(count * width);
      kernels().join_planes(sources, count, width, constants, elements.data());
      for (std::size_t i = 0; i < elements.size(); ++i) {
        const std::size_t p = i % width;
        const auto constant = static_cast<std::byte>(constants >> (8 * p));
        ASSERT_EQ(elements[i], sources[p] != nullptr ? sources[p][i / width] : constant);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tables, KernelsTest,
                         ::testing::ValuesIn(AvailableKernels().begin(), AvailableKernels().end()),
                         [](const auto& parameters) {
                           return std::string(parameters.param->name);
                         });

TEST(KernelTablesTest, SaysWhichTablesCouldNotRunHere) {
  const auto tables = AvailableKernels();
  ASSERT_FALSE(tables.empty());
  EXPECT_EQ(tables.front()->name, "scalar");
  std::string missing;
  for (const char* name : {"avx2", "avx512"}) {
    const bool found = std::any_of(tables.begin(), tables.end(),
                                   [&](const Kernels* kernels) { return kernels->name == name; });
    if (!found) missing += missing.empty() ? name : std::string(", ") + name;
  }
  if (!missing.empty()) GTEST_SKIP() << "this processor cannot run, so not tested: " << missing;
}

TEST(KernelTablesTest, TheEnvironmentChoosesTheActiveTable) {
  const char* wanted = std::getenv("SEGUE_KERNELS");
  const bool forced = wanted != nullptr && *wanted != '\0';
  EXPECT_EQ(ActiveKernels().name, forced ? wanted : AvailableKernels().back()->name);
}

TEST(KernelTablesDeathTest, AnUnknownNameEndsTheProgramWithASentence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        ::setenv("SEGUE_KERNELS", "abacus", 1);
        (void)ActiveKernels();
      },
      ::testing::ExitedWithCode(2), "asks for 'abacus', which this processor cannot run");
}

}  // namespace
}  // namespace segue::host
