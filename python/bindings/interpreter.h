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
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "bindings/call_frame.h"
#include "segue/give_up.h"
#include "segue/status.h"

namespace segue::python {

// Seconds as Python gives them; negative ones and NaN are 0, huge ones some years.
std::chrono::milliseconds Milliseconds(double seconds);

// Once what RunLater() has begun has ended. Under the lock.
void EndInterpreter();
bool InterpreterEnds();

// Runs `work` in a thread of its own, without the lock; it is not run where there are no threads to
// be had. Under the lock.
void RunLater(std::function<void()> work);

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

// Raises what was kept though the call went well: an interrupt, or with `all` anything.
void RaiseKept(RaisedInCallback& raised, bool all);

// Runs `call` without the lock and raises what it fails with.
template <typename Call>
auto Run(Call call, RaisedInCallback* raised = nullptr) {
  auto outcome = [&] {
    const WithoutGil released;
    return call();
  }();
  return OrRaise(std::move(outcome), raised);
}

// What an exception means as a status; `what` says who raised it. Never throws: an exception may
// have no text, or one that is no UTF-8.
Status StatusOf(const nb::python_error& error, std::string_view what);

// For handlers of a callback's exceptions: keeps what was raised for the call that is to raise it,
// of this thread if it has one. `raised` may be null.
Status NoteRaised(const nb::python_error& error, std::string_view what, RaisedInCallback* raised);
Status NoteOther(std::string_view found, std::string_view what);

// Runs `call` (which returns a Status) under the lock, from any thread. Exceptions of all kinds
// become statuses, since threads and states of C++ are not made for them; what Python raised is
// kept. Unavailable when the interpreter ends.
template <typename Call>
Status InPython(std::string_view what, RaisedInCallback* raised, Call call) {
  if (InterpreterEnds()) return Unavailable(std::string(what) + ": the interpreter is ending");
  const nb::gil_scoped_acquire held;
  try {
    return call();
  } catch (const nb::python_error& error) {
    return NoteRaised(error, what, raised);
  } catch (const std::exception& error) {
    return NoteOther(error.what(), what);
  } catch (...) {
    return NoteOther("an exception of another kind", what);
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

// While it lives, what this thread waits for at a store ends on Ctrl-C, if it is the thread that
// hears it; what the handler raised is kept. Made under the lock.
class EndsOnSignal {
 public:
  explicit EndsOnSignal(RaisedInCallback* raised);

 private:
  bool Hears();

  RaisedInCallback* const raised_;
  const bool is_main_;
  bool heard_ = false;
  std::chrono::steady_clock::time_point next_look_ = {};
  const GiveUpScope scope_;
};

}  // namespace segue::python
