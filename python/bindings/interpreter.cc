// SPDX-License-Identifier: Apache-2.0
//
// The interpreter's lock and errors; see interpreter.h.
#include "bindings/interpreter.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>

namespace segue::python {
namespace {

std::atomic<bool> interpreter_ends{false};

constexpr double kSecondsMax = 1e8;

// Between two looks for a signal, each of which takes the lock.
constexpr std::chrono::milliseconds kSignalLook{50};

nb::object ErrorsModule() { return nb::module_::import_("segue.errors"); }

StatusCode CodeNamed(std::string_view name) {
  for (int code = 1; code <= static_cast<int>(StatusCode::kInternal); ++code) {
    if (StatusCodeName(static_cast<StatusCode>(code)) == name) return static_cast<StatusCode>(code);
  }
  return StatusCode::kInternal;
}

// A segue.Error keeps its code; what the system or the network did is transient; else it is a bug.
// So is a TaintedError: the weights that it speaks of are not those that this callback is for.
StatusCode CodeOf(nb::handle value) {
  if (IsInterrupt(value)) return StatusCode::kUnavailable;
  if (nb::isinstance(value, ErrorsModule().attr("Error"))) {
    const StatusCode code = CodeNamed(nb::cast<std::string>(value.attr("code")));
    return code == StatusCode::kTainted ? StatusCode::kInternal : code;
  }
  const bool is_system = PyErr_GivenExceptionMatches(value.ptr(), PyExc_OSError) != 0;
  return is_system ? StatusCode::kUnavailable : StatusCode::kInternal;
}

StatusCode CodeOrInternal(nb::handle value) {
  try {
    return CodeOf(value);
  } catch (const std::exception&) {  // Its `code` is none.
    PyErr_Clear();
    return StatusCode::kInternal;
  }
}

std::string NameOfType(nb::handle value) {
  const std::string_view name = Py_TYPE(value.ptr())->tp_name;
  return std::string(name.substr(name.rfind('.') + 1));
}

// As UTF-8, whatever it is.
std::string TextOf(nb::handle value) {
  const nb::object text = nb::steal(PyObject_Str(value.ptr()));
  const nb::object bytes =
      text.is_valid()
          ? nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"))
          : nb::object();
  if (!bytes.is_valid()) {
    PyErr_Clear();
    return "(it has no text)";
  }
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

// Messages may quote names that are no UTF-8.
nb::object MessageOf(const Status& status) {
  const std::string& text = status.message();
  nb::object message = nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
  if (!message.is_valid()) throw nb::python_error();
  return message;
}

[[noreturn]] void RaiseObject(nb::handle exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
  throw nb::python_error();
}

// Threads of RunLater(), of one process: a child made by fork has none of them.
struct LaterThreads {
  const OwnProcess process = {};
  std::mutex mutex = {};
  std::condition_variable changed = {};
  unsigned count = 0;
};

// Under the lock. It stays: a thread may outlive all else.
LaterThreads& Later() {
  static auto* later = new LaterThreads;
  if (!later->process.Check("").ok()) later = new LaterThreads;
  return *later;
}

}  // namespace

std::chrono::milliseconds Milliseconds(double seconds) {
  if (!(seconds > 0)) return std::chrono::milliseconds(0);
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::min(seconds, kSecondsMax) * 1000));
}

void EndInterpreter() {
  LaterThreads& later = Later();
  {
    const WithoutGil released;
    std::unique_lock lock(later.mutex);
    later.changed.wait(lock, [&] { return later.count == 0; });
  }
  interpreter_ends = true;
}
bool InterpreterEnds() { return interpreter_ends; }

void RunLater(std::function<void()> work) {
  LaterThreads& later = Later();
  const auto run = [&later, work = std::move(work)]() mutable {
    work();
    work = nullptr;
    const std::lock_guard lock(later.mutex);
    if (--later.count == 0) later.changed.notify_all();
  };
  const std::lock_guard lock(later.mutex);
  try {
    std::jthread(run).detach();
    ++later.count;
  } catch (const std::system_error&) {
  }
}

WithoutGil::~WithoutGil() {
  if (state_ == nullptr) return;
  // Only threads that Python does not wait for (daemons) come here so late.
  while (interpreter_ends) std::this_thread::sleep_for(std::chrono::hours(1));
  PyEval_RestoreThread(state_);
}

void Raise(const Status& status, RaisedInCallback* raised) {
  nb::object cause = raised == nullptr ? nb::object() : raised->Take();
  if (cause.is_valid() && IsInterrupt(cause)) RaiseObject(cause);
  const nb::object type =
      ErrorsModule().attr("CLASSES")[std::string(StatusCodeName(status.code())).c_str()];
  const nb::object error = type(MessageOf(status));
  if (cause.is_valid()) PyException_SetCause(error.ptr(), cause.release().ptr());
  RaiseObject(error);
}

void RaiseKept(RaisedInCallback& raised, bool all) {
  if (!(all ? raised.has_any() : raised.has_interrupt())) return;
  const nb::object exception = raised.Take();
  RaiseObject(exception);
}

Status StatusOf(const nb::python_error& error, std::string_view what) {
  const nb::handle value = error.value();
  return {CodeOrInternal(value),
          std::string(what) + " raised " + NameOfType(value) + ": " + TextOf(value)};
}

Status NoteRaised(const nb::python_error& error, std::string_view what, RaisedInCallback* raised) {
  if (raised != nullptr) {
    CallFrame* const call = CallFrame::CallOf(raised);
    (call != nullptr ? call->raised() : *raised).Keep(nb::borrow(error.value()));
  }
  return StatusOf(error, what);
}

Status NoteOther(std::string_view found, std::string_view what) {
  PyErr_Clear();
  return InvalidArgument(std::string(what) + " returned something else than it should (" +
                         std::string(found) + ")");
}

bool IsMainThread() {
  const nb::module_ threading = nb::module_::import_("threading");
  return threading.attr("current_thread")().is(threading.attr("main_thread")());
}

void RaisePendingSignal() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

EndsOnSignal::EndsOnSignal(RaisedInCallback* raised)
    : raised_(raised), is_main_(IsMainThread()), scope_([this] { return Hears(); }) {}

// Once it is heard all that follows in the call ends too.
bool EndsOnSignal::Hears() {
  const auto now = std::chrono::steady_clock::now();
  if (!is_main_ || heard_ || now < next_look_) return heard_;
  next_look_ = now + kSignalLook;
  const Status handled = InPython("a signal handler", raised_, [] {
    RaisePendingSignal();
    return Status();
  });
  return heard_ = !handled.ok();
}

}  // namespace segue::python
