// SPDX-License-Identifier: Apache-2.0
//
// Hooks: engine hooks from Python callables.
#pragma once

#include <memory>

#include "bindings/interpreter.h"
#include "segue/engine_hooks.h"

namespace segue::python {

// Hooks and what their callables raised last.
struct HooksHandle {
  EngineHooks hooks;
  std::shared_ptr<RaisedInCallback> raised = std::make_shared<RaisedInCallback>();
};

}  // namespace segue::python
