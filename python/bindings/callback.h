// SPDX-License-Identifier: Apache-2.0
//
// Callback: a Python callable that threads of Segue call. Copies share it; the last one lets go of
// it under the lock, or never, when the interpreter has ended. Whoever keeps the callbacks shows
// the callables to the garbage collector: an owner whose own methods they are is a cycle.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/interpreter.h"

namespace segue::python {

// One reference to a callable. All but the destructor is under the lock.
class HeldCallable {
 public:
  explicit HeldCallable(nb::object callable) : callable_(callable.release().ptr()) {}
  ~HeldCallable() {
    if (callable_ == nullptr || InterpreterEnds()) return;
    const nb::gil_scoped_acquire held;
    Py_DECREF(callable_);
  }
  HeldCallable(const HeldCallable&) = delete;
  HeldCallable& operator=(const HeldCallable&) = delete;

  // Null once it was cleared.
  nb::object Get() const { return nb::borrow(callable_); }
  int Traverse(visitproc visit, void* arg) const {
    Py_VISIT(callable_);
    return 0;
  }
  void Clear() { Py_CLEAR(callable_); }

 private:
  PyObject* callable_;
};

using HeldCallables = std::vector<std::shared_ptr<HeldCallable>>;

class Callback {
 public:
  // Under the lock. `what`: its name in messages. `held`: what is shown to the collector.
  Callback(nb::object callable, std::string what, HeldCallables& held)
      : held_(std::make_shared<HeldCallable>(std::move(callable))), what_(std::move(what)) {
    held.push_back(held_);
  }

  const std::string& what() const { return what_; }

  // Calls it, from any thread, and hands its answer to `take`, which returns a Status.
  template <typename Take, typename... Arguments>
  Status Call(RaisedInCallback* raised, Take take, const Arguments&... arguments) const {
    const CallFrame frame(raised, CallFrame::Kind::kCallback);
    return InPython(what_, raised, [&] {
      const nb::object callable = held_->Get();
      if (!callable.is_valid()) return Unavailable(what_ + " was let go");
      return take(callable(arguments...));
    });
  }
  // For answers that do not matter.
  template <typename... Arguments>
  Status CallOnly(RaisedInCallback* raised, const Arguments&... arguments) const {
    return Call(
        raised, [](const nb::object&) { return Status(); }, arguments...);
  }

 private:
  std::shared_ptr<HeldCallable> held_;
  std::string what_;
};

}  // namespace segue::python
