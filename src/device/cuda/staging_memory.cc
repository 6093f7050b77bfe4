// SPDX-License-Identifier: Apache-2.0
//
// Counting, and what is taken where the first choice is refused.
#include "device/cuda/staging_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <utility>

namespace segue::cuda {

struct StagingMemory::Ledger {
  std::mutex mutex;
  StagingUse use;
  std::uint64_t held = 0;
  std::set<std::string> said;
};

namespace {

CUresult FreePageable(void* address) {
  std::free(address);
  return CUDA_SUCCESS;
}

}  // namespace

StagingMemory::StagingMemory(DriverPointer driver, std::uint64_t max)
    : driver_(std::move(driver)), ledger_(std::make_shared<Ledger>()) {
  ledger_->use.max = max;
}

Result<std::shared_ptr<const void>> StagingMemory::Charge(std::uint64_t size,
                                                          const char* what) const {
  if (!charges_) return std::shared_ptr<const void>();
  const std::lock_guard lock(ledger_->mutex);
  StagingUse& use = ledger_->use;
  if (use.max != 0 && size > use.max - use.bytes) {
    return ResourceExhausted(std::to_string(size) + " bytes of " + what +
                             " for staging: " + std::to_string(use.bytes) + " of the " +
                             std::to_string(use.max) + " bytes that memory_max allows are taken");
  }
  use.bytes += size;
  return std::shared_ptr<const void>(ledger_.get(), [ledger = ledger_, size](const void*) {
    const std::lock_guard give_back(ledger->mutex);
    ledger->use.bytes -= size;
  });
}

std::shared_ptr<const void> StagingMemory::Hold(std::uint64_t size,
                                                std::shared_ptr<const void> charge) const {
  const std::lock_guard lock(ledger_->mutex);
  ledger_->held += size;
  ledger_->use.peak = std::max(ledger_->use.peak, ledger_->held);
  return std::shared_ptr<const void>(
      ledger_.get(), [ledger = ledger_, size, charge = std::move(charge)](const void*) {
        const std::lock_guard give_back(ledger->mutex);
        ledger->held -= size;
      });
}

StagingMemory StagingMemory::Charged() const {
  StagingMemory memory = *this;
  memory.charges_ = false;
  return memory;
}

Result<DeviceBuffer> StagingMemory::Device(std::uint64_t size) const {
  if (size == 0) return DeviceBuffer();
  std::shared_ptr<const void> charge;
  SEGUE_ASSIGN_OR_RETURN(charge, Charge(size, "device memory"));
  DeviceBuffer buffer;
  SEGUE_ASSIGN_OR_RETURN(buffer, AllocateDevice(driver_, size));
  buffer.charge = Hold(size, std::move(charge));
  return buffer;
}

Result<PinnedBuffer> StagingMemory::Host(std::uint64_t size) const {
  if (size == 0) return PinnedBuffer();
  std::shared_ptr<const void> charge;
  SEGUE_ASSIGN_OR_RETURN(charge, Charge(size, "host memory"));
  Result<PinnedBuffer> pinned = AllocatePinned(driver_, size);
  PinnedBuffer buffer;
  if (pinned.ok()) {
    buffer = std::move(pinned).value();
  } else if (pinned.status().code() == StatusCode::kResourceExhausted) {
    void* const pages = std::malloc(size);
    if (pages == nullptr) return pinned.status();
    buffer = PinnedBuffer{Owned<void*>(driver_, pages, FreePageable), size};
    Say("host memory for staging is pageable, copies are slower", pinned.status().message());
  } else {
    return pinned.status();
  }
  buffer.charge = Hold(size, std::move(charge));
  return buffer;
}

Status StagingMemory::Refusal(const Status& refused, std::uint64_t least,
                              const std::string& who) const {
  const StagingUse now = use();
  const bool is_bound = refused.code() == StatusCode::kResourceExhausted && now.max != 0;
  if (!is_bound || least <= now.max - now.bytes) return refused.WithContext(who);
  const std::string taken =
      now.bytes == 0 ? "" : ", with the " + std::to_string(now.bytes) + " that are taken";
  return ResourceExhausted(who + " needs at least " + std::to_string(now.bytes + least) +
                           " bytes for staging" + taken + "; memory_max allows " +
                           std::to_string(now.max));
}

StagingUse StagingMemory::use() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->use;
}

void StagingMemory::Say(const std::string& what, const std::string& why) const {
  const std::lock_guard lock(ledger_->mutex);
  if (!ledger_->said.insert(what).second) return;
  std::fprintf(stderr, "segue: %s: %s\n", what.c_str(), why.c_str());
}

}  // namespace segue::cuda
