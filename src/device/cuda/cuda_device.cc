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

#include "device/cuda/decode_path.h"
#include "device/cuda/dense_path.h"
#include "device/cuda/kernel_set.h"
#include "device/cuda/update_staging.h"
#include "device/cuda/verdicts.h"

namespace segue::cuda {
namespace {

// What scans work with: a stream of the least priority, and slots that move no bytes of chunks, so
// that an update waits for at most the scan that runs.
struct ScanLane {
  Stream stream;
  std::optional<GroupSlots> slots;
  std::optional<DensePath> dense;
  LoadedBatch views;
};

class CudaDevice final : public Accelerator {
 public:
  CudaDevice(ContextPointer context, const CudaDeviceOptions& options)
      : context_(std::move(context)), options_(options), staging_(context_, options.memory_max) {}
  ~CudaDevice() override;
  Status Begin();

  void Reserve(std::uint64_t chunk_size_max) override { staging_.Reserve(chunk_size_max); }
  void ReserveForViews(std::uint64_t) override {}
  Status Load(std::span<const ChunkWork> batch) override;
  void Unload() override;
  std::optional<ChunkFault> Preflight(std::span<const ChunkWork> batch) override;
  std::optional<ChunkFault> Apply(std::span<const ChunkWork> batch) override;
  Status BeginApply() override;
  Status CheckMemory(const std::byte* address, std::uint64_t size) override;
  Status Scan(std::span<const ChunkWork> batch) override;
  Status Write(std::span<const ChunkWork> batch) override;
  StagingUse staging_use() const override { return staging_.memory().use(); }
  std::string decoder() const override;
  void ReleaseStaging() override;

 private:
  // Around each call: updates, or scans, and the context are its own; slots that are not kept go
  // with it.
  class Call {
   public:
    Call(CudaDevice& device, std::mutex& mutex)
        : device_(device), mutex_(mutex), lock_(mutex), scope_(*device.context_) {}
    ~Call() {
      if (!device_.options_.keeps_slots) device_.ParkSlots(mutex_);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    const Status& status() const { return scope_.status(); }

   private:
    CudaDevice& device_;
    std::mutex& mutex_;
    const std::lock_guard<std::mutex> lock_;
    const ContextScope scope_;
  };

  const DriverPointer& driver() const { return context_->driver(); }
  CUstream stream() const { return stream_.get(); }
  // In the pause nothing goes before the kernel, otherwise everything does.
  CUstream StreamOf(Kernel kernel) const {
    const bool writes = kernel == Kernel::kSparseApply || kernel == Kernel::kDenseApply;
    return writes ? pause_stream_.get() : stream_.get();
  }
  void ParkSlots(const std::mutex& held);
  Status LoadScan(std::span<const ChunkWork> batch);
  Status WaitForReaders();
  Status GetReady();
  Status RunSparse(Kernel kernel, std::size_t row_count);
  Status RunHere(const DenseRun& run, FirstFault& first);
  Result<DecodeOutcome> RunStaged(const DenseRun& run, FirstFault& first);
  Status PreflightStaged(DenseRun run, FirstFault& first);
  Status ApplyStaged(const DenseRun& run, FirstFault& first);
  Status PreflightAll(std::span<const ChunkWork> batch, FirstFault& first);
  Status ApplyAll(std::span<const ChunkWork> batch, FirstFault& first);
  Status ScanUnproven(std::span<const ChunkWork> batch, FirstFault& first);
  const RowSums& sums(std::size_t row) const {
    return reinterpret_cast<const RowSums*>(staging_.host_sums().data())[row];
  }

