// SPDX-License-Identifier: Apache-2.0
//
// CUDA device on the fake driver (tests/fake_cuda). Method: one batch of every encoding is given to
// the host device and to this one; verdicts, sums of parts and bytes must be the same, for good
// batches and for each kind of bad one. Then every call of the driver fails once: before the apply
// nothing may have been written, and in the end everything is given back.
#include "device/cuda/cuda_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/random.h"
#include "device/cuda/batch_testing.h"
#include "device/cuda/dense_path.h"
#include "device/cuda/loaded_batch.h"
#include "device/cuda/testing.h"
#include "device/testing.h"
#include "device/view_map.h"

namespace segue::cuda {
namespace {

std::shared_ptr<Accelerator> MakeDevice(const DriverPointer& driver) {
  auto device = Must(MakeCudaDevice(driver, {.threads = 2}));
  device->Reserve(kChunkSize);
  return device;
}

// What a device says of a batch: fault, and the parts' sums.
struct Verdict {
  std::optional<ChunkFault> fault;
  std::vector<PartSums> parts;
};

Verdict PreflightOn(Device& device, std::vector<ChunkWork> work) {
  Verdict verdict;
  verdict.parts = PartsOf(work);
  EXPECT_TRUE(device.Load(work).ok());
  verdict.fault = device.Preflight(work);
  return verdict;
}

void ExpectSame(const std::optional<ChunkFault>& found, const std::optional<ChunkFault>& expected) {
  ASSERT_EQ(found.has_value(), expected.has_value());
  if (!found) return;
  EXPECT_EQ(found->index, expected->index);
  EXPECT_EQ(found->verdict, expected->verdict);
}

// A byte that chunk `i` changes.
std::size_t FirstChange(const Batch& batch, std::size_t i) {
  std::size_t place = i * kChunkSize;
  while (batch.base[place] == batch.target[place]) ++place;
  return place;
}

class CudaDeviceTest : public ::testing::Test {
 protected:
  // The host device's verdict on the same batch, whose live bytes are `live`.
  std::optional<ChunkFault> HostVerdict(const Batch& batch, ByteVector live) {
    const auto host = MakeHostDevice(1);
    host->Reserve(kChunkSize);
    return host->Preflight(batch.At(live.data()));
  }

  FakeDriver fake_;
};

TEST_F(CudaDeviceTest, PreflightsAndAppliesEveryEncoding) {
  const Batch batch(43);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  const auto work = batch.At(live.data());
  ASSERT_TRUE(device->Load(work).ok());
  const auto fault = device->Preflight(work);
  ASSERT_FALSE(fault.has_value()) << fault->index << fault->detail.ToString();
  EXPECT_EQ(live.Read(), batch.base);
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live.Read(), batch.target);
}

// A step was launched before the gate closed, and has not run yet: it must read the old weights.
TEST_F(CudaDeviceTest, AppliesBehindWhatWasLaunchedBefore) {
  const Batch batch(7);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  const auto work = batch.At(live.data());
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Preflight(work).has_value());
  const InContext context(fake_.driver);
  const Stream step = Must(MakeStream(fake_.driver, StreamPriority::kLeast));
  ByteVector read(batch.base.size());
  ASSERT_EQ(fake_.driver->cuMemcpyDtoHAsync(read.data(), live.address(), read.size(), step.get()),
            CUDA_SUCCESS);
  ASSERT_FALSE(device->Apply(work).has_value());
  ASSERT_EQ(fake_.driver->cuStreamSynchronize(step.get()), CUDA_SUCCESS);
  EXPECT_EQ(read, batch.base);
  EXPECT_EQ(live.Read(), batch.target);
}

// What is tied stands at the end of a batch: proven, and not applied.
TEST_F(CudaDeviceTest, AppliesTheBeginningOfABatch) {
  const Batch batch(20);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  const auto work = batch.At(live.data());
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Preflight(work).has_value());
  ASSERT_FALSE(device->Apply(std::span(work).first(9)).has_value());
  ByteVector expected = batch.base;
  std::copy_n(batch.target.begin(), 9 * kChunkSize, expected.begin());
  EXPECT_EQ(live.Read(), expected);
}

