// SPDX-License-Identifier: Apache-2.0
//
// CUDA differ on the fake driver. Method: chunks of every width and of many densities, some
// unchanged, through the least memory (groups of one chunk) and through much; what comes back must
// be what the processor finds, streams byte for byte. Then every call of the driver fails once, and
// consumers do: nothing may stay, and the next diff must be right.
#include "device/cuda/cuda_differ.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "base/random.h"
#include "device/cuda/diff_passes.h"
#include "device/cuda/testing.h"
#include "device/testing.h"

namespace segue::cuda {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t kChunkSize = 2 * kSegmentSize;
constexpr std::uint64_t kMemory = 8 << 20;

const host::Kernels& Scalar() { return *host::AvailableKernels().front(); }

struct Chunk {
  unsigned width;
  std::size_t offset;  // In the versions.
  std::size_t size;
};

// Two versions: chunks of widths 1 to 8, shares of changes from none to all, odd sizes.
struct Versions {
  Versions() {
    Random random(1);
    for (const double share : {0.0, 0.001, 0.05, 0.5}) {
      for (const unsigned width : {1u, 2u, 4u, 8u}) {
        for (const std::size_t size : {kChunkSize, kSegmentSize + 24, std::size_t{8}}) {
          Add(random, width, size, share);
        }
      }
    }
  }

  ByteVector base;
  ByteVector target;
  std::vector<Chunk> chunks;
  std::vector<host::Row> rows;  // Without positions where nothing changed.

 private:
  void Add(Random& random, unsigned width, std::size_t size, double share) {
    const Chunk chunk = {width, base.size(), size};
    chunks.push_back(chunk);
    const ByteVector bytes = host::RandomBytes(random, size);
    AppendBytes(base, bytes);
    AppendBytes(target, bytes);
    rows.emplace_back();
    if (share == 0) return;
    rows.back() = host::RandomRow(random, static_cast<std::uint32_t>(size / width), width, share,
                                  static_cast<unsigned>(chunks.size()) % 2);
    const host::Row& row = rows.back();
    for (std::size_t i = 0; i < row.positions.size(); ++i) {
      for (unsigned p = 0; p < width; ++p) {
        target[chunk.offset + std::size_t{row.positions[i]} * width + p] ^=
            row.values[i * width + p];
      }
    }
  }
};

host::ChunkKey KeyOf(std::size_t index) { return {index, 256}; }

// What came back of a chunk.
struct Came {
  DiffForm form = DiffForm::kNothing;
  host::SparseChunk sparse;
  ByteVector low, high, base, target;
  std::vector<ByteVector> planes;
};

class Consumer : public DiffConsumer {
 public:
  DiffForm Choose(std::size_t index, const host::DiffSums& sums) override {
    EXPECT_EQ(index, chosen.size());
    chosen.push_back(sums);
    if (on_choose) on_choose(index);
    // By size of the change, and both forms of the small ones.
    return sums.change_count % 5 == 4 || sums.change_count > 20000 ? DiffForm::kBytes
                                                                   : DiffForm::kSparse;
  }

  Status Take(std::span<const DiffResult> results) override {
    ++takes;
    if (!failure.ok()) return failure;
    for (const DiffResult& result : results) {
      EXPECT_FALSE(came.contains(result.index));
      EXPECT_TRUE(came.empty() || came.rbegin()->first < result.index);
      came[result.index] = Copy(result);
    }
    return {};
  }

  std::vector<host::DiffSums> chosen;
  std::map<std::size_t, Came> came;
  std::size_t takes = 0;
  std::function<void(std::size_t)> on_choose;
  Status failure;

 private:
  Came Copy(const DiffResult& result) {
    const host::DiffSums& sums = chosen[result.index];
    Came copy;
    copy.form = result.form;
    if (result.form == DiffForm::kBytes) {
      const std::size_t size = sizes.at(result.index);
      copy.base.assign(result.base, result.base + size);
      copy.target.assign(result.target, result.target + size);
      return copy;
    }
    copy.sparse = result.sparse;
    const SparseShape shape = {sums.change_count, result.sparse.element_count,
                               result.sparse.low_bits};
    copy.low.assign(result.sparse.low, result.sparse.low + shape.LowSize());
    copy.high.assign(result.sparse.high, result.sparse.high + shape.HighSize());
    copy.planes.resize(8);
    for (unsigned p = 0; p < 8; ++p) {
      const std::byte* const plane = result.sparse.plane[p];
      if (plane != nullptr) copy.planes[p].assign(plane, plane + sums.change_count);
    }
    return copy;
  }

