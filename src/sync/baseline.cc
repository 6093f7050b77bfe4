// SPDX-License-Identifier: Apache-2.0
//
// Baseline: on the host one anonymous mapping, so that a model that does not fit is a status and
// not the end of the trainer.
#include "sync/baseline.h"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <utility>

#include "base/threads.h"
#include "delta/applier.h"
#include "device/host/kernels.h"

namespace segue {
namespace {

// Tensors begin at whole cache lines: no two threads write to one.
constexpr std::uint64_t kAlignment = 64;

}  // namespace

Baseline::Baseline(const Plan& plan, const BaselinePlace& place, unsigned threads)
    : plan_(plan), place_(place), threads_(threads), digests_(plan.tensors().size()) {
  if (is_on_device()) {
    device_ = place.accelerator;
  } else {
    device_ = MakeHostDevice(threads);
  }
  device_->Reserve(plan.chunk_size());
}

Result<std::unique_ptr<Baseline>> Baseline::Copy(const Plan& plan, const TensorSet& owned,
                                                 const ModelView& source, unsigned threads,
                                                 const BaselinePlace& place) {
  auto baseline = std::unique_ptr<Baseline>(new Baseline(plan, place, threads));
  SEGUE_RETURN_IF_ERROR(baseline->Allocate(owned));
  if (place.differ == nullptr) {
    SEGUE_ASSIGN_OR_RETURN(baseline->digests_, baseline->SumUp(&source));
  } else {
    SEGUE_RETURN_IF_ERROR(baseline->CopyThrough(owned, source));
    SEGUE_ASSIGN_OR_RETURN(baseline->digests_, baseline->SumUp());
  }
  return baseline;
}

Result<std::unique_ptr<Baseline>> Baseline::Read(const Plan& plan, const TensorSet& owned,
                                                 const Reader& read, unsigned threads,
                                                 const BaselinePlace& place) {
  auto baseline = std::unique_ptr<Baseline>(new Baseline(plan, place, threads));
  SEGUE_RETURN_IF_ERROR(baseline->Allocate(owned));
  for (std::size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    if (owned.Contains(tensor)) SEGUE_RETURN_IF_ERROR(baseline->ReadOne(read, tensor));
  }
  SEGUE_ASSIGN_OR_RETURN(baseline->digests_, baseline->SumUp());
  return baseline;
}

// A device's memory is filled by way of the host's, one tensor at a time.
Status Baseline::ReadOne(const Reader& read, std::size_t tensor) {
  if (!is_on_device()) return read(tensor, view_.Tensor(tensor));
  ByteVector bytes(plan_.tensors()[tensor].size);
  SEGUE_RETURN_IF_ERROR(read(tensor, bytes.data()));
  const DiffCopy copy = {bytes.data(), view_.Tensor(tensor), bytes.size()};
  return place_.differ->Copy({&copy, 1});
}

Status Baseline::CopyThrough(const TensorSet& owned, const ModelView& source) {
  std::vector<DiffCopy> copies;
  for (std::size_t tensor = 0; tensor < plan_.tensors().size(); ++tensor) {
    if (!owned.Contains(tensor)) continue;
    copies.push_back({source.Tensor(tensor), view_.Tensor(tensor), plan_.tensors()[tensor].size});
  }
  return place_.differ->Copy(copies);
}

Status Baseline::AllocateBytes() {
  if (size_ == 0) return {};
  if (place_.differ != nullptr) {
    const DiffMemory kind = is_on_device() ? DiffMemory::kDevice : DiffMemory::kHost;
    Result<std::shared_ptr<std::byte>> memory = place_.differ->Allocate(kind, size_);
    if (!memory.ok()) {
      return memory.status().WithContext(
          is_on_device() ? "the baseline (baseline_on_host has it in the host's memory)"
                         : "the baseline");
    }
    memory_ = std::move(memory).value();
    return {};
  }
  void* const memory =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return ResourceExhausted("memory: no " + std::to_string(size_) + " bytes for the baseline");
  }
  memory_ = {static_cast<std::byte*>(memory),
             [size = size_](std::byte* mapped) { (void)::munmap(mapped, size); }};
  (void)::madvise(memory, size_, MADV_HUGEPAGE);  // Only faster.
  return {};
}