  const ContextPointer context_;
  const CudaDeviceOptions options_;
  std::optional<KernelSet> kernels_;
  std::mutex mutex_;     // Around each call of an update: all below.
  Stream stream_;        // Of the least priority: the engine's are of that too.
  Stream pause_stream_;  // Of the greatest.
  std::optional<Decoders> decoders_;
  UpdateStaging staging_;
  std::optional<DensePath> dense_;
  std::optional<DecodePath> decode_;
  bool is_ready_ = false;      // For an apply: BeginApply() went well.
  LoadedBatch written_views_;  // Of chunks that are written without being loaded.
  std::mutex scan_mutex_;
  ScanLane scan_;
};

// What is owned here ends inside the context.
CudaDevice::~CudaDevice() {
  const ContextScope scope(*context_);
  staging_.Release();
  written_views_ = {};
  decode_.reset();
  stream_ = {};
  pause_stream_ = {};
  scan_ = {};
  kernels_.reset();
}

Status CudaDevice::Begin() {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  SEGUE_RETURN_IF_ERROR(CheckCapability(*context_));
  SEGUE_ASSIGN_OR_RETURN(stream_, MakeStream(driver(), StreamPriority::kLeast));
  SEGUE_ASSIGN_OR_RETURN(pause_stream_, MakeStream(driver(), StreamPriority::kGreatest));
  SEGUE_ASSIGN_OR_RETURN(scan_.stream, MakeStream(driver(), StreamPriority::kLeast));
  SEGUE_ASSIGN_OR_RETURN(kernels_, KernelSet::Load(driver(), stream()));
  SEGUE_ASSIGN_OR_RETURN(decode_, DecodePath::Make(driver()));
  dense_.emplace(options_.threads);
  scan_.dense.emplace(1);
  decoders_.emplace(context_, *kernels_, options_.nvcomp_library);
  return staging_.Choose(*decoders_, options_.decoder, dense_->pool(), stream());
}

std::string CudaDevice::decoder() const { return std::string(DecoderName(staging_.decoder())); }

// The gate is closed, so nothing new reads the weights; but kernels that were launched before may
// still run, in any stream of this process.
Status CudaDevice::WaitForReaders() {
  SEGUE_CUDA_TRY(driver(), cuCtxSynchronize);
  return {};
}

void CudaDevice::ParkSlots(const std::mutex& held) {
  if (&held == &mutex_) {
    if (!is_ready_) staging_.ParkSlots();
  } else {
    scan_.slots.reset();
  }
}

void CudaDevice::Unload() {
  const Call call(*this, mutex_);
  is_ready_ = false;
  staging_.Unload();
  if (!options_.keeps_batch || !options_.keeps_slots) staging_.ReleaseBatch();
}

void CudaDevice::ReleaseStaging() {
  {
    const Call call(*this, mutex_);
    written_views_ = {};
    if (staging_.loaded_count() == 0) staging_.Release();
  }
  const Call call(*this, scan_mutex_);
  scan_.views = {};
  ParkSlots(scan_mutex_);
}

Status CudaDevice::Load(std::span<const ChunkWork> batch) {
  const Call call(*this, mutex_);
  SEGUE_RETURN_IF_ERROR(call.status());
  is_ready_ = false;
  return staging_.Load(batch, stream());
}

Status CudaDevice::RunSparse(Kernel kernel, std::size_t row_count) {
  if (row_count == 0) return {};
  SEGUE_RETURN_IF_ERROR(kernels_->Launch(kernel, staging_.loaded().sparse_rows(), row_count,
                                         staging_.device_sums().address(), StreamOf(kernel)));
  SEGUE_CUDA_TRY(driver(), cuMemcpyDtoHAsync, staging_.host_sums().data(),
                 staging_.device_sums().address(), row_count * sizeof(RowSums), StreamOf(kernel));
  SEGUE_CUDA_TRY(driver(), cuStreamSynchronize, StreamOf(kernel));
  return {};
}

// Items whose bytes come from the host.
Status CudaDevice::RunHere(const DenseRun& run, FirstFault& first) {
  if (run.items.empty()) return {};
  SEGUE_RETURN_IF_ERROR(staging_.MakeSlots());
  std::optional<Undecodable> undecodable;
  SEGUE_ASSIGN_OR_RETURN(undecodable,
                         dense_->Run(*kernels_, staging_.slots(), run, StreamOf(run.kernel)));
  AddTo(first, std::move(undecodable));
  return {};
}

// Items that the GPU decodes. Of one that it could not, the processor says whose fault it is; a
// good one that the decoder has only refused is nobody's, and left to the caller.
Result<DecodeOutcome> CudaDevice::RunStaged(const DenseRun& run, FirstFault& first) {
  if (run.items.empty()) return DecodeOutcome();
  SEGUE_RETURN_IF_ERROR(staging_.MakeSlots());
  DecodeOutcome outcome;
  SEGUE_ASSIGN_OR_RETURN(outcome, decode_->Run(*kernels_, staging_.slots(), staging_.blocks(), run,
                                               StreamOf(run.kernel)));
  if (!outcome.undecodable) return outcome;
  const std::size_t index = outcome.undecodable->index;
  Status reason = dense_->Examine(run.batch[index]);
  if (reason.ok() && !outcome.refused.ok()) return outcome;
  if (reason.ok()) {
    reason = Internal("chunk " + std::to_string(index) +
                      " of the batch decodes on the processor, not on the GPU (" + decoder() +
                      "): " + outcome.undecodable->reason.message());
  }
  outcome.refused = {};
  AddTo(first, Undecodable{index, std::move(reason)});
  return outcome;
}

// What a decoder refuses somebody else decodes, for the apply too; all of it once more, as nothing
// that the one before did may count.
Status CudaDevice::PreflightStaged(DenseRun run, FirstFault& first) {
  const FirstFault before = first;
  DecodeOutcome outcome;
  SEGUE_ASSIGN_OR_RETURN(outcome, RunStaged(run, first));
  if (outcome.refused.ok()) return {};
  first = before;
  SEGUE_RETURN_IF_ERROR(staging_.Replace(run.batch, outcome.refused, stream()));
  run.items = staging_.blocks().items();
  SEGUE_ASSIGN_OR_RETURN(outcome, RunStaged(run, first));
  return outcome.refused;
}

// What is refused now the processor decodes, from the first chunk on that is not done: that takes
// no memory.
Status CudaDevice::ApplyStaged(const DenseRun& run, FirstFault& first) {
  DecodeOutcome outcome;
  SEGUE_ASSIGN_OR_RETURN(outcome, RunStaged(run, first));
  if (outcome.refused.ok() || first.get()) return {};
  staging_.ReplaceInPause(outcome.refused);
  DenseRun rest = run;
  rest.items = run.items.subspan(outcome.done);
  return RunHere(rest, first);
}

// Chunks that changed elements alone do not prove, or prove wrong: all of their bytes decide.
Status CudaDevice::ScanUnproven(std::span<const ChunkWork> batch, FirstFault& first) {
  std::vector<std::size_t> items;
  for (std::size_t row = 0; row < staging_.loaded().sparse().size(); ++row) {
    const std::size_t index = staging_.loaded().sparse()[row];
    if (sums(row).is_valid != 0 && IsUnproven(batch[index], sums(row))) items.push_back(index);
  }
  return RunHere({Kernel::kDenseScan, &staging_.loaded(), batch, items,
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
  SEGUE_RETURN_IF_ERROR(RunSparse(Kernel::kSparsePreflight, staging_.loaded().sparse().size()));
  for (std::size_t row = 0; row < staging_.loaded().sparse().size(); ++row) {
    const std::size_t index = staging_.loaded().sparse()[row];
    const ChunkWork& work = batch[index];
    if (sums(row).is_valid == 0) {
      first.Add(index, ChunkVerdict::kPayloadDiffers,
                Corruption("positions or masks are not valid"));
    } else if (work.view != nullptr) {
      *work.part = {{}, DifferenceOf(sums(row)), sums(row).touched};
    }
  }
  SEGUE_RETURN_IF_ERROR(ScanUnproven(batch, first));
  for (std::size_t row = 0; row < staging_.loaded().sparse().size(); ++row) {
    const std::size_t index = staging_.loaded().sparse()[row];
    const ChunkWork& work = batch[index];
    if (work.view == nullptr && DifferenceOf(sums(row)) != work.after - work.before) {
      first.Add(index, ChunkVerdict::kPayloadDiffers);
    }
  }
  const auto take = [&](std::size_t index, const RowSums& found) {
    const ChunkWork& work = batch[index];
    if (work.view != nullptr) {
      *work.part = {BeforeOf(found), DifferenceOf(found), 0};
    } else if (BeforeOf(found) != work.before) {
      first.Add(index, ChunkVerdict::kBaseDiffers);
    } else if (DifferenceOf(found) != work.after - work.before) {
      first.Add(index, ChunkVerdict::kPayloadDiffers);
    }
  };
  DenseRun run = {Kernel::kDensePreflight, &staging_.loaded(), batch, staging_.blocks().items(),
                  take};
  SEGUE_RETURN_IF_ERROR(PreflightStaged(run, first));
  run.items = staging_.blocks().others();
  return RunHere(run, first);
}

// Nothing is written behind a chunk that failed.
Status CudaDevice::ApplyAll(std::span<const ChunkWork> batch, FirstFault& first) {
  const auto in_batch = [&](std::span<const std::size_t> items) {
    const auto end = std::ranges::lower_bound(items, batch.size());
    return items.first(static_cast<std::size_t>(end - items.begin()));
  };
  const std::span<const std::size_t> sparse = in_batch(staging_.loaded().sparse());
  SEGUE_RETURN_IF_ERROR(RunSparse(Kernel::kSparseApply, sparse.size()));
  for (std::size_t row = 0; row < sparse.size(); ++row) {
    if (DifferenceOf(sums(row)) != ExpectedDifference(batch[sparse[row]])) {
      first.Add(sparse[row], ChunkVerdict::kPayloadDiffers);
    }
  }
  if (first.get()) return {};
  const auto take = [&](std::size_t index, const RowSums& found) {
    const ChunkWork& work = batch[index];
    const Digest before = work.view != nullptr ? work.part->before : work.before;
    if (BeforeOf(found) != before || DifferenceOf(found) != ExpectedDifference(work)) {
      first.Add(index, ChunkVerdict::kPayloadDiffers);
    }
  };
  DenseRun run = {Kernel::kDenseApply, &staging_.loaded(), batch,
                  in_batch(staging_.blocks().items()), take};
  SEGUE_RETURN_IF_ERROR(ApplyStaged(run, first));
  if (first.get()) return {};
  run.items = in_batch(staging_.blocks().others());
  return RunHere(run, first);
}

std::optional<ChunkFault> CudaDevice::Preflight(std::span<const ChunkWork> batch) {
  const Call call(*this, mutex_);
  FirstFault first;
  Status status = call.status();
  if (status.ok() && batch.size() != staging_.loaded_count())
    status = Internal("the batch is not loaded");
  if (status.ok()) status = PreflightAll(batch, first);
  if (!status.ok()) return ChunkFault{0, ChunkVerdict::kDeviceFailed, std::move(status)};
  return first.get();
}

// The last of an apply that can fail with nothing written.
Status CudaDevice::GetReady() {
  SEGUE_RETURN_IF_ERROR(WaitForReaders());
  const bool needs_slots = !staging_.loaded().dense().empty();
  return needs_slots ? staging_.MakeSlots() : Status();
}

Status CudaDevice::BeginApply() {
  const Call call(*this, mutex_);
  is_ready_ = false;
  SEGUE_RETURN_IF_ERROR(call.status());
  SEGUE_RETURN_IF_ERROR(GetReady());
  is_ready_ = true;
  return {};
}

std::optional<ChunkFault> CudaDevice::Apply(std::span<const ChunkWork> batch) {
  const Call call(*this, mutex_);
  FirstFault first;
  Status status = call.status();
  if (status.ok() && batch.size() > staging_.loaded_count())
    status = Internal("the batch is not loaded");
  if (status.ok() && !is_ready_) status = GetReady();
  is_ready_ = false;
  if (status.ok()) status = ApplyAll(batch, first);
  if (!status.ok()) return ChunkFault{0, ChunkVerdict::kDeviceFailed, std::move(status)};
  return first.get();
}

Status CudaDevice::CheckMemory(const std::byte* address, std::uint64_t size) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  return CheckDeviceMemory(*context_, address, size);
}

// A kernel over all of a batch that no Load() has prepared.
Status RunAll(const KernelSet& kernels, DensePath& dense, GroupSlots& slots, const DenseRun& run,
              CUstream stream) {
  std::vector<std::size_t> items(run.batch.size());
  std::iota(items.begin(), items.end(), std::size_t{0});
  DenseRun all = run;
  all.items = items;
  std::optional<Undecodable> undecodable;
  SEGUE_ASSIGN_OR_RETURN(undecodable, dense.Run(kernels, slots, all, stream));
  return undecodable ? undecodable->reason : Status();
}

Status CudaDevice::Scan(std::span<const ChunkWork> batch) {
  const Call call(*this, scan_mutex_);
  SEGUE_RETURN_IF_ERROR(call.status());
  const CUstream stream = scan_.stream.get();
  SEGUE_RETURN_IF_ERROR(LoadScan(batch));
  const auto take = [&](std::size_t index, const RowSums& found) {
    batch[index].part->before = BeforeOf(found);
  };
  return RunAll(*kernels_, *scan_.dense, *scan_.slots,
                {Kernel::kDenseScan, &scan_.views, batch, {}, take}, stream);
}

// Where it is refused, an update finds no room beside it either: what both want is said at once.
Status CudaDevice::LoadScan(std::span<const ChunkWork> batch) {
  const StagingMemory& memory = staging_.memory();
  const auto refused = [&](const Status& status, std::uint64_t scan) {
    return memory.Refusal(status, scan + staging_.least_size(),
                          "a scan with the smallest update beside it");
  };
  if (!scan_.slots) {
    auto made = GroupSlots::Make(memory, 0, {});
    const std::uint64_t least = GroupSlots::LeastSize(0) + LoadedBatch::SizeOfViews(batch);
    if (!made.ok()) return refused(made.status(), least);
    scan_.slots = std::move(made).value();
  }
  const Status loaded =
      scan_.views.LoadViews(memory, scan_.slots->host(), scan_.stream.get(), batch);
  return loaded.ok() ? loaded : refused(loaded, LoadedBatch::SizeOfViews(batch));
}

Status CudaDevice::Write(std::span<const ChunkWork> batch) {
  const Call call(*this, mutex_);
  SEGUE_RETURN_IF_ERROR(call.status());
  SEGUE_RETURN_IF_ERROR(staging_.MakeSlots());
  GroupSlots& slots = staging_.slots();
  SEGUE_RETURN_IF_ERROR(written_views_.LoadViews(staging_.memory(), slots.host(), stream(), batch));
  SEGUE_RETURN_IF_ERROR(WaitForReaders());
  const auto take = [](std::size_t, const RowSums&) {};
  return RunAll(*kernels_, *dense_, slots, {Kernel::kDenseApply, &written_views_, batch, {}, take},
                stream());
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
