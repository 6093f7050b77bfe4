// SPDX-License-Identifier: Apache-2.0
//
// LiveEnvironment: an environment that also gives a receiver its devices and the weights that
// engines attach to by name. On the machine: host devices and shared memory segments.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/plan.h"
#include "device/accelerator.h"
#include "live/live_weights.h"
#include "segue/receiver.h"
#include "sync/environment.h"

namespace segue {

class ReceiverGroup;
struct GroupOptions;

class LiveEnvironment : public Environment {
 public:
  virtual std::unique_ptr<Device> MakeDevice(unsigned threads) = 0;
  // As segue::OpenAccelerator (device/accelerator.h).
  virtual Result<std::shared_ptr<Accelerator>> OpenAccelerator(const std::string& name,
                                                               unsigned threads,
                                                               const AcceleratorOptions& options) {
    return segue::OpenAccelerator(name, threads, options);
  }
  // What another receiver left, as it left it. NotFound where there is nothing of that name;
  // Unavailable where its receiver lives.
  virtual Result<std::unique_ptr<LiveWeights>> OpenWeights(const std::string& name) = 0;
  // Whether there are weights of this name, a live receiver's or not, that are poisoned. False
  // where that cannot be told.
  virtual bool IsPoisoned(const std::string&) { return false; }
  // Phase loading, gate closed.
  virtual Result<std::unique_ptr<LiveWeights>> CreateWeights(const std::string& name,
                                                             const Plan& plan,
                                                             const std::string& lineage) = 0;
  // Whoever has them keeps what it has, and is told; success where there is nothing of that name.
  virtual Status RemoveWeights(const std::string& name) {
    return Unsupported("weights '" + name + "' cannot be removed here");
  }
};

LiveEnvironment& SystemLiveEnvironment();

// For the simulator: a receiver in another world than this machine.
struct ReceiverInternals {
  static Result<std::unique_ptr<Receiver>> Open(const ReceiverOptions& options,
                                                LiveEnvironment& environment);
  static Result<std::unique_ptr<Receiver>> Open(const ReceiverOptions& options, BoundModel model,
                                                LiveEnvironment& environment);
  // One lineage in two segments, which move together as the lineages of a group do.
  static Result<std::unique_ptr<Receiver>> OpenPair(const ReceiverOptions& options,
                                                    const std::string& further,
                                                    LiveEnvironment& environment);
  static Result<std::unique_ptr<ReceiverGroup>> Open(const GroupOptions& options,
                                                     LiveEnvironment& environment);
};

}  // namespace segue