 public:
  std::vector<std::size_t> sizes;
};

class CudaDifferTest : public testing::Test {
 protected:
  std::shared_ptr<Differ> Make(std::uint64_t memory = kMemory) {
    return Must(MakeCudaDiffer(fake_.driver, 0, {kChunkSize, memory}));
  }
  std::vector<DiffWork> Work(const std::byte* base, const std::byte* target) const {
    std::vector<DiffWork> work;
    for (std::size_t i = 0; i < versions_.chunks.size(); ++i) {
      const Chunk& chunk = versions_.chunks[i];
      work.push_back(
          {base + chunk.offset, target + chunk.offset, chunk.size, chunk.width, KeyOf(i)});
    }
    return work;
  }
  static const std::byte* AddressOf(const DeviceBytes& bytes) {
    return reinterpret_cast<const std::byte*>(bytes.address());
  }
  Consumer MakeConsumer() const {
    Consumer consumer;
    for (const Chunk& chunk : versions_.chunks) consumer.sizes.push_back(chunk.size);
    return consumer;
  }
  void ExpectSums(const Consumer& consumer) const;
  void ExpectCame(const Consumer& consumer) const;

  FakeDriver fake_;
  const Versions versions_;
};

void CudaDifferTest::ExpectSums(const Consumer& consumer) const {
  ASSERT_EQ(consumer.chosen.size(), versions_.chunks.size());
  for (std::size_t i = 0; i < consumer.chosen.size(); ++i) {
    const Chunk& chunk = versions_.chunks[i];
    ByteVector values(chunk.size + kDigestBlockSize * 8);
    std::vector<std::uint32_t> positions(chunk.size + kDigestBlockSize);
    const host::DiffSums expected = Scalar().diff_sparse(
        KeyOf(i), &versions_.base[chunk.offset], &versions_.target[chunk.offset], chunk.size,
        chunk.width, static_cast<std::uint32_t>(chunk.size), positions.data(), values.data());
    EXPECT_EQ(consumer.chosen[i].before, expected.before);
    EXPECT_EQ(consumer.chosen[i].after, expected.after);
    EXPECT_EQ(consumer.chosen[i].touched, expected.touched);
    EXPECT_EQ(consumer.chosen[i].change_count, expected.change_count);
  }
}

void CudaDifferTest::ExpectCame(const Consumer& consumer) const {
  ASSERT_NO_FATAL_FAILURE(ExpectSums(consumer));
  std::size_t forms[3] = {};
  for (std::size_t i = 0; i < versions_.chunks.size(); ++i) {
    SCOPED_TRACE(i);
    const host::Row& row = versions_.rows[i];
    ASSERT_EQ(consumer.came.contains(i), !row.positions.empty());
    if (row.positions.empty()) continue;
    const Chunk& chunk = versions_.chunks[i];
    const Came& came = consumer.came.at(i);
    ++forms[static_cast<unsigned>(came.form)];
    if (came.form == DiffForm::kBytes) {
      EXPECT_TRUE(std::equal(came.base.begin(), came.base.end(), &versions_.base[chunk.offset]));
      EXPECT_TRUE(
          std::equal(came.target.begin(), came.target.end(), &versions_.target[chunk.offset]));
      continue;
    }
    EXPECT_EQ(came.sparse.low_bits, row.chunk.low_bits);
    EXPECT_EQ(came.sparse.constants, row.chunk.constants);
    EXPECT_TRUE(std::equal(came.low.begin(), came.low.end(), row.low.begin()));
    EXPECT_EQ(came.high, row.high);
    for (unsigned p = 0; p < chunk.width; ++p) {
      EXPECT_EQ(came.planes[p], row.chunk.plane[p] != nullptr ? row.planes[p] : ByteVector());
    }
  }
  EXPECT_GT(forms[static_cast<unsigned>(DiffForm::kSparse)], 10u);
  EXPECT_GT(forms[static_cast<unsigned>(DiffForm::kBytes)], 5u);
}

TEST_F(CudaDifferTest, FindsWhatTheProcessorFindsInLittleMemoryAndInMuch) {
  const std::uint64_t least = 2 * (PackPass::SizeMin(kChunkSize) + FindPass::SizeMin(kChunkSize));
  const DeviceBytes base(fake_.driver, versions_.base);
  const DeviceBytes target(fake_.driver, versions_.target);
  std::size_t takes = ~std::size_t{0};
  for (const std::uint64_t memory : {least, least + 100'000, 2 * least, kMemory, 8 * kMemory}) {
    SCOPED_TRACE(memory);
    const std::uint64_t before = fake_.Count().device_bytes;
    const auto differ = Make(memory);
    EXPECT_LE(fake_.Count().device_bytes, before + memory + 2 * sizeof(kDigestWordKeys[0]));
    Consumer consumer = MakeConsumer();
    const Status status = differ->Diff(Work(AddressOf(base), AddressOf(target)), consumer);
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExpectCame(consumer);
    EXPECT_LE(consumer.takes, takes);
    takes = consumer.takes;
  }
  EXPECT_EQ(MakeCudaDiffer(fake_.driver, 0, {kChunkSize, least - 1}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST_F(CudaDifferTest, TheBaseMayLieInMemoryOfTheHost) {
  const auto differ = Make();
  const auto base = Must(differ->Allocate(DiffMemory::kHost, versions_.base.size()));
  std::ranges::copy(versions_.base, base.get());
  const DeviceBytes target(fake_.driver, versions_.target);
  std::vector<DiffWork> work = Work(base.get(), AddressOf(target));
  for (DiffWork& chunk : work) chunk.base_on_host = true;
  Consumer consumer = MakeConsumer();
  ASSERT_TRUE(differ->Diff(work, consumer).ok());
  ExpectCame(consumer);
}

TEST_F(CudaDifferTest, CopiesBetweenAnyMemory) {
  const auto differ = Make();
  const std::uint64_t size = versions_.base.size();
  const auto on_device = Must(differ->Allocate(DiffMemory::kDevice, size));
  const auto pinned = Must(differ->Allocate(DiffMemory::kHost, size));
  const auto second = Must(differ->Allocate(DiffMemory::kDevice, size));
  const ByteVector plain(1);
  const std::pair<const std::byte*, std::byte*> ways[] = {{versions_.base.data(), on_device.get()},
                                                          {on_device.get(), second.get()},
                                                          {second.get(), pinned.get()}};
  for (const auto& [from, to] : ways) {
    const DiffCopy copies[] = {
        {from, to, size / 2}, {from + size / 2, to + size / 2, size / 2}, {from, to, 0}};
    ASSERT_TRUE(differ->Copy(copies).ok());
  }
  EXPECT_TRUE(std::equal(versions_.base.begin(), versions_.base.end(), pinned.get()));
  EXPECT_TRUE(differ->CheckMemory(on_device.get(), size).ok());
  for (const std::byte* other : {static_cast<const std::byte*>(pinned.get()), plain.data()}) {
    EXPECT_EQ(differ->CheckMemory(other, 1).code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(differ->CheckMemory(on_device.get(), size + 1).code(), StatusCode::kInvalidArgument);
}

// What the first pass found is not what the second one sends.
TEST_F(CudaDifferTest, ABufferThatChangesMeanwhileIsNoticed) {
  const auto differ = Make();
  const DeviceBytes base(fake_.driver, versions_.base);
  const DeviceBytes target(fake_.driver, versions_.target);
  Consumer consumer = MakeConsumer();
  consumer.on_choose = [&](std::size_t index) {
    if (index != 13) return;
    ByteVector other = versions_.target;
    const std::size_t place =
        versions_.chunks[13].offset +
        std::size_t{versions_.rows[13].positions[0]} * versions_.chunks[13].width;
    other[place] ^= std::byte{0x55};
    target.Write(other);
  };
  const Status status = differ->Diff(Work(AddressOf(base), AddressOf(target)), consumer);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.message(), HasSubstr("changed while it was compared"));
}

TEST_F(CudaDifferTest, WhatTheConsumerFailsWithEndsTheDiff) {
  const auto differ = Make();
  const DeviceBytes base(fake_.driver, versions_.base);
  const DeviceBytes target(fake_.driver, versions_.target);
  const auto work = Work(AddressOf(base), AddressOf(target));
  Consumer failing = MakeConsumer();
  failing.failure = Unavailable("full");
  EXPECT_EQ(differ->Diff(work, failing).code(), StatusCode::kUnavailable);
  EXPECT_EQ(failing.takes, 1u);
  Consumer consumer = MakeConsumer();
  ASSERT_TRUE(differ->Diff(work, consumer).ok());
  ExpectCame(consumer);
}

// Every call fails once, the second and the fifth time too, in the making of a differ, of memory,
// in a copy and a diff. What a diff that worked has given is right; the fake ends the program if
// anything is lost.
TEST_F(CudaDifferTest, SurvivesEveryFailingCall) {
  const DeviceBytes target(fake_.driver, versions_.target);
  unsigned failures = 0;
#define SEGUE_FAKE_TEXT(name) #name
#define SEGUE_FAKE_SYMBOL(name) SEGUE_FAKE_TEXT(name),
  for (const char* symbol : {SEGUE_CUDA_FUNCTIONS(SEGUE_FAKE_SYMBOL)}) {
    for (const unsigned skip : {0u, 1u, 4u}) {
      SCOPED_TRACE(std::string(symbol) + " " + std::to_string(skip));
      fake_.Fail(symbol, skip, CUDA_ERROR_OUT_OF_MEMORY);
      Consumer consumer = MakeConsumer();
      const Status status = [&]() -> Status {
        std::shared_ptr<Differ> differ;
        SEGUE_ASSIGN_OR_RETURN(differ, MakeCudaDiffer(fake_.driver, 0, {kChunkSize, 2 << 20}));
        std::shared_ptr<std::byte> base;
        std::shared_ptr<std::byte> pinned;
        const std::uint64_t size = versions_.base.size();
        SEGUE_ASSIGN_OR_RETURN(base, differ->Allocate(DiffMemory::kDevice, size));
        SEGUE_ASSIGN_OR_RETURN(pinned, differ->Allocate(DiffMemory::kHost, size));
        const DiffCopy copy = {versions_.base.data(), base.get(), size};
        SEGUE_RETURN_IF_ERROR(differ->Copy({&copy, 1}));
        return differ->Diff(Work(base.get(), AddressOf(target)), consumer);
      }();
      fake_.Fail("none", 0);
      failures += status.ok() ? 0 : 1;
      if (status.ok()) {
        ExpectCame(consumer);
      } else {
        EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
      }
    }
  }
  EXPECT_GT(failures, 30u);  // Of 33 functions; some are not called, or fail with nobody to tell.
}

// A differ that has failed once is as good as before, where the device is.
TEST_F(CudaDifferTest, GoesOnAfterAFailure) {
  const DeviceBytes base(fake_.driver, versions_.base);
  const DeviceBytes target(fake_.driver, versions_.target);
  const auto work = Work(AddressOf(base), AddressOf(target));
  const auto differ = Make(2 << 20);
  for (const char* symbol : {"cuMemcpyHtoDAsync_v2", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2",
                             "cuEventRecord", "cuEventSynchronize", "cuMemsetD8Async"}) {
    for (const unsigned skip : {0u, 1u, 2u, 3u}) {
      SCOPED_TRACE(std::string(symbol) + " " + std::to_string(skip));
      fake_.Fail(symbol, skip);
      Consumer failing = MakeConsumer();
      EXPECT_EQ(differ->Diff(work, failing).code(), StatusCode::kInternal);
      fake_.Fail("none", 0);
      Consumer consumer = MakeConsumer();
      ASSERT_TRUE(differ->Diff(work, consumer).ok());
      ASSERT_NO_FATAL_FAILURE(ExpectCame(consumer));
    }
  }
}

}  // namespace
}  // namespace segue::cuda
