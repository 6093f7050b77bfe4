// SPDX-License-Identifier: Apache-2.0
//
// Order of a diff: while the host looks at what one group's first pass found and the second pass
// brings its changes, the first pass of the next group runs; while the consumer takes one batch of
// chunks, the next one is packed and copied. Every wait is the host's, so two streams need no order
// between them.
#include "device/cuda/cuda_differ.h"

#include <array>
#include <optional>
#include <utility>

#include "device/cuda/diff_passes.h"
#include "device/cuda/kernel_set.h"

namespace segue::cuda {
namespace {

constexpr std::uint64_t kPackShare = 8;  // Of all memory, a share for each PackPass.

// Memory that goes inside the context, which it keeps.
template <typename Buffer>
std::shared_ptr<std::byte> Hold(ContextPointer context, Buffer buffer, std::byte* data) {
  struct Held {
    ContextPointer context;
    Buffer buffer;
    ~Held() {
      const ContextScope scope(*context);
      buffer = {};
    }
  };
  const auto held = std::shared_ptr<Held>(new Held{std::move(context), std::move(buffer)});
  return {held, data};
}

class CudaDiffer final : public Differ {
 public:
  explicit CudaDiffer(ContextPointer context) : context_(std::move(context)) {}
  ~CudaDiffer() override;
  Status Begin(const DifferOptions& options);

  Status CheckMemory(const std::byte* address, std::uint64_t size) override;
  Result<std::shared_ptr<std::byte>> Allocate(DiffMemory kind, std::uint64_t size) override;
  Status Copy(std::span<const DiffCopy> copies) override;
  Status Diff(std::span<const DiffWork> work, DiffConsumer& consumer) override;

 private:
  const DriverPointer& driver() const { return context_->driver(); }
  Status MakePasses(const DifferOptions& options);
  Status CopyAll(std::span<const DiffCopy> copies);
  Status DiffAll(std::span<const DiffWork> work, DiffConsumer& consumer);
  Status TakeGroup(FindPass& find, std::span<const DiffWork> work, DiffConsumer& consumer);
  Status TakeChunk(const FindPass& find, std::size_t item, std::span<const DiffWork> work,
                   DiffConsumer& consumer);
  Status TurnPack(DiffConsumer& consumer);
  Status TakePacked(PackPass& pack, DiffConsumer& consumer);
  void EndAll();

  const ContextPointer context_;
  Stream find_stream_;
  Stream pack_stream_;
  std::optional<KernelSet> kernels_;
  std::array<FindPass, 2> finds_;
  std::array<PackPass, 2> packs_;
  unsigned current_ = 0;  // Of packs_: the one that is filled.
};

// What is owned here ends inside the context.
CudaDiffer::~CudaDiffer() {
  const ContextScope scope(*context_);
  finds_ = {};
  packs_ = {};
  kernels_.reset();
  find_stream_ = {};
  pack_stream_ = {};
}

Status CudaDiffer::Begin(const DifferOptions& options) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  SEGUE_RETURN_IF_ERROR(CheckCapability(*context_));
  SEGUE_ASSIGN_OR_RETURN(find_stream_, MakeStream(driver(), StreamPriority::kLeast));
  SEGUE_ASSIGN_OR_RETURN(pack_stream_, MakeStream(driver(), StreamPriority::kLeast));
  SEGUE_ASSIGN_OR_RETURN(kernels_, KernelSet::Load(driver(), find_stream_.get()));
  return MakePasses(options);
}

Status CudaDiffer::MakePasses(const DifferOptions& options) {
  const std::uint64_t pack_min = PackPass::SizeMin(options.chunk_size_max);
  const std::uint64_t find_min = FindPass::SizeMin(options.chunk_size_max);
  const std::uint64_t least = 2 * (pack_min + find_min);
  if (options.memory_max < least) {
    return InvalidArgument("comparing on the device needs at least " + std::to_string(least) +
                           " bytes of its memory, " + std::to_string(options.memory_max) +
                           " are allowed");
  }
  const std::uint64_t half = options.memory_max / 2;
  const std::uint64_t pack =
      std::max(pack_min, std::min(options.memory_max / kPackShare, half - find_min));
  for (unsigned i = 0; i < 2; ++i) {
    SEGUE_ASSIGN_OR_RETURN(finds_[i], FindPass::Make(driver(), half - pack));
    SEGUE_ASSIGN_OR_RETURN(packs_[i], PackPass::Make(driver(), pack));
  }
  return {};
}

Status CudaDiffer::CheckMemory(const std::byte* address, std::uint64_t size) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  return CheckDeviceMemory(*context_, address, size);
}

Result<std::shared_ptr<std::byte>> CudaDiffer::Allocate(DiffMemory kind, std::uint64_t size) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  if (kind == DiffMemory::kDevice) {
    SEGUE_ASSIGN_OR_RETURN(DeviceBuffer buffer, AllocateDevice(driver(), size));
    std::byte* const data = buffer.as<std::byte>();
    return Hold(context_, std::move(buffer), data);
  }
  SEGUE_ASSIGN_OR_RETURN(PinnedBuffer buffer, AllocatePinned(driver(), size));
  std::byte* const data = buffer.data();
  return Hold(context_, std::move(buffer), data);
}