TEST_F(CudaDeviceTest, FindsAWrongBitAnywhereAsTheHostDoes) {
  const Batch batch(14);
  for (std::size_t i = 0; i < batch.work.size(); ++i) {
    ByteVector bytes = batch.base;
    const std::size_t changed = batch.work[i].encoding == DeviceEncoding::kSparse
                                    ? FirstChange(batch, i)
                                    : i * kChunkSize + 77;
    bytes[changed] ^= std::byte{0x10};
    const DeviceBytes live(fake_.driver, bytes);
    const auto device = MakeDevice(fake_.driver);
    const auto work = batch.At(live.data());
    const auto verdict = PreflightOn(*device, work);
    ASSERT_TRUE(verdict.fault.has_value());
    ExpectSame(verdict.fault, HostVerdict(batch, bytes));
    EXPECT_EQ(live.Read(), bytes);
  }
}

TEST_F(CudaDeviceTest, FindsAPayloadThatLies) {
  for (const std::size_t i : {0, 1, 2, 3, 4, 5, 6}) {
    Batch batch(14);
    batch.work[i].after.lane[1] ^= 1;
    const DeviceBytes live(fake_.driver, batch.base);
    const auto device = MakeDevice(fake_.driver);
    const auto work = batch.At(live.data());
    ExpectSame(PreflightOn(*device, work).fault, HostVerdict(batch, batch.base));
    EXPECT_EQ(live.Read(), batch.base);
  }
}

TEST_F(CudaDeviceTest, FindsStreamsThatDoNotDecode) {
  for (const std::size_t i : {2, 4, 5}) {
    Batch batch(14);
    batch.work[i].dense = batch.work[i].dense.first(batch.work[i].dense.size() - 1);
    const DeviceBytes live(fake_.driver, batch.base);
    const auto device = MakeDevice(fake_.driver);
    const auto work = batch.At(live.data());
    const auto verdict = PreflightOn(*device, work);
    ExpectSame(verdict.fault, HostVerdict(batch, batch.base));
    EXPECT_FALSE(verdict.fault->detail.ok());
    // Nothing behind it may be written either, should somebody apply all the same.
    ASSERT_TRUE(device->Apply(work).has_value());
    EXPECT_EQ(ByteVector(live.Read()).back(), batch.base.back());
  }
}

TEST_F(CudaDeviceTest, PartsUnderViewsHaveTheHostsSums) {
  Batch batch(14);
  const std::uint64_t count = batch.base.size() / kWidth;
  const ViewMap map = Must(
      ViewMap::Make(ColumnSlice(count / 64, 64, 10, 40, kWidth), count, kWidth, count * kWidth));
  for (ChunkWork& work : batch.work) work.view = &map;
  const auto at = [&](std::byte* live) {
    std::vector<ChunkWork> work = batch.work;
    for (ChunkWork& chunk : work) chunk.live = live;
    return work;
  };
  ByteVector bytes = batch.base;
  const auto host = MakeHostDevice(1);
  host->Reserve(kChunkSize);
  host->ReserveForViews(kChunkSize);
  auto host_work = at(bytes.data());
  Verdict expected = PreflightOn(*host, host_work);
  ASSERT_FALSE(expected.fault.has_value());

  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  auto work = at(live.data());
  Verdict found = PreflightOn(*device, work);
  ASSERT_FALSE(found.fault.has_value());
  for (std::size_t i = 0; i < work.size(); ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(found.parts[i].before, expected.parts[i].before);
    EXPECT_EQ(found.parts[i].difference, expected.parts[i].difference);
    if (work[i].encoding == DeviceEncoding::kSparse) {
      EXPECT_EQ(found.parts[i].touched, expected.parts[i].touched);
    }
    host_work[i].part = &expected.parts[i];
    work[i].part = &found.parts[i];
  }
  ASSERT_FALSE(host->Apply(host_work).has_value());
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live.Read(), bytes);
}

