// SPDX-License-Identifier: Apache-2.0
//
// Order of a batch: Load() copies it to the device; Preflight() runs sparse rows, scans what their
// sums do not prove, and runs the dense path without stores; Apply() is two launches and the dense
// path with stores. What sums mean is judged here, as on the host.
#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <numeric>
#include <vector>

#include "device/cuda/dense_path.h"
#include "device/cuda/group_slots.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/loaded_batch.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kGroupSize = 32 << 20;
constexpr int kCapabilityMin = 8;

Digest DifferenceOf(const RowSums& sums) { return {{sums.difference[0], sums.difference[1]}}; }
Digest BeforeOf(const RowSums& sums) { return {{sums.before[0], sums.before[1]}}; }

// The fault of the lowest number; of one chunk the first that was found.
class FirstFault {
 public:
  void Add(std::size_t index, ChunkVerdict verdict, Status detail = {}) {
    if (!fault_ || index < fault_->index) fault_ = ChunkFault{index, verdict, std::move(detail)};
  }
  const std::optional<ChunkFault>& get() const { return fault_; }

 private:
  std::optional<ChunkFault> fault_;
};

// What a call works with. Updates have one; scans have another of the least priority that moves no
// bytes of chunks, so that an update waits for at most the scan that runs.
struct Lane {
  std::mutex mutex;
  Stream stream;
  std::optional<GroupSlots> slots;
  std::optional<DensePath> dense;
  LoadedBatch views;  // Of chunks that are scanned or written without being loaded.
};

class CudaDevice final : public Accelerator {
 public:
  CudaDevice(ContextPointer context, const CudaDeviceOptions& options)
      : context_(std::move(context)),
        options_(options),
        memory_(context_->driver(), options.memory_max) {}
  ~CudaDevice() override;
  Status Begin();

  void Reserve(std::uint64_t chunk_size_max) override {
    chunk_size_max_ = std::max(chunk_size_max_.load(), chunk_size_max);
  }
  void ReserveForViews(std::uint64_t) override {}
  Status Load(std::span<const ChunkWork> batch) override;
  void Unload() override;
  std::optional<ChunkFault> Preflight(std::span<const ChunkWork> batch) override;
  std::optional<ChunkFault> Apply(std::span<const ChunkWork> batch) override;
  Status CheckMemory(const std::byte* address, std::uint64_t size) override;
  Status Scan(std::span<const ChunkWork> batch) override;
  Status Write(std::span<const ChunkWork> batch) override;
  StagingUse staging_use() const override { return memory_.use(); }
  void ReleaseStaging() override;

 private:
  // Around each call: the lane and the context are its own, and slots that are not kept go with it.
  class Call {
   public:
    Call(CudaDevice& device, Lane& lane)
        : device_(device), lane_(lane), lock_(lane.mutex), scope_(*device.context_) {}
    ~Call() {
      if (!device_.options_.keeps_slots) lane_.slots.reset();
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    const Status& status() const { return scope_.status(); }

   private:
    CudaDevice& device_;
    Lane& lane_;
    const std::lock_guard<std::mutex> lock_;
    const ContextScope scope_;
  };

  const DriverPointer& driver() const { return context_->driver(); }
  CUstream stream() const { return updates_.stream.get(); }
  Status WaitForReaders();
  Status MakeSlots(std::uint64_t wish);
  Status LoadWith(std::span<const ChunkWork> batch, std::uint64_t wish);
  void DropLoaded();
  Status RunAll(Lane& lane, Kernel kernel, std::span<const ChunkWork> batch,
                const std::function<void(std::size_t index, const RowSums& sums)>& take);
  Status RunSparse(Kernel kernel, std::size_t row_count);
  Status RunDense(const DenseRun& run, FirstFault& first);
  Status PreflightAll(std::span<const ChunkWork> batch, FirstFault& first);
  Status ApplyAll(std::span<const ChunkWork> batch, FirstFault& first);
  Status ScanUnproven(std::span<const ChunkWork> batch, FirstFault& first);
  const RowSums& sums(std::size_t row) const {
    return reinterpret_cast<const RowSums*>(host_sums_.data())[row];
  }

