// SPDX-License-Identifier: Apache-2.0
//
// segue/engine.h in Python: weights in a segment, tensors that alias them, and steps.
#include "segue/engine.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "bindings/interpreter.h"
#include "bindings/module.h"
#include "bindings/record.h"
#include "bindings/step.h"
#include "segue/enter_all.h"

namespace segue::python {
namespace {

// The mapping lives as long as anything that was made from it.
using Weights = std::shared_ptr<EngineWeights>;

struct WeightsHandle {
  Weights weights;
};

struct SharedTensor {
  Weights weights;
  const EngineTensor* tensor;
};

// One entry of the gate. It may be entered again after it was left.
struct Step {
  Step(Weights all, std::chrono::milliseconds wait) : weights(std::move(all)), timeout(wait) {}
  Step(Step&&) = default;
  ~Step() {
    if (entry.EndIfInside()) weights->Leave();
  }

  Weights weights;
  std::chrono::milliseconds timeout;
  EngineVersion version;
  StepEntry entry;
};

WeightsHandle Attach(const std::string& name, double timeout) {
  const auto limit = std::chrono::steady_clock::now() + Milliseconds(timeout);
  for (;;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(limit - std::chrono::steady_clock::now());
    const bool last = left <= kSignalPeriod;
    auto attached = [&] {
      const WithoutGil released;
      return EngineWeights::Attach(name, last ? left : kSignalPeriod);
    }();
    if (attached.ok()) {
      return {std::make_shared<EngineWeights>(std::move(attached).value())};
    }
    if (last || attached.status().code() != StatusCode::kNotFound) {
      Raise(AfterAll(attached.status(), Milliseconds(timeout)));
    }
    RaisePendingSignal();
  }
}

const EngineTensor* FindOrRaise(const Weights& weights, const std::string& name) {
  const EngineTensor* const found = weights->Find(name);
  if (found == nullptr) Raise(NotFound("the weights have no tensor '" + name + "'"));
  return found;
}

Step& EnterStep(Step& step) {
  EngineWeights& weights = *step.weights;
  step.entry.EnterOnce(
      step.timeout, [&] { return weights.TryEnter(); },
      [&](const auto& stop, auto wait) { return weights.EnterUnless(stop, wait); });
  step.version = weights.version();
  return step;
}

void LeaveStep(Step& step) {
  if (step.entry.LeaveOnce()) step.weights->Leave();
}

// The gates of several segments, entered as one.
class StepOfAll {
 public:
  StepOfAll(const std::vector<const WeightsHandle*>& all, std::chrono::milliseconds timeout)
      : timeout_(timeout) {
    for (const WeightsHandle* const one : all) {
      owned_.push_back(one->weights);
      gates_.push_back(one->weights.get());
    }
  }
  StepOfAll(StepOfAll&& other) noexcept
      : owned_(std::move(other.owned_)),
        gates_(std::move(other.gates_)),
        timeout_(other.timeout_),
        versions_(std::move(other.versions_)),
        entry_(std::move(other.entry_)) {}
  StepOfAll& operator=(StepOfAll&&) = delete;
  ~StepOfAll() {
    if (entry_.EndIfInside()) LeaveAll<EngineWeights>(gates_);
  }

  void Enter() {
    entry_.EnterOnce(
        timeout_, [this] { return TryEnterAll<EngineWeights>(gates_); },
        [this](const auto& stop, auto wait) {
          return EnterAllUnless<EngineWeights>(stop, gates_, wait);
        });
    versions_.clear();
    for (EngineWeights* const gate : gates_) versions_.push_back(gate->version());
  }
  void Leave() {
    if (entry_.LeaveOnce()) LeaveAll<EngineWeights>(gates_);
  }
  const std::vector<EngineVersion>& versions() const { return versions_; }

