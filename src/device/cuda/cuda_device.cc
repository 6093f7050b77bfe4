// SPDX-License-Identifier: Apache-2.0
//
// Order of a batch: Load() copies it to the device; Preflight() runs sparse rows, scans what their
// sums do not prove, and runs the dense path without stores; Apply() is two launches and the dense
// path with stores. What sums mean is judged here, as on the host.
#include "device/cuda/cuda_device.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <vector>

#include "device/cuda/dense_path.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/loaded_batch.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kUploadSlotSize = 32 << 20;
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

class CudaDevice final : public Accelerator {
 public:
  explicit CudaDevice(ContextPointer context) : context_(std::move(context)) {}
  ~CudaDevice() override;
  Status Begin(unsigned threads);

  void Reserve(std::uint64_t chunk_size_max) override {
    chunk_size_max_ = std::max(chunk_size_max_, chunk_size_max);
  }
  void ReserveForViews(std::uint64_t) override {}
  Status Load(std::span<const ChunkWork> batch) override;
  void Unload() override;
  std::optional<ChunkFault> Preflight(std::span<const ChunkWork> batch) override;
  std::optional<ChunkFault> Apply(std::span<const ChunkWork> batch) override;
  Status CheckMemory(const std::byte* address, std::uint64_t size) override;
  Status Scan(std::span<const ChunkWork> batch) override;
  Status Write(std::span<const ChunkWork> batch) override;

 private:
  const DriverPointer& driver() const { return context_->driver(); }
  Status WaitForReaders();
  Status MakeSlots();
  Status RunAll(Kernel kernel, std::span<const ChunkWork> batch,
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
  std::mutex mutex_;  // Around each call: updates, a scrub and a rebuild share stream and slots.
  unsigned threads_ = 0;
  std::uint64_t chunk_size_max_ = 0;
  Stream stream_;
  std::optional<KernelSet> kernels_;
  Slots upload_;
  std::optional<DensePath> dense_;
  LoadedBatch loaded_;
  LoadedBatch views_;  // Of chunks that are scanned or written without being loaded.
  std::size_t loaded_count_ = 0;
  DeviceBuffer device_sums_;
  PinnedBuffer host_sums_;
};

// What is owned here ends inside the context.
CudaDevice::~CudaDevice() {
  const ContextScope scope(*context_);
  loaded_ = {};
  views_ = {};
  dense_.reset();
  kernels_.reset();
  upload_ = {};
  device_sums_ = {};
  host_sums_ = {};
  stream_ = {};
}

Status CudaDevice::Begin(unsigned threads) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  threads_ = threads;
  int major = 0;
  SEGUE_CUDA_TRY(driver(), cuDeviceGetAttribute, &major,
                 CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, context_->device());
  if (major < kCapabilityMin) {
    return Unsupported("the GPU has compute capability " + std::to_string(major) +
                       ".x; 8.0 or newer is needed");
  }
  SEGUE_ASSIGN_OR_RETURN(stream_, MakeStream(driver(), StreamPriority::kGreatest));
  SEGUE_ASSIGN_OR_RETURN(kernels_, KernelSet::Load(driver(), stream_.get()));
  SEGUE_ASSIGN_OR_RETURN(upload_, Slots::Make(driver(), kUploadSlotSize));
  return {};
}

// The gate is closed, so nothing new reads the weights; but kernels that were launched before may
// still run, in any stream of this process.
Status CudaDevice::WaitForReaders() {
  SEGUE_CUDA_TRY(driver(), cuCtxSynchronize);
  return {};
}

// Room for whole chunks, which any call may need.
Status CudaDevice::MakeSlots() {
  if (dense_ && dense_->group_size_max() >= chunk_size_max_) return {};
  SEGUE_ASSIGN_OR_RETURN(dense_, DensePath::Make(driver(), chunk_size_max_, threads_));
  return {};
}

void CudaDevice::Unload() {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*context_);
  loaded_ = {};
  loaded_count_ = 0;
}

