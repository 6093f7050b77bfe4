// SPDX-License-Identifier: Apache-2.0
//
// EngineSteps: what an update asks of an engine with control of its own, in the one right order:
// pause, (apply), flush, tell the version, resume. Remembers what is still owed, so that a step
// that failed after the apply is done before the engine goes on (cases E2, E3).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "segue/engine_hooks.h"
#include "segue/receiver.h"
#include "segue/status.h"

namespace segue {

class EngineSteps {
 public:
  EngineSteps() = default;
  explicit EngineSteps(EngineHooks hooks) : hooks_(std::move(hooks)) {}

  bool present() const { return hooks_.present(); }
  // Unsupported: a choice that this engine has no hook for. Nothing is asked of it.
  Status Check(const ApplyChoices& choices) const;
  // Before the gate closes. A failure leaves the engine running.
  Status Pause(const ApplyChoices& choices);
  // After the apply; again after a failure. `label`: of the version. `flush`: whether the caches
  // must go; false takes back that they are owed.
  Status Finish(bool flush, const std::string& label);
  // Whether Finish has been done for the last apply.
  bool owes() const { return owes_; }
  // After the gate is open.
  Status Resume();
  // For whoever gives an update up before its apply: goes on as if nothing had been asked.
  Status CallOff();

  bool paused() const { return paused_; }
  const std::vector<std::string>& flushed() const { return flushed_; }

 private:
  EngineHooks hooks_;
  bool paused_ = false;
  bool owes_ = false;
  std::vector<std::string> flushed_;
};

}  // namespace segue
