// SPDX-License-Identifier: Apache-2.0
//
// EngineSteps: what an update asks of an engine with control of its own, in the one right order:
// pause, (apply), flush, tell the version, resume. Remembers what is still owed, so that a step
// that failed after the apply is done before the engine goes on, and that no way leads round a
// flush: an engine whose caches may be older than its weights stays paused (cases E2, E3).
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
  // Before the gate closes. After a failure the engine is told to go on, as it may have paused and
  // only the answer was lost; not where it must not run (`may_run`, or stale caches). NotFound:
  // there is no engine.
  Status Pause(const ApplyChoices& choices, bool may_run);
  // Bytes were written: what the engine has cached is older. So it may be at the start.
  void MarkStale() { stale_ = true; }
  // After the apply; again after a failure. `label`: of the version. `flush`: whether stale caches
  // must go; false says that they need not.
  Status Finish(bool flush, const std::string& label);
  // Whether Finish has been done for the last apply.
  bool owes() const { return owes_; }
  // After the gate is open, and Finish.
  Status Resume();
  // For whoever gives an update up before its apply: goes on as if nothing had been asked.
  // Unavailable, still paused: with stale caches.
  Status CallOff();

  bool paused() const { return paused_; }
  const std::vector<std::string>& flushed() const { return flushed_; }

 private:
  EngineHooks hooks_;
  bool paused_ = false;
  bool owes_ = false;
  bool stale_ = true;
  std::vector<std::string> flushed_;
};

}  // namespace segue