Status CudaDevice::Load(std::span<const ChunkWork> batch) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  loaded_count_ = 0;
  SEGUE_RETURN_IF_ERROR(loaded_.Load(driver(), upload_, stream_.get(), batch));
  const std::uint64_t sums_size = loaded_.sparse().size() * sizeof(RowSums);
  if (device_sums_.size < sums_size) {
    SEGUE_ASSIGN_OR_RETURN(device_sums_, AllocateDevice(driver(), sums_size));
    SEGUE_ASSIGN_OR_RETURN(host_sums_, AllocatePinned(driver(), sums_size));
  }
  SEGUE_RETURN_IF_ERROR(MakeSlots());  // Any row may have to be scanned.
  SEGUE_CUDA_TRY(driver(), cuStreamSynchronize, stream_.get());
  loaded_count_ = batch.size();
  return {};
}

Status CudaDevice::RunSparse(Kernel kernel, std::size_t row_count) {
  if (row_count == 0) return {};
  SEGUE_RETURN_IF_ERROR(kernels_->Launch(kernel, loaded_.sparse_rows(), row_count,
                                         device_sums_.address(), stream_.get()));
  SEGUE_CUDA_TRY(driver(), cuMemcpyDtoHAsync, host_sums_.data(), device_sums_.address(),
                 row_count * sizeof(RowSums), stream_.get());
  SEGUE_CUDA_TRY(driver(), cuStreamSynchronize, stream_.get());
  return {};
}

Status CudaDevice::RunDense(const DenseRun& run, FirstFault& first) {
  if (run.items.empty()) return {};
  std::optional<Undecodable> undecodable;
  SEGUE_ASSIGN_OR_RETURN(undecodable, dense_->Run(*kernels_, run, stream_.get()));
  if (undecodable) {
    first.Add(undecodable->index, ChunkVerdict::kPayloadDiffers, std::move(undecodable->reason));
  }
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
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*context_);
  FirstFault first;
  Status status = scope.status();
  if (status.ok() && batch.size() != loaded_count_) status = Internal("the batch is not loaded");
  if (status.ok()) status = PreflightAll(batch, first);
  if (!status.ok()) return ChunkFault{0, ChunkVerdict::kDeviceFailed, std::move(status)};
  return first.get();
}

std::optional<ChunkFault> CudaDevice::Apply(std::span<const ChunkWork> batch) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*context_);
  FirstFault first;
  Status status = scope.status();
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
Status CudaDevice::RunAll(Kernel kernel, std::span<const ChunkWork> batch,
                          const std::function<void(std::size_t index, const RowSums& sums)>& take) {
  const std::lock_guard lock(mutex_);
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  SEGUE_RETURN_IF_ERROR(MakeSlots());
  SEGUE_RETURN_IF_ERROR(views_.LoadViews(driver(), upload_, stream_.get(), batch));
  if (kernel == Kernel::kDenseApply) SEGUE_RETURN_IF_ERROR(WaitForReaders());
  std::vector<std::size_t> items(batch.size());
  std::iota(items.begin(), items.end(), std::size_t{0});
  FirstFault first;
  SEGUE_RETURN_IF_ERROR(RunDense({kernel, &views_, batch, items, take}, first));
  return first.get() ? first.get()->detail : Status();
}

Status CudaDevice::Scan(std::span<const ChunkWork> batch) {
  return RunAll(Kernel::kDenseScan, batch, [&](std::size_t index, const RowSums& found) {
    batch[index].part->before = BeforeOf(found);
  });
}

Status CudaDevice::Write(std::span<const ChunkWork> batch) {
  return RunAll(Kernel::kDenseApply, batch, [](std::size_t, const RowSums&) {});
}

}  // namespace

Result<std::shared_ptr<Accelerator>> MakeCudaDevice(std::shared_ptr<const Driver> driver,
                                                    const CudaDeviceOptions& options) {
  ContextPointer context;
  SEGUE_ASSIGN_OR_RETURN(context, Context::Make(std::move(driver), options.ordinal));
  const auto device = std::make_shared<CudaDevice>(std::move(context));
  SEGUE_RETURN_IF_ERROR(device->Begin(options.threads));
  return std::shared_ptr<Accelerator>(device);
}

}  // namespace segue::cuda