// Two slots of 32 MiB take turns over more than both hold.
TEST_F(CudaDeviceTest, GroupsTakeTurnsInTheSlots) {
  constexpr std::uint64_t kLarge = 16 << 20;
  Random random(3);
  const ByteVector base = host::RandomBytes(random, 5 * kLarge);
  const ByteVector target = host::RandomBytes(random, 5 * kLarge);
  const DeviceBytes live(fake_.driver, base);
  std::vector<ChunkWork> work(5);
  for (std::size_t i = 0; i < work.size(); ++i) {
    work[i].encoding = DeviceEncoding::kRaw;
    work[i].key = {kTensor, i * kLarge / kDigestBlockSize};
    work[i].live = live.data() + i * kLarge;
    work[i].size = kLarge;
    work[i].dense = ByteSpan(target).subspan(i * kLarge, kLarge);
    work[i].before = DigestBytes(kTensor, i * kLarge, ByteSpan(base).subspan(i * kLarge, kLarge));
    work[i].after = DigestBytes(kTensor, i * kLarge, work[i].dense);
  }
  auto device = Must(MakeCudaDevice(fake_.driver, {.threads = 2}));
  device->Reserve(kLarge);
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Preflight(work).has_value());
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live.Read(), target);
}

TEST_F(CudaDeviceTest, ALoadedBatchHoldsItsStreamsOnce) {
  const Batch batch(14);
  const InContext context(fake_.driver);
  const Stream stream = Must(MakeStream(fake_.driver, StreamPriority::kGreatest));
  Slots slots = Must(Slots::Make(fake_.driver, 4096));
  const auto work = batch.At(nullptr);
  LoadedBatch loaded;
  ASSERT_TRUE(loaded.Load(fake_.driver, slots, stream.get(), work).ok());
  EXPECT_EQ(loaded.sparse().size(), 4u);
  EXPECT_EQ(loaded.dense().size(), 10u);
  std::uint64_t streams = 0;
  for (const std::size_t i : loaded.sparse()) {
    const host::SparseChunk& chunk = work[i].sparse;
    const SparseShape shape = {chunk.change_count, chunk.element_count, chunk.low_bits};
    streams += shape.LowSize() + shape.HighSize() + kWidth * chunk.change_count;
  }
  EXPECT_GE(loaded.size(), streams);
  EXPECT_LE(loaded.size(), streams + 4 * 256 + 64);  // Rows, and what alignment costs.
}

// A chunk that does not decode in the third of four groups: the first two have run, the rest not.
TEST_F(CudaDeviceTest, NothingRunsBehindAGroupThatDoesNotDecode) {
  constexpr std::uint64_t kLarge = 16 << 20;
  const InContext context(fake_.driver);
  const Stream stream = Must(MakeStream(fake_.driver, StreamPriority::kGreatest));
  const KernelSet kernels = Must(KernelSet::Load(fake_.driver, stream.get()));
  DensePath path(2);
  GroupSlots slots = Must(GroupSlots::Make(fake_.driver, kLarge, {2 * kLarge, 0}));
  const ByteVector bytes(kLarge, std::byte{3});
  const DeviceBytes live(fake_.driver, bytes);
  std::vector<ChunkWork> work(8);
  std::vector<std::size_t> items;
  for (std::size_t i = 0; i < work.size(); ++i) {
    work[i].encoding = DeviceEncoding::kRaw;
    work[i].live = live.data();
    work[i].size = kLarge;
    work[i].dense = bytes;
    items.push_back(i);
  }
  work[5].encoding = DeviceEncoding::kLz4;
  work[5].dense = ByteSpan(bytes).first(5);
  const LoadedBatch loaded;
  std::vector<std::size_t> taken;
  const auto undecodable =
      Must(path.Run(kernels, slots,
                    {Kernel::kDensePreflight, &loaded, work, items,
                     [&](std::size_t index, const RowSums&) { taken.push_back(index); }},
                    stream.get()));
  ASSERT_TRUE(undecodable.has_value());
  EXPECT_EQ(undecodable->index, 5u);
  std::ranges::sort(taken);
  EXPECT_EQ(taken, (std::vector<std::size_t>{0, 1, 2, 3}));
}

TEST_F(CudaDeviceTest, ScansAndWritesWholeChunksAndParts) {
  const Batch batch(14);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  auto work = batch.At(live.data());
  auto parts = PartsOf(work);
  ASSERT_TRUE(device->Scan(work).ok());
  for (std::size_t i = 0; i < work.size(); ++i) EXPECT_EQ(parts[i].before, work[i].before);

  for (std::size_t i = 0; i < work.size(); ++i) {
    work[i].encoding = DeviceEncoding::kRaw;
    work[i].dense = ByteSpan(batch.target).subspan(i * kChunkSize, kChunkSize);
  }
  ASSERT_TRUE(device->Write(work).ok());
  EXPECT_EQ(live.Read(), batch.target);
}