 private:
  std::vector<Weights> owned_;
  std::vector<EngineWeights*> gates_;
  std::chrono::milliseconds timeout_;
  std::vector<EngineVersion> versions_;
  StepEntry entry_;
};

// --- Buffer protocol and DLPack
// -------------------------------------------------------------------

// The bytes, flat: Python's formats know neither BF16 nor FP8.
int GetBuffer(PyObject* object, Py_buffer* view, int flags) {
  if (!nb::inst_ready(object)) {  // Made by __new__ alone.
    view->obj = nullptr;
    PyErr_SetString(PyExc_BufferError, "this SharedTensor is not of a segment");
    return -1;
  }
  const SharedTensor* const self = nb::inst_ptr<SharedTensor>(object);
  return PyBuffer_FillInfo(view, object, const_cast<std::byte*>(self->tensor->data),
                           static_cast<Py_ssize_t>(self->tensor->size), /*readonly=*/1, flags);
}

PyType_Slot shared_tensor_slots[] = {
    {Py_bf_getbuffer, reinterpret_cast<void*>(GetBuffer)},
    {0, nullptr},
};

// Dtypes by their codes in DLPack 1.1.
const std::map<std::string, nb::dlpack::dtype, std::less<>>& DlpackDtypes() {
  static const auto* const dtypes = new std::map<std::string, nb::dlpack::dtype, std::less<>>{
      {"BOOL", {6, 8, 1}},         {"U8", {1, 8, 1}},       {"I8", {0, 8, 1}},
      {"U16", {1, 16, 1}},         {"I16", {0, 16, 1}},     {"U32", {1, 32, 1}},
      {"I32", {0, 32, 1}},         {"U64", {1, 64, 1}},     {"I64", {0, 64, 1}},
      {"F16", {2, 16, 1}},         {"F32", {2, 32, 1}},     {"F64", {2, 64, 1}},
      {"BF16", {4, 16, 1}},        {"C64", {5, 64, 1}},     {"F8_E4M3", {10, 8, 1}},
      {"F8_E4M3FNUZ", {11, 8, 1}}, {"F8_E5M2", {12, 8, 1}}, {"F8_E5M2FNUZ", {13, 8, 1}},
      {"F8_E8M0", {14, 8, 1}},
  };
  return *dtypes;
}

nb::object DlpackCapsule(nb::handle self, const nb::kwargs& arguments) {
  const EngineTensor& tensor = *nb::cast<SharedTensor&>(self).tensor;
  const auto dtype = DlpackDtypes().find(tensor.dtype);
  if (dtype == DlpackDtypes().end()) {
    Raise(Unsupported("tensor '" + tensor.name + "': DLPack has no dtype for " + tensor.dtype +
                      "; its bytes are to be had through the buffer protocol"));
  }
  const std::vector<std::size_t> shape(tensor.shape.begin(), tensor.shape.end());
  const nb::ndarray<nb::array_api, nb::ro> array(tensor.data, shape.size(), shape.data(), self,
                                                 nullptr, dtype->second, nb::device::cpu::value);
  return nb::cast(array).attr("__dlpack__")(**arguments);
}

void BindTensor(nb::module_& module) {
  nb::class_<SharedTensor>(
      module, "SharedTensor",
      "A tensor of a segment, in place. It has the buffer protocol (its bytes, flat, read only) "
      "and DLPack (read only), and keeps the mapping alive. Read it inside a step alone.",
      nb::type_slots(shared_tensor_slots))
      .def_prop_ro(
          "name", [](const SharedTensor& self) { return self.tensor->name; }, "The checkpoint's.")
      .def_prop_ro(
          "dtype", [](const SharedTensor& self) { return self.tensor->dtype; },
          "As in safetensors, e.g. 'BF16'.")
      .def_prop_ro(
          "shape", [](const SharedTensor& self) { return nb::tuple(nb::cast(self.tensor->shape)); },
          "As in safetensors: of F4, values.")
      .def_prop_ro(
          "nbytes", [](const SharedTensor& self) { return self.tensor->size; },
          "Its size in bytes.")
      .def_prop_ro(
          "address",
          [](const SharedTensor& self) {
            return reinterpret_cast<std::uint64_t>(self.tensor->data);
          },
          "Where its first byte lies in this process.")
      .def(
          "as_bytes",
          [](nb::handle self) {
            const EngineTensor& tensor = *nb::cast<SharedTensor&>(self).tensor;
            const std::size_t size = tensor.size;
            return nb::cast(nb::ndarray<nb::array_api, nb::ro>(tensor.data, 1, &size, self, nullptr,
                                                               nb::dlpack::dtype{1, 8, 1},
                                                               nb::device::cpu::value));
          },
          "Its bytes as a flat DLPack tensor of U8.")
      .def("__dlpack__", &DlpackCapsule)
      .def("__dlpack_device__", [](const SharedTensor&) { return nb::make_tuple(1, 0); })
      .def("__repr__", [](const SharedTensor& self) {
        return nb::str("SharedTensor({!r}, {}, {})")
            .format(self.tensor->name, self.tensor->dtype, self.tensor->shape);
      });
}

void BindStep(nb::module_& module) {
  nb::class_<Step>(module, "EngineStep",
                   "A forward step: inside it the weights are one version, which it names.")
      .def("__enter__", &EnterStep, nb::rv_policy::reference)
      .def(
          "__exit__", [](Step& self, nb::handle, nb::handle, nb::handle) { LeaveStep(self); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
      .def_prop_ro("lineage", [](const Step& self) { return self.version.lineage; })
      .def_prop_ro("version", [](const Step& self) { return self.version.version; })
      .def_prop_ro(
          "digest", [](const Step& self) { return self.version.digest; }, "32 hexadecimal digits.")
      .def_prop_ro(
          "serving", [](const Step& self) { return self.version.serving; },
          "The weights are that version, proven.");
}

void BindStepOfAll(nb::module_& module) {
  nb::class_<StepOfAll>(module, "EngineStepOfAll",
                        "A forward step with the weights of several lineages: inside it they are "
                        "those that one update put together.")
      .def(
          "__enter__",
          [](StepOfAll& self) -> StepOfAll& {
            self.Enter();
            return self;
          },
          nb::rv_policy::reference)
      .def(
          "__exit__", [](StepOfAll& self, nb::handle, nb::handle, nb::handle) { self.Leave(); },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
      .def_prop_ro("versions", &StepOfAll::versions,
                   "What each holds, in the order in which they were named: EngineVersion.");
  module.def(
      "step_of_all",
      [](const std::vector<const WeightsHandle*>& all, double timeout) {
        return StepOfAll(all, Milliseconds(timeout));
      },
      nb::arg("all"), nb::arg("timeout"));
}

}  // namespace

void BindEngine(nb::module_& module) {
  BindTensor(module);
  BindStep(module);
  Record<EngineVersion>(module, "EngineVersion", "What a segment holds.")
      .Field("lineage", &EngineVersion::lineage, "Whose version it is.")
      .Field("version", &EngineVersion::version, "Its number.")
      .Field("digest", &EngineVersion::digest, "32 hexadecimal digits.")
      .Field("serving", &EngineVersion::serving, "The weights are that version, proven.");
  BindStepOfAll(module);
  nb::class_<WeightsHandle>(module, "EngineWeights", "As in segue/engine.h.")
      .def_static("attach", &Attach, nb::arg("name"), nb::arg("timeout"))
      .def("names",
           [](const WeightsHandle& self) {
             std::vector<std::string> names;
             names.reserve(self.weights->tensors().size());
             for (const EngineTensor& tensor : self.weights->tensors()) {
               names.push_back(tensor.name);
             }
             return names;
           })
      .def(
          "find",
          [](const WeightsHandle& self, const std::string& name) {
            return SharedTensor{self.weights, FindOrRaise(self.weights, name)};
          },
          nb::arg("name"))
      .def("version", [](const WeightsHandle& self) { return self.weights->version(); })
      .def(
          "step",
          [](const WeightsHandle& self, double timeout) {
            return Step(self.weights, Milliseconds(timeout));
          },
          nb::arg("timeout") = 30.0);
}

}  // namespace segue::python