  const ContextPointer context_;
  const CudaDeviceOptions options_;
  const StagingMemory memory_;
  std::atomic<std::uint64_t> chunk_size_max_{0};
  std::optional<KernelSet> kernels_;
  Lane updates_;
  Lane scans_;
  LoadedBatch loaded_;
  std::size_t loaded_count_ = 0;
  DeviceBuffer device_sums_;
  PinnedBuffer host_sums_;
};

// What is owned here ends inside the context.
CudaDevice::~CudaDevice() {
  const ContextScope scope(*context_);
  DropLoaded();
  for (Lane* lane : {&updates_, &scans_}) {
    lane->slots.reset();
    lane->views = {};
    lane->stream = {};
  }
  kernels_.reset();
}

Status CudaDevice::Begin() {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  int major = 0;
  SEGUE_CUDA_TRY(driver(), cuDeviceGetAttribute, &major,
                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, context_->device());
  if (major < kCapabilityMin) {
    return Unsupported("the GPU has compute capability " + std::to_string(major) +
                       ".x; 8.0 or newer is needed");
  }
  SEGUE_ASSIGN_OR_RETURN(updates_.stream, MakeStream(driver(), StreamPriority::kGreatest));
  SEGUE_ASSIGN_OR_RETURN(scans_.stream, MakeStream(driver(), StreamPriority::kLeast));
  SEGUE_ASSIGN_OR_RETURN(kernels_, KernelSet::Load(driver(), stream()));
  updates_.dense.emplace(options_.threads);
  scans_.dense.emplace(1);
  return {};
}

// The gate is closed, so nothing new reads the weights; but kernels that were launched before may
// still run, in any stream of this process.
Status CudaDevice::WaitForReaders() {
  SEGUE_CUDA_TRY(driver(), cuCtxSynchronize);
  return {};
}

// Room for whole chunks, which any call may need.
Status CudaDevice::MakeSlots(std::uint64_t wish) {
  if (updates_.slots && updates_.slots->room() >= chunk_size_max_) return {};
  updates_.slots.reset();  // Not both at a time.
  SEGUE_ASSIGN_OR_RETURN(updates_.slots, GroupSlots::Make(memory_, chunk_size_max_, wish));
  return {};
}

void CudaDevice::DropLoaded() {
  loaded_ = {};
  loaded_count_ = 0;
  device_sums_ = {};
  host_sums_ = {};
}

void CudaDevice::Unload() {
  const Call call(*this, updates_);
  DropLoaded();
}

void CudaDevice::ReleaseStaging() {
  for (Lane* lane : {&updates_, &scans_}) {
    const Call call(*this, *lane);
    if (lane == &updates_ && loaded_count_ != 0) continue;
    if (lane == &updates_) DropLoaded();
    lane->slots.reset();
    lane->views = {};
  }
}

Status CudaDevice::LoadWith(std::span<const ChunkWork> batch, std::uint64_t wish) {
  SEGUE_RETURN_IF_ERROR(MakeSlots(wish));
  SEGUE_RETURN_IF_ERROR(loaded_.Load(memory_, updates_.slots->host(), stream(), batch));
  const std::uint64_t sums_size = loaded_.sparse().size() * sizeof(RowSums);
  if (device_sums_.size < sums_size || host_sums_.size < sums_size) {
    device_sums_ = {};
    host_sums_ = {};
    SEGUE_ASSIGN_OR_RETURN(device_sums_, memory_.Device(sums_size));
    SEGUE_ASSIGN_OR_RETURN(host_sums_, memory_.Host(sums_size));
  }
  SEGUE_CUDA_TRY(driver(), cuStreamSynchronize, stream());
  loaded_count_ = batch.size();
  return {};
}

// Slots come first, since any row may have to be scanned. Where the batch then finds no room, they
// become as small as can be.
Status CudaDevice::Load(std::span<const ChunkWork> batch) {
  const Call call(*this, updates_);
  SEGUE_RETURN_IF_ERROR(call.status());
  loaded_count_ = 0;
  Status status = LoadWith(batch, kGroupSize);
  if (status.code() == StatusCode::kResourceExhausted) {
    memory_.Say("staging in groups of one chunk: " + status.message());
    DropLoaded();
    updates_.slots.reset();
    status = LoadWith(batch, 0);
  }
  if (status.ok()) return {};
  DropLoaded();
  return status.WithContext("an update of " + std::to_string(batch.size()) + " chunks");
}

Status CudaDevice::RunSparse(Kernel kernel, std::size_t row_count) {
  if (row_count == 0) return {};
  SEGUE_RETURN_IF_ERROR(
      kernels_->Launch(kernel, loaded_.sparse_rows(), row_count, device_sums_.address(), stream()));
  SEGUE_CUDA_TRY(driver(), cuMemcpyDtoHAsync, host_sums_.data(), device_sums_.address(),
                 row_count * sizeof(RowSums), stream());
  SEGUE_CUDA_TRY(driver(), cuStreamSynchronize, stream());
  return {};
}

void AddTo(FirstFault& first, std::optional<Undecodable> undecodable) {
  if (!undecodable) return;
  const bool is_payload = undecodable->reason.code() == StatusCode::kCorruption;
  first.Add(undecodable->index,
            is_payload ? ChunkVerdict::kPayloadDiffers : ChunkVerdict::kDeviceFailed,
            std::move(undecodable->reason));
}

Status CudaDevice::RunDense(const DenseRun& run, FirstFault& first) {
  if (run.items.empty()) return {};
  SEGUE_RETURN_IF_ERROR(MakeSlots(kGroupSize));
  std::optional<Undecodable> undecodable;
  SEGUE_ASSIGN_OR_RETURN(undecodable,
                         updates_.dense->Run(*kernels_, *updates_.slots, run, stream()));
  AddTo(first, std::move(undecodable));
  return {};
}

// Whether the sums of a sparse row's preflight leave the base unproven.
bool IsUnproven(const ChunkWork& work, const RowSums& sums) {
  if (work.touched == 0) return true;
  return work.view == nullptr && sums.touched != work.touched;
}

// Chunks that changed elements alone do not prove, or prove wrong: all of their bytes decide.
Status CudaDevice::ScanUnproven(std::span<const ChunkWork> batch, FirstFault& first) {
  std::vector<std::size_t> items;
  for (std::size_t row = 0; row < loaded_.sparse().size(); ++row) {
    const std::size_t index = loaded_.sparse()[row];
    if (sums(row).is_valid != 0 && IsUnproven(batch[index], sums(row))) items.push_back(index);
  }
  return RunDense({Kernel::kDenseScan, &loaded_, batch, items,
                   [&](std::size_t index, const RowSums& found) {
                     const ChunkWork& work = batch[index];
                     if (work.view != nullptr) {
                       work.part->before = BeforeOf(found);
                     } else if (BeforeOf(found) != work.before) {
                       first.Add(index, ChunkVerdict::kBaseDiffers);
                     } else if (work.touched != 0) {
                       first.Add(index, ChunkVerdict::kPayloadDiffers,
                                 Corruption("other elements are touched than it states"));
                     }
                   }},
                  first);
}

Status CudaDevice::PreflightAll(std::span<const ChunkWork> batch, FirstFault& first) {
  SEGUE_RETURN_IF_ERROR(RunSparse(Kernel::kSparsePreflight, loaded_.sparse().size()));
  for (std::size_t row = 0; row < loaded_.sparse().size(); ++row) {
    const std::size_t index = loaded_.sparse()[row];
    const ChunkWork& work = batch[index];
    if (sums(row).is_valid == 0) {
      first.Add(index, ChunkVerdict::kPayloadDiffers,
                Corruption("positions or masks are not valid"));
    } else if (work.view != nullptr) {
      *work.part = {{}, DifferenceOf(sums(row)), sums(row).touched};
    }
  }
  SEGUE_RETURN_IF_ERROR(ScanUnproven(batch, first));
  for (std::size_t row = 0; row < loaded_.sparse().size(); ++row) {
    const std::size_t index = loaded_.sparse()[row];
    const ChunkWork& work = batch[index];
    if (work.view == nullptr && DifferenceOf(sums(row)) != work.after - work.before) {
      first.Add(index, ChunkVerdict::kPayloadDiffers);
    }
  }
  return RunDense({Kernel::kDensePreflight, &loaded_, batch, loaded_.dense(),
                   [&](std::size_t index, const RowSums& found) {
                     const ChunkWork& work = batch[index];
                     if (work.view != nullptr) {
                       *work.part = {BeforeOf(found), DifferenceOf(found), 0};
                     } else if (BeforeOf(found) != work.before) {
                       first.Add(index, ChunkVerdict::kBaseDiffers);
                     } else if (DifferenceOf(found) != work.after - work.before) {
                       first.Add(index, ChunkVerdict::kPayloadDiffers);
                     }
                   }},
                  first);
}

// What the preflight of a part, or the row of a whole chunk, says must come out.
Digest ExpectedDifference(const ChunkWork& work) {
  return work.view != nullptr ? work.part->difference : work.after - work.before;
}

Status CudaDevice::ApplyAll(std::span<const ChunkWork> batch, FirstFault& first) {
  const auto in_batch = [&](std::span<const std::size_t> items) {
    return static_cast<std::size_t>(std::ranges::lower_bound(items, batch.size()) - items.begin());
  };
  const std::size_t row_count = in_batch(loaded_.sparse());
  SEGUE_RETURN_IF_ERROR(RunSparse(Kernel::kSparseApply, row_count));
  for (std::size_t row = 0; row < row_count; ++row) {
    const std::size_t index = loaded_.sparse()[row];
    if (DifferenceOf(sums(row)) != ExpectedDifference(batch[index])) {
      first.Add(index, ChunkVerdict::kPayloadDiffers);
    }
  }
  if (first.get()) return {};  // No write behind a chunk that failed.
  return RunDense(
      {Kernel::kDenseApply, &loaded_, batch, loaded_.dense().first(in_batch(loaded_.dense())),
       [&](std::size_t index, const RowSums& found) {
         const ChunkWork& work = batch[index];
         const Digest before = work.view != nullptr ? work.part->before : work.before;
         if (BeforeOf(found) != before || DifferenceOf(found) != ExpectedDifference(work)) {
           first.Add(index, ChunkVerdict::kPayloadDiffers);
         }
       }},
      first);
}

std::optional<ChunkFault> CudaDevice::Preflight(std::span<const ChunkWork> batch) {
  const Call call(*this, updates_);
  FirstFault first;
  Status status = call.status();
  if (status.ok() && batch.size() != loaded_count_) status = Internal("the batch is not loaded");
  if (status.ok()) status = PreflightAll(batch, first);
  if (!status.ok()) return ChunkFault{0, ChunkVerdict::kDeviceFailed, std::move(status)};
  return first.get();
}

std::optional<ChunkFault> CudaDevice::Apply(std::span<const ChunkWork> batch) {
  const Call call(*this, updates_);
  FirstFault first;
  Status status = call.status();
  if (status.ok() && batch.size() > loaded_count_) status = Internal("the batch is not loaded");
  if (status.ok()) status = WaitForReaders();
  if (status.ok()) status = ApplyAll(batch, first);
  if (!status.ok()) return ChunkFault{0, ChunkVerdict::kDeviceFailed, std::move(status)};
  return first.get();
}

Status CudaDevice::CheckMemory(const std::byte* address, std::uint64_t size) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  return CheckDeviceMemory(*context_, address, size);
}

