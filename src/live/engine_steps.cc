// SPDX-License-Identifier: Apache-2.0
//
// EngineSteps: each step once, and what is owed until it is done.
#include "live/engine_steps.h"

#include <utility>

#include "base/out_of_memory.h"

namespace segue {

Status EngineSteps::Check(const ApplyChoices& choices) const {
  if (!present()) {
    if (!choices.abort_all_requests) return {};
    return Unsupported("abort_all_requests needs an engine with request control");
  }
  if (!choices.flush_cache || hooks_.flush) return {};
  return Unsupported("flush_cache: the engine has no hook that flushes");
}

Status EngineSteps::Pause(const ApplyChoices& choices, bool may_run) {
  if (!present()) return {};
  flushed_.clear();
  const Status paused = CatchOutOfMemory([&] {
    return hooks_.pause({choices.abort_all_requests, choices.flush_cache});
  });
  paused_ = paused.ok();
  if (paused.ok()) {
    owes_ = true;
    return {};
  }
  if (!may_run || stale_) return paused.WithContext("the engine did not pause");
  const Status resumed = CatchOutOfMemory(hooks_.resume);
  if (resumed.ok()) return paused.WithContext("the engine did not pause");
  return paused.WithContext("the engine did not pause, nor say that it goes on (" +
                            resumed.message() + ")");
}

Status EngineSteps::Finish(bool flush, const std::string& label) {
  if (!present()) return {};
  owes_ = true;
  // One that is not paused was not there when the bytes were written.
  if (flush && stale_ && paused_ && hooks_.flush) {
    Result<std::vector<std::string>> flushed = hooks_.flush();
    if (!flushed.ok()) return flushed.status().WithContext("applied, but the caches stay");
    flushed_ = std::move(flushed).value();
  }
  if (paused_) stale_ = false;
  if (hooks_.set_version) {
    const Status told = hooks_.set_version(label);
    if (!told.ok()) return told.WithContext("applied, but the engine was not told the version");
  }
  owes_ = false;
  return {};
}

Status EngineSteps::Resume() {
  if (!present()) return {};
  SEGUE_RETURN_IF_ERROR(CatchOutOfMemory(hooks_.resume));
  paused_ = false;
  return {};
}

Status EngineSteps::CallOff() {
  if (stale_ && present()) {
    return Unavailable("the engine stays paused: its caches may be older than its weights");
  }
  owes_ = false;
  return Resume();
}

}  // namespace segue
