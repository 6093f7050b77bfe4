// SPDX-License-Identifier: Apache-2.0
//
// The interpreter's lock and errors; see interpreter.h.
#include "bindings/interpreter.h"

#include <algorithm>
#include <atomic>
#include <thread>

namespace segue::python {
namespace {

std::atomic<bool> interpreter_ends{false};

constexpr double kSecondsMax = 1e8;

nb::object ErrorsModule() { return nb::module_::import_("segue.errors"); }

bool IsInstance(nb::handle value, nb::handle type) {
  const int found = PyObject_IsInstance(value.ptr(), type.ptr());
  if (found < 0) throw nb::python_error();
  return found == 1;
}

StatusCode CodeNamed(std::string_view name) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    if (StatusCodeName(static_cast<StatusCode>(code)) == name) return static_cast<StatusCode>(code);
  }
  return StatusCode::kInternal;
}

// A segue.Error keeps its code; what the system or the network did is transient; else it is a bug.
StatusCode CodeOf(nb::handle value) {
  if (IsInstance(value, ErrorsModule().attr("Error"))) {
    return CodeNamed(nb::cast<std::string>(value.attr("code")));
  }
  if (!IsInstance(value, PyExc_Exception) || IsInstance(value, PyExc_OSError)) {
    return StatusCode::kUnavailable;
  }
  return StatusCode::kInternal;
}

}  // namespace

std::chrono::milliseconds Milliseconds(double seconds) {
  if (!(seconds > 0)) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::min(seconds, kSecondsMax) * 1000));
}

void EndInterpreter() { interpreter_ends = true; }
bool InterpreterEnds() { return interpreter_ends; }

WithoutGil::~WithoutGil() {
  if (state_ == nullptr) return;
  // Only threads that Python does not wait for (daemons) come here so late.
  while (interpreter_ends) std::this_thread::sleep_for(std::chrono::hours(1));
  PyEval_RestoreThread(state_);
}

void Raise(const Status& status, RaisedInCallback* raised) {
  nb::object cause = raised == nullptr ? nb::object() : raised->Take();
  if (cause.is_valid() && !IsInstance(cause, PyExc_Exception)) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(cause.ptr())), cause.ptr());
    throw nb::python_error();
  }
  const nb::object type =
      ErrorsModule().attr("CLASSES")[std::string(StatusCodeName(status.code())).c_str()];
  const nb::object error = type(status.message());
  if (cause.is_valid()) PyException_SetCause(error.ptr(), cause.release().ptr());
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

Status StatusOf(const nb::python_error& error, std::string_view what) {
  const nb::handle value = error.value();
  std::string text(what);
  text += " raised ";
  text += nb::cast<std::string>(nb::str(nb::handle(Py_TYPE(value.ptr())).attr("__name__")));
  text += ": ";
  text += nb::cast<std::string>(nb::str(value));
  return {CodeOf(value), text};
}

bool IsMainThread() {
  const nb::module_ threading = nb::module_::import_("threading");
  return threading.attr("current_thread")().is(threading.attr("main_thread")());
}

void RaisePendingSignal() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

}  // namespace segue::python
