// SPDX-License-Identifier: Apache-2.0
//
// Staging memory: what a device takes of the GPU's and the host's memory to stage updates, counted
// against a budget that the caller sets. What the driver will not pin is taken pageable instead,
// and said so. Threads may share one; copies count together.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "device/accelerator.h"
#include "device/cuda/owners.h"

namespace segue::cuda {

class StagingMemory {
 public:
  // `max`: bytes on both sides together, 0 for no bound.
  StagingMemory(DriverPointer driver, std::uint64_t max = 0);

  const DriverPointer& driver() const { return driver_; }
  // ResourceExhausted: over the budget, or the driver has no more. Size 0: empty.
  Result<DeviceBuffer> Device(std::uint64_t size) const;
  // Pinned, or pageable where that is refused.
  Result<PinnedBuffer> Host(std::uint64_t size) const;
  // Counts `size` bytes of the budget as taken until the result goes, whether or not anything is
  // held for them yet. `what`: for the refusal.
  Result<std::shared_ptr<const void>> Charge(std::uint64_t size, const char* what) const;
  // `size` bytes that are held now, until the result goes and `charge` with it: for the peak.
  std::shared_ptr<const void> Hold(std::uint64_t size, std::shared_ptr<const void> charge) const;
  // The same memory for who has charged all of it already.
  StagingMemory Charged() const;

  // What is said of `who`, which was refused and needs `least` bytes beside what is taken now: the
  // sum that memory_max would have to be, where that is what is short.
  Status Refusal(const Status& refused, std::uint64_t least, const std::string& who) const;

  StagingUse use() const;
  // One line on the standard error stream that says what is done instead, and why; once for each
  // `what`, since the next update may well end the same way.
  void Say(const std::string& what, const std::string& why) const;

 private:
  struct Ledger;
  DriverPointer driver_;
  std::shared_ptr<Ledger> ledger_;
  bool charges_ = true;
};

}  // namespace segue::cuda