Status CudaDiffer::CopyAll(std::span<const DiffCopy> copies) {
  SEGUE_CUDA_TRY(driver(), cuCtxSynchronize);
  for (const DiffCopy& copy : copies) {
    if (copy.size == 0) continue;
    SEGUE_CUDA_TRY(driver(), cuMemcpyAsync, reinterpret_cast<CUdeviceptr>(copy.to),
                   reinterpret_cast<CUdeviceptr>(copy.from), copy.size, find_stream_.get());
  }
  return {};
}

Status CudaDiffer::Copy(std::span<const DiffCopy> copies) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  const Status status = CopyAll(copies);
  // Also after a failure: the caller's memory may go.
  const Status ended =
      driver()->Check(driver()->cuStreamSynchronize(find_stream_.get()), "cuStreamSynchronize");
  return status.ok() ? ended : status;
}

Status CudaDiffer::Diff(std::span<const DiffWork> work, DiffConsumer& consumer) {
  const ContextScope scope(*context_);
  SEGUE_RETURN_IF_ERROR(scope.status());
  const Status status = DiffAll(work, consumer);
  if (!status.ok()) EndAll();
  return status;
}

// After a failure nothing may still read the caller's memory.
void CudaDiffer::EndAll() {
  (void)driver()->cuStreamSynchronize(find_stream_.get());
  (void)driver()->cuStreamSynchronize(pack_stream_.get());
  for (FindPass& find : finds_) find.Forget();
  for (PackPass& pack : packs_) pack.Clear();
}

Status CudaDiffer::DiffAll(std::span<const DiffWork> work, DiffConsumer& consumer) {
  // What writes the target may have been launched and not have run, in any stream.
  SEGUE_CUDA_TRY(driver(), cuCtxSynchronize);
  std::size_t next = 0;
  for (unsigned turn = 0; next < work.size() || finds_[turn ^ 1].is_running(); turn ^= 1) {
    if (next < work.size()) {
      SEGUE_RETURN_IF_ERROR(finds_[turn].Begin(*kernels_, work, next, find_stream_.get()));
      next += finds_[turn].count();
    }
    FindPass& before = finds_[turn ^ 1];
    if (before.is_running()) SEGUE_RETURN_IF_ERROR(TakeGroup(before, work, consumer));
  }
  return {};
}

// All of the group that is to come back has come when it returns.
Status CudaDiffer::TakeGroup(FindPass& find, std::span<const DiffWork> work,
                             DiffConsumer& consumer) {
  SEGUE_RETURN_IF_ERROR(find.Wait());
  for (std::size_t item = 0; item < find.count(); ++item) {
    SEGUE_RETURN_IF_ERROR(TakeChunk(find, item, work, consumer));
  }
  SEGUE_RETURN_IF_ERROR(TurnPack(consumer));
  SEGUE_RETURN_IF_ERROR(TurnPack(consumer));
  find.Forget();
  return {};
}

Status CudaDiffer::TakeChunk(const FindPass& find, std::size_t item, std::span<const DiffWork> work,
                             DiffConsumer& consumer) {
  const std::size_t index = find.first() + item;
  const ChunkFound found = AddUp(find.sums(item));
  const DiffForm form = consumer.Choose(index, found.sums);
  if (found.sums.change_count == 0 || form == DiffForm::kNothing) return {};
  const auto add = [&] {
    return packs_[current_].Add(index, work[index], form, found, find.rows(item), find.sums(item));
  };
  if (add()) return {};
  SEGUE_RETURN_IF_ERROR(TurnPack(consumer));
  if (add()) return {};
  return Internal("a chunk's changes need more memory than its bytes");
}

// Sends the pass that was filled on its way, and has the other one's results taken.
Status CudaDiffer::TurnPack(DiffConsumer& consumer) {
  PackPass& filled = packs_[current_];
  if (!filled.empty()) SEGUE_RETURN_IF_ERROR(filled.Begin(*kernels_, pack_stream_.get()));
  current_ ^= 1;
  return TakePacked(packs_[current_], consumer);
}

Status CudaDiffer::TakePacked(PackPass& pack, DiffConsumer& consumer) {
  if (!pack.is_running()) return {};
  SEGUE_ASSIGN_OR_RETURN(const std::span<const DiffResult> results, pack.Wait());
  SEGUE_RETURN_IF_ERROR(consumer.Take(results));
  pack.Clear();
  return {};
}

}  // namespace

Result<std::shared_ptr<Differ>> MakeCudaDiffer(std::shared_ptr<const Driver> driver, int ordinal,
                                               const DifferOptions& options) {
  ContextPointer context;
  SEGUE_ASSIGN_OR_RETURN(context, Context::Make(std::move(driver), ordinal));
  const auto differ = std::make_shared<CudaDiffer>(std::move(context));
  SEGUE_RETURN_IF_ERROR(differ->Begin(options));
  return std::shared_ptr<Differ>(differ);
}

}  // namespace segue::cuda
