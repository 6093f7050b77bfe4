// SPDX-License-Identifier: Apache-2.0
//
// Callback: a Python callable that threads of Segue call. Copies share it; the last one lets go of
// it under the lock, or never, when the interpreter has ended.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>

#include "bindings/interpreter.h"

namespace segue::python {

class Callback {
 public:
  // Under the lock. `what`: its name in messages.
  Callback(nb::object callable, std::string what)
      : callable_(callable.release().ptr(), &LetGo), what_(std::move(what)) {}

  const std::string& what() const { return what_; }

  // Calls it, from any thread, and hands its answer to `take`, which returns a Status.
  template <typename Take, typename... Arguments>
  Status Call(RaisedInCallback* raised, Take take, const Arguments&... arguments) const {
    return InPython(what_, raised, [&] { return take(nb::handle(callable_.get())(arguments...)); });
  }
  // For answers that do not matter.
  template <typename... Arguments>
  Status CallOnly(RaisedInCallback* raised, const Arguments&... arguments) const {
    return Call(
        raised, [](const nb::object&) { return Status(); }, arguments...);
  }

 private:
  static void LetGo(PyObject* callable) {
    if (InterpreterEnds()) return;
    const nb::gil_scoped_acquire held;
    Py_XDECREF(callable);
  }

  std::shared_ptr<PyObject> callable_;
  std::string what_;
};

}  // namespace segue::python
