// SPDX-License-Identifier: Apache-2.0
//
// Hooks: engine hooks from Python callables, or over HTTP. Each receiver makes its own of them, so
// that what they raise in one is not taken for another's.
#pragma once

#include <optional>

#include "bindings/bound_model.h"
#include "bindings/callback.h"
#include "bindings/interpreter.h"
#include "segue/engine_hooks.h"

namespace segue::python {

// Where `http` is set, it is that. Of the callables, those that are None are not there.
struct HooksHandle {
  nb::object pause;
  nb::object flush;
  nb::object set_version;
  nb::object resume;
  std::optional<EngineHttpOptions> http;

  // What callables raise is kept in `raised`, and they are added to `held`.
  EngineHooks Make(const Raised& raised, HeldCallables& held) const;
};

}  // namespace segue::python