// A scrub goes on beside the engine: taking memory and giving it back stops the whole GPU.
TEST_F(CudaDeviceTest, ScansTakeNoMemoryOnceTheFirstHasRun) {
  const Batch batch(4);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  auto work = batch.At(live.data());
  const std::uint64_t count = batch.base.size() / kWidth;
  const ViewMap map = Must(
      ViewMap::Make(ColumnSlice(count / 64, 64, 10, 40, kWidth), count, kWidth, count * kWidth));
  auto parts = PartsOf(work);
  for (std::size_t i = 0; i < work.size(); ++i) {
    work[i].view = i % 2 == 0 ? &map : nullptr;
    if (work[i].view != nullptr) work[i].live = live.data();
  }
  ASSERT_TRUE(device->Scan(work).ok());
  for (const char* symbol : {"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc"}) {
    fake_.Fail(symbol, 0, CUDA_ERROR_UNKNOWN);
    for (const ChunkWork& one : work) EXPECT_TRUE(device->Scan({&one, 1}).ok());
    fake_.Fail("none", 0);
  }
}

// The engine's streams have the least priority, and what is done beside it must not go before them.
TEST_F(CudaDeviceTest, NothingButTheApplyGoesBeforeTheEngine) {
  fake_.SetEngine();
  const Batch batch(43);
  const DeviceBytes live(fake_.driver, batch.base);
  for (const char* decoder : {"engine", "multiprocessors", "processor"}) {
    live.Write(batch.base);
    const auto device = Must(MakeCudaDevice(fake_.driver, {.threads = 2, .decoder = decoder}));
    device->Reserve(kChunkSize);
    const auto work = batch.At(live.data());
    const SegueFakeCounts before = fake_.Count();
    ASSERT_TRUE(device->Load(work).ok());
    ASSERT_FALSE(device->Preflight(work).has_value());
    const SegueFakeCounts prepared = fake_.Count();
    EXPECT_GT(prepared.launches, before.launches);
    EXPECT_EQ(prepared.least_launches - before.least_launches, prepared.launches - before.launches);
    ASSERT_FALSE(device->Apply(work).has_value());
    EXPECT_GT(fake_.Count().launches, prepared.launches);
    EXPECT_EQ(fake_.Count().least_launches, prepared.least_launches);
    EXPECT_EQ(live.Read(), batch.target);
  }
}

// An engine that makes a CUDA graph in a thread of its own, while a version is staged and scrubbed.
TEST_F(CudaDeviceTest, WorksBesideACaptureUpToTheApply) {
  const Batch batch(14);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  auto work = batch.At(live.data());
  auto parts = PartsOf(work);
  fake_.Capture(true);
  EXPECT_TRUE(device->Scan(work).ok());
  ASSERT_TRUE(device->Load(work).ok());
  ASSERT_FALSE(device->Preflight(work).has_value());
  EXPECT_EQ(live.Read(), batch.base);
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  ASSERT_EQ(fake_.driver->cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);  // As it was.
  ASSERT_EQ(fake_.driver->cuThreadExchangeStreamCaptureMode(&mode), CUDA_SUCCESS);
  fake_.Capture(false);
  ASSERT_FALSE(device->Apply(work).has_value());
  EXPECT_EQ(live.Read(), batch.target);
}

