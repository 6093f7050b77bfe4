// SPDX-License-Identifier: Apache-2.0
//
// Baseline: one anonymous mapping, so that a model that does not fit is a status and not the end of
// the trainer.
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

Result<std::unique_ptr<Baseline>> Baseline::Copy(const Plan& plan, const TensorSet& owned,
                                                 const ModelView& source, unsigned threads) {
  auto baseline = std::unique_ptr<Baseline>(new Baseline(plan));
  SEGUE_RETURN_IF_ERROR(baseline->Allocate(owned));
  SEGUE_RETURN_IF_ERROR(baseline->SumUp(owned, &source, threads));
  baseline->StartDevice(threads);
  return baseline;
}

Result<std::unique_ptr<Baseline>> Baseline::Read(const Plan& plan, const TensorSet& owned,
                                                 const Reader& read, unsigned threads) {
  auto baseline = std::unique_ptr<Baseline>(new Baseline(plan));
  SEGUE_RETURN_IF_ERROR(baseline->Allocate(owned));
  for (std::size_t tensor = 0; tensor < plan.tensors().size(); ++tensor) {
    if (!owned.Contains(tensor)) continue;
    SEGUE_RETURN_IF_ERROR(read(tensor, baseline->view_.Tensor(tensor)));
  }
  SEGUE_RETURN_IF_ERROR(baseline->SumUp(owned, nullptr, threads));
  baseline->StartDevice(threads);
  return baseline;
}

void Baseline::StartDevice(unsigned threads) {
  device_ = MakeHostDevice(threads);
  device_->Reserve(plan_.chunk_size());
}

Status Baseline::Allocate(const TensorSet& owned) {
  std::vector<std::uint64_t> offsets(plan_.tensors().size(), 0);
  for (std::size_t tensor = 0; tensor < offsets.size(); ++tensor) {
    if (!owned.Contains(tensor)) continue;
    offsets[tensor] = size_;
    size_ += DivideUp(plan_.tensors()[tensor].size, kAlignment) * kAlignment;
  }
  if (size_ != 0) {
    void* const memory =
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      return ResourceExhausted("memory: no " + std::to_string(size_) + " bytes for the baseline");
    }
    memory_ = static_cast<std::byte*>(memory);
    (void)::madvise(memory, size_, MADV_HUGEPAGE);  // Only faster.
  }
  std::vector<std::byte*> tensors(offsets.size(), nullptr);
  for (std::size_t tensor = 0; tensor < offsets.size(); ++tensor) {
    if (owned.Contains(tensor)) tensors[tensor] = memory_ + offsets[tensor];
  }
  view_ = MutableModelView(std::move(tensors));
  return {};
}

Status Baseline::SumUp(const TensorSet& owned, const ModelView* source, unsigned threads) {
  std::mutex mutex;
  return ParallelFor(plan_.chunk_count(), threads, [&](std::size_t number, unsigned) -> Status {
    const ChunkPlace place = plan_.Chunk(number);
    if (!owned.Contains(place.tensor)) return {};
    if (source != nullptr) std::memcpy(view_.Chunk(place), source->Chunk(place), place.size);
    const Digest sum = host::ActiveKernels().digest({place.tensor, place.offset / kDigestBlockSize},
                                                    view_.Chunk(place), place.size);
    const std::lock_guard lock(mutex);
    digests_[place.tensor] += sum;
    return {};
  });
}

Baseline::~Baseline() {
  if (memory_ != nullptr) (void)::munmap(memory_, size_);
}

Digest Baseline::digest() const {
  Digest sum;
  for (const Digest& digest : digests_) sum += digest;
  return sum;
}

Status Baseline::Advance(const StagedDelta& staged) {
  Applier applier(plan_, staged, view_, *device_);
  SEGUE_RETURN_IF_ERROR(applier.Apply());
  for (const ChunkRow& row : staged.rows()) {
    digests_[plan_.Chunk(row.chunk).tensor] += row.after - row.before;
  }
  return {};
}

}  // namespace segue
