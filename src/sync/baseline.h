// SPDX-License-Identifier: Apache-2.0
//
// Baseline: a publisher's own copy of the last durable version, of the tensors that it owns. It
// moves by applying a published delta, which proves the bytes that come out (case D2). It lies in
// memory of the host or in that of the device where the trainer's tensors are.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/digest.h"
#include "checkpoint/plan.h"
#include "delta/model_view.h"
#include "delta/staged_delta.h"
#include "delta/tensor_set.h"
#include "device/accelerator.h"
#include "device/differ.h"
#include "segue/status.h"

namespace segue {

// Where a baseline lies. Neither: plain memory of the host. The differ alone: memory of the host
// that its device reads too. Both, of one device: the memory of that device.
struct BaselinePlace {
  std::shared_ptr<Differ> differ = {};
  std::shared_ptr<Accelerator> accelerator = {};
};

class Baseline {
 public:
  // Copies the tensors of `owned` that `source` shows, on the host or, where there is a differ,
  // also on its device. `plan` outlives it. ResourceExhausted where there is not that much memory.
  static Result<std::unique_ptr<Baseline>> Copy(const Plan& plan, const TensorSet& owned,
                                                const ModelView& source, unsigned threads,
                                                const BaselinePlace& place = {});
  // The same for tensors that come one by one: `read` writes the bytes of one at `to`, memory of
  // the host, and is called for each of `owned` in the plan's order. What it fails with is
  // returned.
  using Reader = std::function<Status(std::size_t tensor, std::byte* to)>;
  static Result<std::unique_ptr<Baseline>> Read(const Plan& plan, const TensorSet& owned,
                                                const Reader& read, unsigned threads,
                                                const BaselinePlace& place = {});
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;

  const std::byte* Tensor(std::size_t tensor) const { return view_.Tensor(tensor); }
  // Of one tensor, and of all that are owned.
  Digest TensorDigest(std::size_t tensor) const { return digests_[tensor]; }
  Digest digest() const;
  std::uint64_t size() const { return size_; }
  bool is_on_device() const { return place_.accelerator != nullptr; }

  // Proves that the delta leads from these bytes to the digest `after` by rows that a reader takes;
  // changes nothing. Corruption: it does not, since what it was made of did not hold still.
  // Tainted: the bytes are no longer those that were published, and the tensor is named.
  Status Prove(const StagedDelta& staged, const Digest& after);
  // Tainted: the delta did not lead to what it states, and the baseline is of no more use. Any
  // other failure: the baseline is as it was.
  Status Advance(const StagedDelta& staged);

 private:
  Baseline(const Plan& plan, const BaselinePlace& place, unsigned threads);
  Status Allocate(const TensorSet& owned);
  Status AllocateBytes();
  Status CopyThrough(const TensorSet& owned, const ModelView& source);
  Status ReadOne(const Reader& read, std::size_t tensor);
  bool Owns(std::size_t tensor) const { return view_.Tensor(tensor) != nullptr; }
  // The digests of the bytes as they are, by tensor; with `source` chunks are copied from it first.
  Result<std::vector<Digest>> SumUp(const ModelView* source = nullptr);
  Status SumUpOnDevice(std::vector<Digest>& digests);
  Status ProveChanges(const StagedDelta& staged, const Digest& after);
  Status FindFault(const Status& failure);

  const Plan& plan_;
  const BaselinePlace place_;
  const unsigned threads_;
  std::shared_ptr<std::byte> memory_;
  std::uint64_t size_ = 0;
  MutableModelView view_;
  std::vector<Digest> digests_;
  std::shared_ptr<Device> device_;  // That applies.
};

}  // namespace segue
