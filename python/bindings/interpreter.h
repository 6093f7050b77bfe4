// SPDX-License-Identifier: Apache-2.0
//
// The interpreter's lock (GIL), and how errors cross between C++ and Python: a Status becomes an
// exception of segue.errors, an exception that a callback raised becomes a Status.
//
// What must hold: nothing that waits, reads or writes runs under the lock, and no lock of Segue is
// waited for under it, since callbacks need it. Threads of Segue that outlive the interpreter do
// not enter it: it would end them in the middle of C++.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "segue/status.h"

namespace segue::python {

namespace nb = nanobind;

// Seconds as Python gives them; negative ones and NaN are 0, huge ones some years.
std::chrono::milliseconds Milliseconds(double seconds);

void EndInterpreter();
bool InterpreterEnds();

// Other Python threads run while this lives. A thread that comes back to an interpreter that has
// ended meanwhile waits for ever; the one that ends it keeps the lock.
class WithoutGil {
 public:
  WithoutGil() : state_(InterpreterEnds() ? nullptr : PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* state_;
};

// An exception that a callback raised, kept until the call that caused it ends. Under the lock.
class RaisedInCallback {
 public:
  void Keep(nb::object exception) { exception_ = std::move(exception); }
  void Clear() { exception_ = nb::object(); }
  // Gives it away; null when there is none.
  nb::object Take() { return std::exchange(exception_, nb::object()); }

 private:
  nb::object exception_;
};

// Raises the exception of segue.errors for a status that is not OK; what a callback raised is its
// cause, and is raised itself where it is no Exception (KeyboardInterrupt).
[[noreturn]] void Raise(const Status& status, RaisedInCallback* raised = nullptr);

inline void OrRaise(const Status& status, RaisedInCallback* raised = nullptr) {
  if (!status.ok()) Raise(status, raised);
}
template <typename T>
T OrRaise(Result<T> result, RaisedInCallback* raised = nullptr) {
  if (!result.ok()) Raise(result.status(), raised);
  return std::move(result).value();
}

// Runs `call` without the lock and raises what it fails with.
template <typename Call>
auto Run(Call call, RaisedInCallback* raised = nullptr) {
  auto outcome = [&] {
    const WithoutGil released;
    return call();
  }();
  return OrRaise(std::move(outcome), raised);
}

// What an exception means as a status; `what` says who raised it.
Status StatusOf(const nb::python_error& error, std::string_view what);

// Runs `call` (which returns a Status) under the lock, from any thread. Exceptions become statuses
// and are kept in `raised`; Unavailable when the interpreter ends.
template <typename Call>
Status InPython(std::string_view what, RaisedInCallback* raised, Call call) {
  if (InterpreterEnds()) return Unavailable(std::string(what) + ": the interpreter is ending");
  const nb::gil_scoped_acquire held;
  try {
    return call();
  } catch (const nb::python_error& error) {
    if (raised != nullptr) raised->Keep(nb::borrow(error.value()));
    return StatusOf(error, what);
  } catch (const std::exception& error) {
    return InvalidArgument(std::string(what) + " returned something else than it should (" +
                           error.what() + ")");
  }
}

// The process that an object was made in.
class OwnProcess {
 public:
  // InvalidArgument in a child that was made by fork since.
  Status Check(std::string_view what) const {
    if (::getpid() == made_in_) return {};
    return InvalidArgument(std::string(what) +
                           " belongs to the process that opened it, not to its forked child");
  }

 private:
  pid_t made_in_ = ::getpid();
};

// Whether this is the thread that Python's signal handlers run in; under the lock.
bool IsMainThread();
// Raises what a signal handler raises (KeyboardInterrupt); under the lock.
void RaisePendingSignal();

}  // namespace segue::python