// A scrub scans again and again, at the least priority; an update need not wait until it lets go.
TEST_F(CudaDeviceTest, ScansRunBesideAnUpdate) {
  const Batch batch(14);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  const auto work = batch.At(live.data());
  auto scanned = work;
  auto parts = PartsOf(scanned);
  ASSERT_TRUE(device->Load(work).ok());
  std::future<Status> scan;
  auto begin = [&] {
    scan = std::async(std::launch::async, [&] { return device->Scan(scanned); });
  };
  auto wait = [&] {
    begin();
    EXPECT_EQ(scan.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  };
  fake_.Hook("cuLaunchKernel", wait);
  ASSERT_FALSE(device->Preflight(work).has_value());
  EXPECT_TRUE(scan.get().ok());
  for (std::size_t i = 0; i < work.size(); ++i) EXPECT_EQ(parts[i].before, work[i].before);
}

TEST_F(CudaDeviceTest, KnowsItsMemory) {
  const DeviceBytes live(fake_.driver, ByteVector(100));
  const auto device = MakeDevice(fake_.driver);
  const auto* address = reinterpret_cast<const std::byte*>(live.address());
  EXPECT_TRUE(device->CheckMemory(address, 100).ok());
  const Status beyond = device->CheckMemory(address, 102);
  EXPECT_EQ(beyond.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(beyond.message().find("reaches beyond its allocation"), std::string::npos);
  // Both ends are in the device's memory, what lies between is not.
  const DeviceBytes other(fake_.driver, ByteVector(100));
  const auto [low, high] = std::minmax({live.address(), other.address()});
  EXPECT_EQ(device->CheckMemory(reinterpret_cast<const std::byte*>(low), high - low + 50).code(),
            StatusCode::kInvalidArgument);
  const ByteVector host(100);
  EXPECT_EQ(device->CheckMemory(host.data(), 100).code(), StatusCode::kInvalidArgument);
}

TEST_F(CudaDeviceTest, UnloadForgetsTheBatchAndReleaseGivesItsMemoryBack) {
  const Batch batch(40);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  const auto work = batch.At(live.data());
  ASSERT_TRUE(device->Load(work).ok());
  const std::uint64_t loaded = fake_.Count().device_bytes;
  device->Unload();
  ASSERT_TRUE(device->Load(work).ok());
  EXPECT_EQ(fake_.Count().device_bytes, loaded);
  device->Unload();
  EXPECT_TRUE(device->Preflight(work).has_value());  // It is not loaded any more.
  device->ReleaseStaging();
  EXPECT_LT(fake_.Count().device_bytes + 1000, loaded);
}

// case H2: what a batch took serves the next one.
TEST_F(CudaDeviceTest, MemoryDoesNotGrowOverUpdates) {
  const Batch batch(40);
  const DeviceBytes live(fake_.driver, batch.base);
  const auto device = MakeDevice(fake_.driver);
  const auto work = batch.At(live.data());
  ASSERT_TRUE(device->Load(work).ok());
  const std::uint64_t first = fake_.Count().device_bytes;
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(device->Load(work).ok());
  EXPECT_EQ(fake_.Count().device_bytes, first);
}

// Every call that a load, a preflight and an apply make fails once, the second and the fifth time
// too. Before the apply nothing has changed; the fake ends the program if anything is lost.
TEST_F(CudaDeviceTest, SurvivesEveryFailingCall) {
  const Batch batch(20);
  unsigned failures = 0;
  unsigned memory_failures = 0;
#define SEGUE_FAKE_TEXT(name) #name
#define SEGUE_FAKE_SYMBOL(name) SEGUE_FAKE_TEXT(name),
  for (const char* symbol : {SEGUE_CUDA_FUNCTIONS(SEGUE_FAKE_SYMBOL)}) {
    for (const auto& [skip, error] :
         {std::pair{0u, CUDA_ERROR_OUT_OF_MEMORY}, std::pair{1u, CUDA_ERROR_OUT_OF_MEMORY},
          std::pair{4u, CUDA_ERROR_OUT_OF_MEMORY}, std::pair{0u, CUDA_ERROR_LAUNCH_FAILED},
          std::pair{1u, CUDA_ERROR_LAUNCH_FAILED}, std::pair{4u, CUDA_ERROR_LAUNCH_FAILED}}) {
      SCOPED_TRACE(std::string(symbol) + " " + std::to_string(skip));
      const DeviceBytes live(fake_.driver, batch.base);
      const auto work = batch.At(live.data());
      fake_.Fail(symbol, skip, error);
      bool applying = false;
      const Status status = UpdateOnce(fake_.driver, work, applying);
      fake_.Fail("none", 0);
      const bool is_memory = error == CUDA_ERROR_OUT_OF_MEMORY;
      (is_memory ? memory_failures : failures) += status.ok() ? 0 : 1;
      if (status.ok()) {
        EXPECT_EQ(live.Read(), batch.target);
      } else {
        EXPECT_EQ(status.code(), is_memory ? StatusCode::kResourceExhausted : StatusCode::kInternal)
            << status.ToString();
        if (!applying) {
          EXPECT_EQ(live.Read(), batch.base);
        }
      }
    }
  }
  // Of 30 functions; some are not called, or fail with nobody to tell, or are got by without.
  EXPECT_GT(failures, 25u);
  EXPECT_GT(memory_failures, 10u);
}

}  // namespace
}  // namespace segue::cuda
