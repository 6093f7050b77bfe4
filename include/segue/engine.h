// SPDX-License-Identifier: Apache-2.0
//
// Engine weights: live weights that a receiver of Segue (`segue serve`) keeps in shared memory, for
// the engine that computes with them. The engine reads tensors in place and says where a forward
// step begins and ends; the receiver changes weights only while no step runs.
//
//   auto weights = EngineWeights::Attach("policy", std::chrono::seconds(60));
//   for (;;) {
//     const auto step = weights->BeginStep(std::chrono::seconds(30));
//     if (!step.ok()) ...          // An update takes longer; no weights may be read.
//     Forward(weights->tensors(), ...);
//   }                              // The step ends with its scope.
//
// What must hold: weights are read, also by work that was handed to other threads or devices, only
// between a successful Enter() and its Leave(). A thread that is inside does not enter again, nor
// wait at the gate of other weights (EnterAll() in segue/enter_all.h enters several). The
// process does not close descriptors that it does not know, as its place among the living hangs on
// one; if it dies inside, the receiver goes on without it. A child made by fork counts as the same
// engine until both are gone.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "segue/status.h"

namespace segue {

struct EngineTensor {
  std::string name;
  std::string dtype;  // As in safetensors, e.g. "BF16".
  std::vector<std::uint64_t> shape;
  const std::byte* data = nullptr;  // Aligned to 256 bytes; never written through.
  std::uint64_t size = 0;           // Bytes.
};

struct EngineVersion {
  std::string lineage;
  std::uint64_t version = 0;
  std::string digest;    // Empty when a receiver died while it wrote it.
  bool serving = false;  // The weights are this version, proven; else they are loading or changing.
};

// Threads may share one object; moving it is not for while they do.
class EngineWeights {
 public:
  // A step that has begun and ends with this object, which must not outlive the weights.
  class Step {
   public:
    Step(Step&& other) noexcept
        : weights_(std::exchange(other.weights_, nullptr)), forks_(other.forks_) {}
    Step& operator=(Step&& other) noexcept {
      std::swap(weights_, other.weights_);
      std::swap(forks_, other.forks_);
      return *this;
    }
    // In a child that was made by fork meanwhile it ends nothing: the step is its parent's.
    ~Step() {
      if (weights_ != nullptr && forks_ == fork_count()) weights_->Leave();
    }

   private:
    friend class EngineWeights;
    explicit Step(EngineWeights& weights) : weights_(&weights) {}
    EngineWeights* weights_;
    std::uint32_t forks_ = fork_count();
  };

  // Waits until the segment `name` is there and whole. NotFound when it is not at the deadline;
  // ResourceExhausted when every engine slot of it is taken; Corruption when it is no segment.
  static Result<EngineWeights> Attach(const std::string& name, std::chrono::milliseconds deadline);
  // The same, but Unavailable once `stop` says so, which is asked while it waits.
  static Result<EngineWeights> AttachUnless(const std::function<bool()>& stop,
                                            const std::string& name,
                                            std::chrono::milliseconds deadline);

  EngineWeights(EngineWeights&& other) noexcept;
  EngineWeights& operator=(EngineWeights&& other) noexcept;
  ~EngineWeights();

  // In ascending order of names.
  const std::vector<EngineTensor>& tensors() const;
  // Null when there is none.
  const EngineTensor* Find(std::string_view name) const;

  // Before weights are read. Some nanoseconds while the gate is open; waits while it is closed, and
  // at the deadline fails as Unavailable; at once as NotFound when the segment was removed: attach
  // anew.
  Status Enter(std::chrono::milliseconds deadline);
  // The same, and while it waits `stop` (if it is set) is asked about ten times a second: once it
  // says yes, this fails as Unavailable.
  Status EnterUnless(const std::function<bool()>& stop, std::chrono::milliseconds deadline);
  // Whether it could enter at once.
  bool TryEnter();
  // Once for every success of the above, in the process that entered.
  void Leave();
  Result<Step> BeginStep(std::chrono::milliseconds deadline);
  // As EnterUnless.
  Result<Step> BeginStepUnless(const std::function<bool()>& stop,
                               std::chrono::milliseconds deadline);

  // Another one in each child that is made by fork while anything is attached: what was entered
  // under another count is the parent's to leave.
  static std::uint32_t fork_count() { return fork_count_.load(std::memory_order_relaxed); }

  // Inside a step it is the version of the weights that are read there.
  EngineVersion version() const;

 private:
  struct Parts;
  explicit EngineWeights(std::unique_ptr<Parts> parts);
  static void CountForks();

  static inline std::atomic<std::uint32_t> fork_count_{0};

  std::unique_ptr<Parts> parts_;
};

}  // namespace segue