Status Baseline::Allocate(const TensorSet& owned) {
  std::vector<std::uint64_t> offsets(plan_.tensors().size(), 0);
  for (std::size_t tensor = 0; tensor < offsets.size(); ++tensor) {
    if (!owned.Contains(tensor)) continue;
    offsets[tensor] = size_;
    size_ += DivideUp(plan_.tensors()[tensor].size, kAlignment) * kAlignment;
  }
  SEGUE_RETURN_IF_ERROR(AllocateBytes());
  std::vector<std::byte*> tensors(offsets.size(), nullptr);
  for (std::size_t tensor = 0; tensor < offsets.size(); ++tensor) {
    if (owned.Contains(tensor)) tensors[tensor] = memory_.get() + offsets[tensor];
  }
  view_ = MutableModelView(std::move(tensors));
  return {};
}

Result<std::vector<Digest>> Baseline::SumUp(const ModelView* source) {
  std::vector<Digest> digests(plan_.tensors().size());
  if (is_on_device()) {
    SEGUE_RETURN_IF_ERROR(SumUpOnDevice(digests));
    return digests;
  }
  std::mutex mutex;
  const auto sum_up = [&](std::size_t number, unsigned) -> Status {
    const ChunkPlace place = plan_.Chunk(number);
    if (!Owns(place.tensor)) return {};
    if (source != nullptr) std::memcpy(view_.Chunk(place), source->Chunk(place), place.size);
    const Digest sum = host::ActiveKernels().digest({place.tensor, place.offset / kDigestBlockSize},
                                                    view_.Chunk(place), place.size);
    const std::lock_guard lock(mutex);
    digests[place.tensor] += sum;
    return {};
  };
  SEGUE_RETURN_IF_ERROR(ParallelFor(plan_.chunk_count(), threads_, sum_up));
  return digests;
}

Status Baseline::SumUpOnDevice(std::vector<Digest>& digests) {
  std::vector<ChunkWork> batch;
  for (std::uint64_t number = 0; number < plan_.chunk_count(); ++number) {
    const ChunkPlace place = plan_.Chunk(number);
    if (!Owns(place.tensor)) continue;
    ChunkWork work;
    work.width = place.width;
    work.key = {place.tensor, place.offset / kDigestBlockSize};
    work.live = view_.Chunk(place);
    work.size = place.size;
    batch.push_back(work);
  }
  std::vector<PartSums> parts(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) batch[i].part = &parts[i];
  SEGUE_RETURN_IF_ERROR(place_.accelerator->Scan(batch));
  for (const ChunkWork& work : batch) digests[work.key.tensor] += work.part->before;
  return {};
}

Digest Baseline::digest() const {
  Digest sum;
  for (const Digest& digest : digests_) sum += digest;
  return sum;
}

Status Baseline::Prove(const StagedDelta& staged, const Digest& after) {
  const Status proven = ProveChanges(staged, after);
  const bool differs =
      proven.code() == StatusCode::kCorruption || proven.code() == StatusCode::kVersionMismatch;
  return differs ? FindFault(proven) : proven;
}

// Whose fault it is, a look at all bytes tells: a delta of a baseline that is no longer what was
// published is right for nobody, and so is every later one.
Status Baseline::FindFault(const Status& failure) {
  SEGUE_ASSIGN_OR_RETURN(const std::vector<Digest> found, SumUp());
  for (std::size_t tensor = 0; tensor < found.size(); ++tensor) {
    if (found[tensor] == digests_[tensor]) continue;
    return Tainted("the baseline's copy of tensor '" + plan_.tensors()[tensor].spec.name +
                   "' is no longer what was published (memory that failed, or somebody else writes "
                   "to it): open the publisher anew (" +
                   failure.message() + ")");
  }
  return failure;
}

Status Baseline::ProveChanges(const StagedDelta& staged, const Digest& after) {
  Digest sum = digest();
  for (const ChunkRow& row : staged.rows()) {
    SEGUE_RETURN_IF_ERROR(CheckRow(row, plan_.Chunk(row.chunk)));
    sum += row.after - row.before;
  }
  SEGUE_RETURN_IF_ERROR(Applier(plan_, staged, view_, *device_).Preflight());
  if (sum == after) return {};
  return Corruption("the chunks that changed lead to digest " + sum.ToHex() + ", all of them to " +
                    after.ToHex());
}

Status Baseline::Advance(const StagedDelta& staged) {
  Applier applier(plan_, staged, view_, *device_);
  // Brings the delta to the device, too.
  if (is_on_device()) SEGUE_RETURN_IF_ERROR(applier.Preflight());
  SEGUE_RETURN_IF_ERROR(applier.Apply());
  for (const ChunkRow& row : staged.rows()) {
    digests_[plan_.Chunk(row.chunk).tensor] += row.after - row.before;
  }
  return {};
}

}  // namespace segue
