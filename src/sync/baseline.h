// SPDX-License-Identifier: Apache-2.0
//
// Baseline: a publisher's own copy of the last durable version, of the tensors that it owns. It
// moves by applying a published delta, which proves the bytes that come out (case D2).
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
#include "device/device.h"
#include "segue/status.h"

namespace segue {

class Baseline {
 public:
  // Copies the tensors of `owned` that `source` shows. `plan` outlives it. ResourceExhausted where
  // there is not that much memory.
  static Result<std::unique_ptr<Baseline>> Copy(const Plan& plan, const TensorSet& owned,
                                                const ModelView& source, unsigned threads);
  // The same for tensors that come one by one: `read` writes the bytes of one at `to`, and is
  // called for each of `owned` in the plan's order. What it fails with is returned.
  using Reader = std::function<Status(std::size_t tensor, std::byte* to)>;
  static Result<std::unique_ptr<Baseline>> Read(const Plan& plan, const TensorSet& owned,
                                                const Reader& read, unsigned threads);
  ~Baseline();
  Baseline(const Baseline&) = delete;
  Baseline& operator=(const Baseline&) = delete;

  const std::byte* Tensor(std::size_t tensor) const { return view_.Tensor(tensor); }
  // Of one tensor, and of all that are owned.
  Digest TensorDigest(std::size_t tensor) const { return digests_[tensor]; }
  Digest digest() const;
  std::uint64_t size() const { return size_; }

  // Tainted: the delta did not lead to what it states, and the baseline is of no more use.
  Status Advance(const StagedDelta& staged);

 private:
  explicit Baseline(const Plan& plan) : plan_(plan), digests_(plan.tensors().size()) {}
  Status Allocate(const TensorSet& owned);
  // Forms the digests; with `source` chunks are copied from it first.
  Status SumUp(const TensorSet& owned, const ModelView* source, unsigned threads);
  void StartDevice(unsigned threads);

  const Plan& plan_;
  std::byte* memory_ = nullptr;
  std::uint64_t size_ = 0;
  MutableModelView view_;
  std::vector<Digest> digests_;
  std::unique_ptr<Device> device_;
};

}  // namespace segue