// A kernel over chunks that no Load() has prepared.
Status CudaDevice::RunAll(Lane& lane, Kernel kernel, std::span<const ChunkWork> batch,
                          const std::function<void(std::size_t index, const RowSums& sums)>& take) {
  SEGUE_RETURN_IF_ERROR(
      lane.views.LoadViews(memory_, lane.slots->host(), lane.stream.get(), batch));
  std::vector<std::size_t> items(batch.size());
  std::iota(items.begin(), items.end(), std::size_t{0});
  std::optional<Undecodable> undecodable;
  SEGUE_ASSIGN_OR_RETURN(
      undecodable, lane.dense->Run(*kernels_, *lane.slots,
                                   {kernel, &lane.views, batch, items, take}, lane.stream.get()));
  return undecodable ? undecodable->reason : Status();
}

Status CudaDevice::Scan(std::span<const ChunkWork> batch) {
  const Call call(*this, scans_);
  SEGUE_RETURN_IF_ERROR(call.status());
  if (!scans_.slots) {
    SEGUE_ASSIGN_OR_RETURN(scans_.slots, GroupSlots::Make(memory_, 0, 0));
  }
  return RunAll(scans_, Kernel::kDenseScan, batch, [&](std::size_t index, const RowSums& found) {
    batch[index].part->before = BeforeOf(found);
  });
}

Status CudaDevice::Write(std::span<const ChunkWork> batch) {
  const Call call(*this, updates_);
  SEGUE_RETURN_IF_ERROR(call.status());
  SEGUE_RETURN_IF_ERROR(MakeSlots(kGroupSize));
  SEGUE_RETURN_IF_ERROR(WaitForReaders());
  return RunAll(updates_, Kernel::kDenseApply, batch, [](std::size_t, const RowSums&) {});
}

}  // namespace

Result<std::shared_ptr<Accelerator>> MakeCudaDevice(std::shared_ptr<const Driver> driver,
                                                    const CudaDeviceOptions& options) {
  ContextPointer context;
  SEGUE_ASSIGN_OR_RETURN(context, Context::Make(std::move(driver), options.ordinal));
  const auto device = std::make_shared<CudaDevice>(std::move(context), options);
  SEGUE_RETURN_IF_ERROR(device->Begin());
  return std::shared_ptr<Accelerator>(device);
}

}  // namespace segue::cuda
