// SPDX-License-Identifier: Apache-2.0
//
// Call frame: what a thread is in the middle of, calls of receivers and callbacks that these have
// made. By it a call that would wait for itself is refused instead, and what a callback raised gets
// to the call in whose thread it was raised.
//
// What must hold: frames of a thread end in the opposite order of their beginnings (they are
// objects of scopes), and those of calls begin and end under the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <utility>

namespace segue::python {

namespace nb = nanobind;

// What stands for no error: KeyboardInterrupt, SystemExit.
inline bool IsInterrupt(nb::handle exception) {
  return PyType_IsSubtype(Py_TYPE(exception.ptr()),
                          reinterpret_cast<PyTypeObject*>(PyExc_Exception)) == 0;
}

// The exception that a callback raised last, kept until a call raises it; an interrupt is kept in
// any case. Under the lock.
class RaisedInCallback {
 public:
  void Keep(nb::object exception) {
    if (exception_.is_valid() && IsInterrupt(exception_) && !IsInterrupt(exception)) return;
    exception_ = std::move(exception);
  }
  void Clear() { exception_ = nb::object(); }
  // Gives it away; null when there is none.
  nb::object Take() { return std::exchange(exception_, nb::object()); }
  bool has_any() const { return exception_.is_valid(); }
  bool has_interrupt() const { return exception_.is_valid() && IsInterrupt(exception_); }

 private:
  nb::object exception_;
};

// Whose call or callback it is, is told by where what its callbacks raise is kept.
class CallFrame {
 public:
  enum class Kind : std::uint8_t { kCall, kCallback };

  CallFrame(const RaisedInCallback* owner, Kind kind);
  ~CallFrame();
  CallFrame(const CallFrame&) = delete;
  CallFrame& operator=(const CallFrame&) = delete;

  // Of a call: what callbacks raised in its thread.
  RaisedInCallback& raised() { return raised_; }

  // Whether this thread is in a call of the owner's or in a callback.
  static bool IsInside(const RaisedInCallback* owner);
  // Whether this thread is one of the owner's own (it prepares, follows or scans): in a callback,
  // and no call of this thread has led there.
  static bool IsOwnThread(const RaisedInCallback* owner);
  // The innermost call of the owner's in this thread; null when there is none.
  static CallFrame* CallOf(const RaisedInCallback* owner);

 private:
  const RaisedInCallback* const owner_;
  const Kind kind_;
  CallFrame* const outer_;
  RaisedInCallback raised_;
};

}  // namespace segue::python
